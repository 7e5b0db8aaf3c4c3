//! Comments and messages of Rust source. Documentation comments of a command line's arguments are
//! its `--help`.

use super::{Lines, Sentence, markdown, split};
use crate::tidy::{Source, Span};

/// A literal with fewer words is a name, a key or test data.
const MESSAGE_WORDS_MIN: usize = 4;

/// The sentences of a file's comments and string literals.
pub(super) fn sentences(path: &str, source: &Source<'_>) -> Vec<Sentence> {
    let mut out = Vec::new();
    let mut comment = Comment::default();
    for span in source.spans() {
        if let Some((marker, text)) = line_comment(&span.text) {
            if !comment.goes_on(&span, marker) {
                comment.finish(path, &mut out);
            }
            comment.add(&span, marker, text);
        } else if span.text.starts_with("/*") {
            let lines = span.text.trim_start_matches(['/', '*', '!']).trim_end_matches(['/', '*']).lines();
            let clean = |line: &str| line.trim().trim_start_matches("* ").to_owned();
            let lines: Lines = lines.enumerate().map(|(index, line)| (span.line + index, clean(line))).collect();
            out.extend(markdown::sentences(path, &lines));
        } else {
            for line in message(&span) {
                out.extend(split::sentences(path, &vec![line]));
            }
        }
    }
    comment.finish(path, &mut out);
    out
}

/// Line comments that follow each other.
#[derive(Default)]
struct Comment {
    marker: &'static str,
    column: usize,
    lines: Lines,
}

impl Comment {
    /// Whether a comment belongs to the same paragraph: the same marker in the same column of the
    /// next line.
    fn goes_on(&self, span: &Span, marker: &str) -> bool {
        let follows = self.lines.last().is_some_and(|(line, _)| line + 1 == span.line);
        follows && self.marker == marker && self.column == span.column
    }

    fn add(&mut self, span: &Span, marker: &'static str, text: &str) {
        self.marker = marker;
        self.column = span.column;
        self.lines.push((span.line, text.to_owned()));
    }

    fn finish(&mut self, path: &str, out: &mut Vec<Sentence>) {
        out.extend(markdown::sentences(path, &self.lines));
        self.lines.clear();
    }
}

fn line_comment(text: &str) -> Option<(&'static str, &str)> {
    ["///", "//!", "//"].into_iter().find_map(|marker| Some((marker, text.strip_prefix(marker)?)))
}

/// The lines of a literal that read as prose, with their numbers. An escaped line break joins
/// lines.
fn message(span: &Span) -> Lines {
    let text = span.text.trim_start_matches(['r', '#']).trim_end_matches('#').trim_matches('"');
    let mut lines = vec![(span.line, String::new())];
    let mut number = span.line;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = if letter == '\\' { letters.next() } else { None };
        match (letter, next) {
            ('\\', Some('\n')) => {
                number += 1;
                while letters.peek().is_some_and(|letter| letter.is_whitespace()) {
                    number += usize::from(letters.next() == Some('\n'));
                }
            }
            ('\\', Some('n')) => lines.push((number, String::new())),
            ('\n', _) => {
                number += 1;
                lines.push((number, String::new()));
            }
            _ => lines.last_mut().expect("there is at least one line").1.push(next.unwrap_or(letter)),
        }
    }
    lines.retain(|(_, line)| is_prose(line));
    lines
}

/// Whether a literal is a text for a person: some words, and hardly anything but letters.
fn is_prose(line: &str) -> bool {
    let words = line.split_whitespace().filter(|word| word.len() > 1 && word.chars().all(is_of_word)).count();
    let others = line.chars().filter(|letter| !is_of_word(*letter) && *letter != ' ').count();
    words >= MESSAGE_WORDS_MIN && others * 10 <= line.chars().count()
}

fn is_of_word(letter: char) -> bool {
    letter.is_alphabetic() || ",.'-;:`?!".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let source = Source::new("a.rs", text);
        sentences("a.rs", &source).into_iter().map(|sentence| (sentence.line, sentence.text)).collect()
    }

    #[test]
    fn comments_of_one_kind_are_one_paragraph() {
        let text = "//! A module\n//! of two lines.\n/// A type.\n/* A block\n * comment. */\nlet a = 1; // A color.\n// Another.\n";
        let expected = [
            (1, "A module of two lines.".to_owned()),
            (3, "A type.".to_owned()),
            (4, "A block comment.".to_owned()),
            (6, "A color.".to_owned()),
            (7, "Another.".to_owned()),
        ];
        let mut found = found(text);
        found.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn literals_that_read_as_prose_are_messages() {
        let text = "a(\"the queue is \\\n   not full\");\nb(\"GET / HTTP/1.1\");\nc(\"one: {a} {b} {c} {d}\");\nd(\"first line has words\\n\
                    second line has words\");\n";
        let expected = [
            (1, "the queue is not full".to_owned()),
            (5, "first line has words".to_owned()),
            (5, "second line has words".to_owned()),
        ];
        assert_eq!(found(text), expected);
    }
}
