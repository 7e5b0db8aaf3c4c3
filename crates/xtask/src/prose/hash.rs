//! Comments that begin with `#`, in configuration, scripts and the lists of mutants.

use super::{Lines, Sentence, markdown};

/// The sentences of all lines that are nothing but a comment. Lines that follow each other are one
/// paragraph.
pub(super) fn sentences(path: &str, text: &str) -> Vec<Sentence> {
    let lines: Lines = text.lines().enumerate().map(|(index, line)| (index + 1, comment(line))).collect();
    markdown::sentences(path, &lines)
}

/// The text of a comment; empty, which ends a paragraph, for any other line.
fn comment(line: &str) -> String {
    let is_interpreter = line.starts_with("#!");
    let text = line.trim_start().strip_prefix('#').filter(|_| !is_interpreter).unwrap_or("");
    text.trim_start_matches('#').trim().to_owned()
}
