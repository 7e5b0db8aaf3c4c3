//! Plain English: patterns that make a reader read a sentence twice.
//!
//! The rules hold for comments, documentation, messages, texts of `--help`, and names of functions.

use super::{Finding, Source};
use crate::prose::{Sentence, of_rust, sentences};

/// Where the rules do not hold yet: starts of paths, one a line. `tidy` asks for the removal of a row that has no findings left.
const EXEMPT: &[&str] = &["bench/"];

/// Words, and what to write instead. They are matched as whole words, in small letters or with a capital.
const WORDS: &[(&str, &str)] = &[
    ("who", "name the thread, task, client or caller: `the task that …`"),
    ("whom", "name the thread, task, client or caller: `the task that …`"),
    ("whose", "write `with`, `of which`, or name the owner: `the color of the task`"),
    ("whoever", "name the actor: `the worker that …`, `any caller that …`"),
    ("he", "a thread, task, client or color is `it` or `they`"),
    ("him", "a thread, task, client or color is `it` or `them`"),
    ("his", "a thread, task, client or color has `its` or `their` own"),
    ("himself", "a thread, task, client or color is `itself`"),
    ("somebody", "name the actor: `another thread`, `a caller`, `a client`"),
    ("someone", "name the actor: `another thread`, `a caller`, `a client`"),
    ("nobody", "name the actor: `no task`, `no thread`, `no client`"),
    ("anybody", "name the actor: `any task`, `any client`"),
    ("everybody", "name the actor: `all tasks`, `every client`"),
];

/// People: `who` is the right word after these.
const PEOPLE: &[&str] = &["user", "users", "person", "people", "developer", "developers", "author", "authors"];

/// Prints the findings below some paths, also where these are exempt; true if there are none.
pub(crate) fn run(paths: &[&str]) -> Result<bool, String> {
    let texts = super::texts()?;
    let wanted = texts.iter().filter(|(path, _)| paths.is_empty() || paths.iter().any(|start| path.starts_with(start)));
    let findings: Vec<Finding> = wanted.flat_map(|(path, text)| check_file(path, text)).collect();
    for Finding { file, line, what } in &findings {
        println!("{file}:{line}: {what}");
    }
    println!("plain English: {} findings", findings.len());
    Ok(findings.is_empty())
}

/// Checks the prose of all files.
pub(super) fn check(texts: &[(String, String)], sources: &[Source<'_>]) -> Vec<Finding> {
    let rust = sources.iter().map(|source| (source.path, check_source(source)));
    let others = texts.iter().filter(|(path, _)| !path.ends_with(".rs"));
    check_but(EXEMPT, rust.chain(others.map(|(path, text)| (path.as_str(), check_file(path, text)))))
}

fn check_but<'a>(exempt: &[&str], files: impl Iterator<Item = (&'a str, Vec<Finding>)>) -> Vec<Finding> {
    let mut used = vec![false; exempt.len()];
    let mut findings = Vec::new();
    for (path, found) in files {
        match exempt.iter().position(|start| path.starts_with(start)) {
            Some(row) => used[row] |= !found.is_empty(),
            None => findings.extend(found),
        }
    }
    for (row, _) in exempt.iter().zip(used).filter(|(_, is_used)| !is_used) {
        findings.push(Finding::new(file!(), 1, format!("`{row}` passes; take its row out of `EXEMPT`")));
    }
    findings
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    match path.ends_with(".rs") {
        true => check_source(&Source::new(path, text)),
        false => sentences(path, text).iter().flat_map(check_sentence).collect(),
    }
}

fn check_source(source: &Source<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = of_rust(source).iter().flat_map(check_sentence).collect();
    findings.extend(check_names(source));
    findings
}

fn check_sentence(sentence: &Sentence) -> Vec<Finding> {
    let prose = without_code(&sentence.text);
    let words: Vec<&str> = words(&prose).collect();
    let mut findings = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let is_of_person = word.starts_with("who") && at > 0 && PEOPLE.contains(&words[at - 1].to_lowercase().as_str());
        if let Some((plain, instead)) = WORDS.iter().find(|(plain, _)| is_same(word, plain) && !is_of_person) {
            findings.push(Finding::new(
                &sentence.file,
                sentence.line,
                format!("`{plain}` in \"{}\"; {instead}", sentence.text),
            ));
        }
    }
    if !sentence.is_heading && starts_with_what(&prose) {
        let what = format!("\"{}\" starts with `What`; start with the actor, or with a noun", sentence.text);
        findings.push(Finding::new(&sentence.file, sentence.line, what));
    }
    findings
}

/// Whether `What …` is the subject. A question may start so.
fn starts_with_what(sentence: &str) -> bool {
    let text = sentence.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    text.starts_with("What ") && !text.contains('?')
}

/// Names of functions; tests are named by sentences.
fn check_names(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.code.iter().enumerate() {
        let Some((_, rest)) = line.split_once("fn ") else { continue };
        let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        for word in rest[..end].split('_') {
            if let Some((plain, instead)) = WORDS.iter().find(|(plain, _)| word == *plain) {
                let what = format!("`{plain}` in the name `{}`; {instead}", &rest[..end]);
                findings.push(Finding::new(source.path, index + 1, what));
            }
        }
    }
    findings
}

/// The sentence without the parts between backticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect::<Vec<_>>().join(" x ")
}

/// Words without punctuation; `who's` is `who`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// `HE` is an abbreviation, not a person.
fn is_same(word: &str, plain: &str) -> bool {
    word == plain
        || (word.len() == plain.len()
            && word.starts_with(|letter: char| letter.is_uppercase())
            && word[1..] == plain[1..]
            && word.eq_ignore_ascii_case(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check_file(path, text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn each_word_is_found_in_comments_messages_markdown_and_names() {
        for (word, _) in WORDS {
            assert_eq!(lines("a.rs", &format!("// A task, {word} waits.\n")), [1], "{word}");
            assert_eq!(lines("a.rs", &format!("a(\"there is {word} in line\");\n")), [1], "{word}");
            assert_eq!(lines("a.md", &format!("\nA task, {word} waits.\n")), [2], "{word}");
            assert_eq!(lines("a.rs", &format!("fn a_{word}_b() {{}}\n")), [1], "{word}");
            let capital = format!("{}{}", word[..1].to_uppercase(), &word[1..]);
            assert_eq!(lines("a.toml", &format!("# {capital} waits here.\n")), [1], "{word}");
            assert_eq!(lines("a.rs", &format!("// A `{word}`, and {word}ly.\nlet {word} = 1;\n")), [0; 0], "{word}");
        }
    }

    #[test]
    fn an_exempt_folder_has_no_findings_until_it_passes() {
        let count = |exempt: &[&str], word: &str| {
            let found = check_file("a/b.md", &format!("A task, {word} waits.\n"));
            check_but(exempt, std::iter::once(("a/b.md", found))).len()
        };
        let bad = WORDS[0].0;
        assert_eq!(count(&[], bad), 1);
        assert_eq!(count(&["a/"], bad), 0);
        assert_eq!(count(&["a/"], "it"), 1, "the row has to go");
        assert_eq!(count(&[], "it"), 0);
    }

    #[test]
    fn people_may_be_people() {
        assert_eq!(lines("a.md", concat!("A user wh", "o asks, and people wh", "ose disk is full.\n")), [0; 0]);
    }

    #[test]
    fn a_sentence_starts_with_its_actor() {
        assert_eq!(lines("a.rs", concat!("/// Wh", "at a worker knows.\n")), [1]);
        assert_eq!(lines("a.md", concat!("It runs. **Wh", "at is left** waits.\n")), [1]);
        assert_eq!(lines("a.md", "# What it costs\n\nWhat does it cost? Whatever it costs.\n"), [0; 0]);
    }
}
