//! Documents, and their words.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A part of a file: a section of Markdown, or all of a text without headings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Document {
    pub(crate) title: String,
    /// The file, as it was named.
    pub(crate) place: String,
    pub(crate) text: String,
}

/// The words of a text, in lower case. Longer ones than [`WORD_LEN_MAX`] bytes are left out.
pub(crate) fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).filter(|word| word.len() <= WORD_LEN_MAX)
}

/// The words of a query, each once, the first [`QUERY_WORDS_MAX`] of them.
pub(crate) fn query(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in words(text) {
        if found.len() < QUERY_WORDS_MAX && !found.contains(&word) {
            found.push(word);
        }
    }
    found
}

/// Reads the documents of a file, or of all files `*.md` and `*.txt` in a folder, in the order of their names.
pub(crate) fn read(path: &Path, documents: &mut Vec<Document>) -> io::Result<()> {
    if !path.is_dir() {
        let bytes = fs::read(path)?;
        split(&path.display().to_string(), &String::from_utf8_lossy(&bytes), documents);
        return Ok(());
    }
    let entries: io::Result<Vec<fs::DirEntry>> = fs::read_dir(path)?.collect();
    let mut paths: Vec<_> = entries?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    let is_text = |path: &Path| path.extension().is_some_and(|end| end == "md" || end == "txt");
    // A link to a folder could lead back here.
    let is_folder = |path: &Path| path.is_dir() && !path.is_symlink();
    paths.iter().filter(|path| is_folder(path) || is_text(path)).try_for_each(|path| read(path, documents))
}

/// Splits a text at its headings.
fn split(place: &str, text: &str, documents: &mut Vec<Document>) {
    let document = |title: &str| Document { title: title.to_owned(), place: place.to_owned(), text: String::new() };
    let mut now = document(place);
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let heading = line.starts_with('#').then(|| line.trim_start_matches('#')).filter(|rest| rest.starts_with(' '));
        match heading.filter(|_| !in_code) {
            Some(title) => {
                let before = std::mem::replace(&mut now, document(title.trim()));
                documents.extend(Some(before).filter(|document| !document.text.trim().is_empty()));
            }
            None => {
                now.text.push_str(line);
                now.text.push('\n');
            }
        }
    }
    documents.extend(Some(now).filter(|document| !document.text.trim().is_empty()));
}

/// Some text around the first of these words, on one line.
pub(crate) fn snippet(text: &str, words: &[String]) -> String {
    let is_wanted = |word: &&str| words.iter().any(|wanted| word.to_lowercase() == *wanted);
    let mut all = text.split(|letter: char| !letter.is_alphanumeric());
    let at = all.find(is_wanted).map_or(0, |word| word.as_ptr() as usize - text.as_ptr() as usize);
    let begin = text[..at].char_indices().rev().nth(SNIPPET_LEN / 3).map_or(0, |(at, _)| at);
    let cut: String = text[begin..].chars().take(SNIPPET_LEN).collect();
    cut.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The most words that a query may have.
const QUERY_WORDS_MAX: usize = 8;
const WORD_LEN_MAX: usize = 64;
/// Letters of a snippet.
const SNIPPET_LEN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_at_its_headings() {
        let mut documents = Vec::new();
        split("a.md", "before\n# One\nfirst\n```\n# no heading\n```\n## Two\n\n#tag\n# Empty\n", &mut documents);
        let titles: Vec<(&str, &str)> =
            documents.iter().map(|document| (document.title.as_str(), document.text.trim())).collect();
        assert_eq!(titles, [("a.md", "before"), ("One", "first\n```\n# no heading\n```"), ("Two", "#tag")]);
    }

    #[test]
    fn a_query_has_each_word_once_and_not_too_many() {
        assert_eq!(query("The COLOR of the `color`, é!"), ["the", "color", "of", "é"]);
        assert_eq!(query(&"word ".repeat(100)), ["word"]);
        assert_eq!(query("a b c d e f g h i j").len(), QUERY_WORDS_MAX);
        assert_eq!(query(&"a".repeat(65)), Vec::<String>::new());
    }

    #[test]
    fn a_snippet_is_around_the_word() {
        let text = format!("{} the Färbung here {}", "é".repeat(300), "z".repeat(300));
        let found = snippet(&text, &["färbung".to_owned()]);
        assert!(found.contains("the Färbung here z") && found.chars().count() <= SNIPPET_LEN, "{found}");
        assert_eq!(snippet("nothing of it", &["other".to_owned()]), "nothing of it");
    }
}
