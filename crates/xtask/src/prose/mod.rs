//! The sentences of the repository: comments, documentation, messages, texts of `--help`, and
//! Markdown.
//!
//! Two commands read them: `cargo xtask tidy` checks each one, and `cargo xtask sentences` prints a
//! random sample for a person to judge.

mod hash;
mod markdown;
mod rust;
pub(crate) mod sample;
mod split;

use crate::tidy::Source;

/// One sentence, heading or table cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sentence {
    /// Path from the root.
    pub(crate) file: String,
    /// The line of its first word, from 1.
    pub(crate) line: usize,
    /// Its words, with one space between them.
    pub(crate) text: String,
    /// Whether it is a heading, which may be a fragment.
    pub(crate) is_heading: bool,
}

/// Lines of running text, each with its number (from 1), without comment markers.
type Lines = Vec<(usize, String)>;

/// The sentences of one file, in order of lines. A kind of file that holds no prose has none.
pub(crate) fn sentences(path: &str, text: &str) -> Vec<Sentence> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let mut found = match extension {
        "rs" => return of_rust(&Source::new(path, text)),
        "md" => markdown::sentences(path, &numbered(text)),
        "toml" | "sh" | "yml" | "yaml" => hash::sentences(path, text),
        "txt" if name == "mutations.txt" => hash::sentences(path, text),
        _ => Vec::new(),
    };
    found.sort_by_key(|sentence| sentence.line);
    found
}

/// The sentences of a Rust file that was taken apart already.
pub(crate) fn of_rust(source: &Source<'_>) -> Vec<Sentence> {
    let mut found = rust::sentences(source.path, source);
    found.sort_by_key(|sentence| sentence.line);
    found
}

fn numbered(text: &str) -> Lines {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_file_gives_its_prose_and_nothing_else() {
        for (path, text, expected) in [
            ("a.rs", "fn a() {} // It runs once.\n", vec!["It runs once."]),
            ("a.md", "# A head\n\nIt runs once.\n", vec!["A head", "It runs once."]),
            ("a.toml", "a = 1 # not this\n# It runs once.\n", vec!["It runs once."]),
            ("b/mutations.txt", "# It runs once.\nfile x\n", vec!["It runs once."]),
            ("b/corpus.txt", "# It runs once.\n", vec![]),
            ("a.svg", "It runs once.\n", vec![]),
        ] {
            let found: Vec<String> = sentences(path, text).into_iter().map(|sentence| sentence.text).collect();
            assert_eq!(found, expected, "{path}");
        }
    }
}
