//! Forbidden words: British spelling, unfinished work, and paths of one machine.

use super::Finding;
use super::source::Source;

/// Starts of words, with the American spelling. Split so that this file passes its own check.
const BRITISH: &[(&str, &str)] = &[
    (concat!("col", "our"), "color"),
    (concat!("behav", "iour"), "behavior"),
    (concat!("neighb", "our"), "neighbor"),
    (concat!("fav", "our"), "favor"),
    (concat!("hon", "our"), "honor"),
    (concat!("cent", "re"), "center"),
    (concat!("licen", "ce"), "license"),
    (concat!("defen", "ce"), "defense"),
    (concat!("seriali", "se"), "serialize"),
    (concat!("initiali", "se"), "initialize"),
    (concat!("synchroni", "se"), "synchronize"),
    (concat!("optimi", "se"), "optimize"),
    (concat!("recogni", "se"), "recognize"),
    (concat!("organi", "se"), "organize"),
    (concat!("normali", "se"), "normalize"),
    (concat!("paralleli", "se"), "parallelize"),
    (concat!("analy", "se"), "analyze"),
];

/// Forbidden on the main branch, with the remedy.
const LEFT_UNDONE: &[(&str, &str)] = &[
    (concat!("tod", "o!"), "write it, or leave the item out"),
    (concat!("unimple", "mented!"), "write it, or leave the item out"),
    (concat!("db", "g!"), "use `tracing`, or remove it"),
];

/// Notes to oneself, also in comments.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Folders of one machine.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/tm", "p/t-"), concat!("/ro", "ot/")];

/// The checked kinds of files.
const TEXT: &[&str] = &["rs", "md", "toml", "html", "css", "js", "sh", "yml", "yaml", "txt"];

/// Checks any text file.
pub(crate) fn check_text(path: &str, text: &str) -> Vec<Finding> {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    // Files without an extension are scripts here. The lock file belongs to cargo.
    let name = path.rsplit('/').next().unwrap_or(path);
    if name.contains('.') && !TEXT.contains(&extension) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let lower = line.to_lowercase();
        for (british, american) in BRITISH {
            // A library names the methods that are called; our own are found at their definition.
            let is_called = |at: usize| path.ends_with(".rs") && lower[..at].ends_with('.');
            if lower.match_indices(british).any(|(at, _)| starts_at(&lower, at) && !is_called(at)) {
                findings.push(Finding::new(path, index + 1, format!("`{british}` is British; write `{american}`")));
            }
        }
        for note in NOTES.iter().filter(|note| is_a_word(line, note)) {
            findings.push(Finding::new(
                path,
                index + 1,
                format!("`{note}`; do it, or open an issue and leave the note out"),
            ));
        }
        for machine in MACHINE_PATHS.iter().filter(|machine| holds_path(line, machine)) {
            let what = format!(
                "`{machine}` exists on one machine only; write a path from the repository's root, or take one as an argument"
            );
            findings.push(Finding::new(path, index + 1, what));
        }
    }
    findings
}

/// Checks the code of a Rust file.
pub(crate) fn check_code(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.code.iter().enumerate() {
        for (word, instead) in LEFT_UNDONE.iter().filter(|(word, _)| starts_a_word(line, word)) {
            findings.push(Finding::new(source.path, index + 1, format!("`{word}`; {instead}")));
        }
    }
    findings
}

fn starts_a_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| starts_at(line, at))
}

fn is_a_word(line: &str, word: &str) -> bool {
    let ends = |at: usize| !line[at..].starts_with(char::is_alphanumeric);
    line.match_indices(word).any(|(at, _)| starts_at(line, at) && ends(at + word.len()))
}

fn starts_at(line: &str, at: usize) -> bool {
    !line[..at].ends_with(char::is_alphanumeric)
}

/// Whether a path of the machine starts here: a longer path, such as one within the repository, may
/// end in the same way.
fn holds_path(line: &str, path: &str) -> bool {
    let starts =
        |before: Option<char>| before.is_none_or(|letter| !letter.is_alphanumeric() && !"._-/".contains(letter));
    line.match_indices(path).any(|(at, _)| starts(line[..at].chars().next_back()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn british_words_are_found_and_their_likes_are_not() {
        for (british, _) in BRITISH {
            assert_eq!(check_text("a.md", &format!("The {british}s.")).len(), 1, "{british}");
            assert_eq!(check_text("a.rs", &format!("fn set_{british}()")).len(), 1, "{british}");
            assert_eq!(check_text("a.rs", &format!("a.{british}();")).len(), 0, "{british} is a library's");
        }
        assert_eq!(
            check_text("a.md", "A color, a license, behavior, deserialized, an epicenter, to analyze.").len(),
            0
        );
        assert_eq!(check_text("Cargo.lock", &format!("name = \"{}\"", BRITISH[0].0)).len(), 0);
    }

    #[test]
    fn notes_and_machine_paths_are_found() {
        for note in NOTES {
            assert_eq!(check_text("a.rs", &format!("// {note}: later")).len(), 1);
            assert_eq!(check_text("a.rs", &format!("{note}S_MAX AUTO{note}")).len(), 0);
        }
        for path in MACHINE_PATHS {
            assert_eq!(check_text(".ci/run", &format!("cd {path}main")).len(), 1);
            assert_eq!(check_text("a.md", &format!("see docs{path}main")).len(), 0);
        }
    }

    #[test]
    fn what_was_left_undone_is_found_in_code_only() {
        for (word, _) in LEFT_UNDONE {
            let text = format!("fn a() {{ {word}() }}\n// {word}\nlet b = \"{word}\";\n");
            let findings = check_code(&Source::new("a/src/b.rs", &text));
            assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1], "{word}");
        }
    }
}
