//! Errors in a configuration: the place, the cause, and what to write instead.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// `FILE:LINE:COLUMN`, or another description of the place.
    place: String,
    message: String,
    /// The line with the error underlined, ready to print.
    excerpt: Option<String>,
}

/// All errors, in the order of their places.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

/// A configuration file, for errors to point into.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    path: PathBuf,
    text: String,
}

impl Problems {
    /// clap's message about all options together.
    pub(crate) fn words(error: &clap::Error) -> Problems {
        Problems(vec![Problem::words(error)])
    }
}

impl Problem {
    /// An error of a whole file.
    pub(crate) fn file(path: &Path, message: &str) -> Problem {
        Problem { place: path.display().to_string(), message: message.to_owned(), excerpt: None }
    }

    /// An error of all options together.
    fn words(error: &clap::Error) -> Problem {
        let message = error.to_string();
        let message = message.trim_end().trim_start_matches("error: ").to_owned();
        Problem { place: "options".to_owned(), message, excerpt: None }
    }

    /// An error of a variable with this value.
    pub(crate) fn variable(name: &str, value: &OsStr, message: String) -> Problem {
        Problem { place: format!("{name}={}", value.to_string_lossy().escape_debug()), message, excerpt: None }
    }
}

impl Source {
    pub(crate) fn new(path: &Path, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte, both from 1; columns count characters.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
    }

    /// An error at these bytes of the file.
    pub(crate) fn problem(&self, span: Range<usize>, message: String) -> Problem {
        let (line, column) = self.position(span.start);
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        let room = text.chars().count().saturating_sub(column - 1);
        let len = self.text.get(span).map_or(1, |part| part.chars().count()).min(room).max(1);
        let indent: String = text.chars().take(column - 1).map(|sign| if sign == '\t' { '\t' } else { ' ' }).collect();
        let gutter = " ".repeat(line.to_string().len());
        let excerpt = format!("  {line} | {text}\n  {gutter} | {indent}{}", "^".repeat(len));
        Problem { place: format!("{}:{line}:{column}", self.path.display()), message, excerpt: Some(excerpt) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        self.excerpt.as_ref().map_or(Ok(()), |excerpt| write!(f, "\n{excerpt}"))
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, problem)| match index {
            0 => write!(f, "{problem}"),
            _ => write!(f, "\ndapple: {problem}"),
        })
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Source;

    #[test]
    fn places_match_those_in_an_editor() {
        let source = Source::new(Path::new("a.toml"), "one = 1\n\ttwö = 2\n");
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(9), (2, 2));
        assert_eq!(source.position(99), (3, 1));
        let problem = source.problem(9..13, "no".to_owned()).to_string();
        assert_eq!(problem, "a.toml:2:2: no\n  2 | \ttwö = 2\n    | \t^^^");
        assert!(source.problem(18..18, "end".to_owned()).to_string().starts_with("a.toml:3:1: end"));
    }
}
