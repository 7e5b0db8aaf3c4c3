//! Rust source with comments and literals separated, so that a word in a string is not taken for
//! code.

use std::ops::Range;

/// One Rust file.
pub(crate) struct Source<'a> {
    /// Path from the root.
    pub(crate) path: &'a str,
    /// The original lines.
    pub(crate) lines: Vec<&'a str>,
    /// The lines with comments and the contents of literals blanked.
    pub(crate) code: Vec<String>,
    /// Lines (from 0) inside `#[cfg(test)] mod … { }`.
    tests: Vec<Range<usize>>,
}

/// One comment (of one line, or a block) or one literal, with its marks.
pub(crate) struct Span {
    /// The line where it begins, from 1.
    pub(crate) line: usize,
    /// Letters before it on that line.
    pub(crate) column: usize,
    pub(crate) text: String,
}

impl<'a> Source<'a> {
    /// Analyzes a file.
    pub(crate) fn new(path: &'a str, text: &'a str) -> Source<'a> {
        let code: Vec<String> = blank(text).lines().map(str::to_owned).collect();
        let tests = test_modules(&code);
        Source { path, lines: text.lines().collect(), code, tests }
    }

    /// Its comments and literals, in order.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let letters: Vec<char> = self.lines.join("\n").chars().collect();
        let mut spans = Vec::new();
        let (mut at, mut line, mut line_start) = (0, 1, 0);
        while at < letters.len() {
            let end = span_end(&letters, at).unwrap_or(at + 1);
            if end > at + 1 {
                spans.push(Span { line, column: at - line_start, text: letters[at..end].iter().collect() });
            }
            for (offset, _) in letters[at..end].iter().enumerate().filter(|(_, letter)| **letter == '\n') {
                line += 1;
                line_start = at + offset + 1;
            }
            at = end;
        }
        spans
    }

    /// Whether the file contains only tests.
    pub(crate) fn is_test_file(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Whether a line (from 0) belongs to tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.is_test_file() || self.tests.iter().any(|range| range.contains(&line))
    }

    /// Lines that are not tests.
    pub(crate) fn line_count_apart_from_tests(&self) -> usize {
        (0..self.lines.len()).filter(|line| !self.is_test(*line)).count()
    }
}

/// The line that closes the first brace opened at or after a line, and whether a `;` came before
/// any brace.
pub(crate) fn block_end(code: &[String], start: usize, column: usize) -> Option<usize> {
    let mut depth = 0_i32;
    // Parentheses and brackets: a `;` in `[u8; 4]` or a brace in a default value does not end a
    // signature.
    let mut nested = 0_i32;
    for (offset, line) in code[start..].iter().enumerate() {
        let skipped = if offset == 0 { column } else { 0 };
        for letter in line.chars().skip(skipped) {
            match letter {
                '(' | '[' => nested += 1,
                ')' | ']' => nested -= 1,
                ';' if depth == 0 && nested == 0 => return None,
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth == 0 && nested == 0 {
                        return Some(start + offset);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

fn test_modules(code: &[String]) -> Vec<Range<usize>> {
    let starts =
        (0..code.len()).filter(|line| code[*line].trim_start().starts_with("#[cfg(") && code[*line].contains("test"));
    let is_module = |line: &usize| {
        let following = code[*line..].iter().take(4);
        following.map(|text| text.trim_start()).any(|text| text.starts_with("mod ") || text.contains(" mod "))
    };
    let whole = |line: usize| block_end(code, line, code[line].len()).map(|end| line..end + 1);
    starts.filter(is_module).filter_map(whole).collect()
}

/// Replaces comments and the contents of string and character literals by spaces; lines keep their
/// numbers.
fn blank(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let end = span_end(&letters, at);
        match end {
            Some(end) => {
                out.extend(letters[at..end].iter().map(|letter| if *letter == '\n' { '\n' } else { ' ' }));
                at = end;
            }
            None => {
                out.push(letters[at]);
                at += 1;
            }
        }
    }
    out
}

/// The end of the comment or literal that starts here, if one does.
fn span_end(letters: &[char], at: usize) -> Option<usize> {
    let next = letters.get(at + 1).copied();
    match letters[at] {
        '/' if next == Some('/') => Some(find(letters, at, |letter| letter == '\n')),
        '/' if next == Some('*') => Some(comment_end(letters, at)),
        '"' => Some(string_end(letters, at)),
        'r' if !follows_name(letters, at) => raw_end(letters, at),
        '\'' => char_end(letters, at),
        _ => None,
    }
}

fn find(letters: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    (from..letters.len()).find(|at| wanted(letters[*at])).unwrap_or(letters.len())
}

/// Block comments nest.
fn comment_end(letters: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < letters.len() {
        let pair = (letters[at], letters.get(at + 1).copied());
        at += match pair {
            ('/', Some('*')) => {
                depth += 1;
                2
            }
            ('*', Some('/')) => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        if depth == 0 {
            break;
        }
    }
    at.min(letters.len())
}

fn string_end(letters: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < letters.len() && letters[at] != '"' {
        at += if letters[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(letters.len())
}

/// Whether the letter before belongs to the same name: the `r` of `for` starts no literal, but
/// those of `br"…"` and `cr"…"` do.
fn follows_name(letters: &[char], at: usize) -> bool {
    let is_name = |at: usize| letters[at].is_alphanumeric() || letters[at] == '_';
    match at {
        0 => false,
        1 => is_name(0) && !matches!(letters[0], 'b' | 'c'),
        _ => is_name(at - 1) && (!matches!(letters[at - 1], 'b' | 'c') || is_name(at - 2)),
    }
}

fn raw_end(letters: &[char], start: usize) -> Option<usize> {
    let quote = find(letters, start + 1, |letter| letter != '#');
    if letters.get(quote) != Some(&'"') {
        return None;
    }
    let hashes = quote - start - 1;
    let closes = |at: &usize| {
        letters[*at] == '"' && letters[at + 1..].iter().take(hashes).filter(|letter| **letter == '#').count() == hashes
    };
    Some((quote + 1..letters.len()).find(closes).map_or(letters.len(), |at| at + 1 + hashes))
}

/// A character literal, but not a lifetime.
fn char_end(letters: &[char], start: usize) -> Option<usize> {
    match (letters.get(start + 1), letters.get(start + 2)) {
        (Some('\\'), _) => Some((find(letters, start + 3, |letter| letter == '\'') + 1).min(letters.len())),
        (Some(_), Some('\'')) => Some(start + 3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_is_not() {
        for (text, code) in [
            ("a // {\nb", "a b"),
            ("a /* { /* } */ { */ b", "a b"),
            ("f(\"{ \\\" {\") + 1", "f( ) + 1"),
            ("r#\"{\"{\"# {", "{"),
            ("br\"{\" {", "b {"),
            ("'{' 'a '\\'' '\\u{7d}' {", "'a {"),
            ("for\"{\"", "for"),
        ] {
            let blanked = blank(text);
            assert_eq!(blanked.split_whitespace().collect::<Vec<_>>().join(" "), code, "{text}");
            assert_eq!(blanked.chars().count(), text.chars().count(), "{text}");
            assert_eq!(blanked.lines().count(), text.lines().count(), "{text}");
        }
    }

    #[test]
    fn spans_say_where_they_begin() {
        let text = "a(\"b\n c\"); // d\n  // e\n";
        let spans = Source::new("a.rs", text).spans();
        let spans: Vec<_> = spans.iter().map(|span| (span.line, span.column, span.text.as_str())).collect();
        assert_eq!(spans, [(1, 2, "\"b\n c\""), (2, 6, "// d"), (3, 2, "// e")]);
    }

    #[test]
    fn test_modules_are_found_to_their_end() {
        let source = Source::new("a/src/b.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n");
        assert_eq!((0..6).map(|line| source.is_test(line)).collect::<Vec<_>>(), [false, true, true, true, true, false]);
        assert_eq!(source.line_count_apart_from_tests(), 2);
        assert!(Source::new("a/tests/it/b.rs", "").is_test_file());
        assert!(Source::new("a/src/b/tests.rs", "").is_test_file());
        assert!(!Source::new("a/src/latests.rs", "").is_test_file());
    }

    #[test]
    fn a_module_kept_in_another_file_is_no_block() {
        let source = Source::new("a/src/b.rs", "#[cfg(test)]\nmod tests;\nfn c() {\n}\n");
        assert!(!source.is_test(2));
    }
}
