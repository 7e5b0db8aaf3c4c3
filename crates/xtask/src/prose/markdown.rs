//! Paragraphs, list items, headings and table cells of Markdown. Documentation comments are
//! Markdown, too.

use super::{Lines, Sentence, split};

/// The sentences of a text. Code blocks, HTML and link targets are left out.
pub(super) fn sentences(path: &str, lines: &Lines) -> Vec<Sentence> {
    let mut out = Vec::new();
    let mut paragraph = Lines::new();
    let mut fence = None;
    for (number, line) in lines {
        let text = line.trim();
        let ticks = text.chars().take_while(|letter| *letter == '`').count();
        match fence {
            Some(open) => {
                if ticks >= open {
                    fence = None;
                }
                continue;
            }
            None if ticks >= 3 => {
                flush(path, &mut paragraph, &mut out);
                fence = Some(ticks);
                continue;
            }
            None => {}
        }
        let text = text.trim_start_matches("> ");
        if text.is_empty() || text == ">" || is_markup(text) {
            flush(path, &mut paragraph, &mut out);
        } else if let Some(heading) = heading(text) {
            flush(path, &mut paragraph, &mut out);
            let found = split::sentences(path, &vec![(*number, heading.to_owned())]);
            out.extend(found.into_iter().map(|sentence| Sentence { is_heading: true, ..sentence }));
        } else if text.starts_with('|') {
            flush(path, &mut paragraph, &mut out);
            for cell in cells(text) {
                out.extend(split::sentences(path, &vec![(*number, cell)]));
            }
        } else {
            let item = item(text);
            if item.is_some() {
                flush(path, &mut paragraph, &mut out);
            }
            paragraph.push((*number, item.unwrap_or(text).to_owned()));
        }
    }
    flush(path, &mut paragraph, &mut out);
    out
}

fn flush(path: &str, paragraph: &mut Lines, out: &mut Vec<Sentence>) {
    out.extend(split::sentences(path, paragraph));
    paragraph.clear();
}

fn heading(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches('#');
    (rest.len() < text.len() && rest.starts_with(' ')).then(|| rest.trim())
}

/// Lines of HTML, link targets, and rules.
fn is_markup(text: &str) -> bool {
    let is_target = text.starts_with('[') && text.contains("]: ");
    let is_rule = text.chars().all(|letter| "-=*| :+".contains(letter));
    (text.starts_with('<') && !text.starts_with("<http")) || is_target || is_rule
}

/// The text of a list item.
fn item(text: &str) -> Option<&str> {
    if let Some(rest) = text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")) {
        return Some(rest);
    }
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    (digits > 0).then(|| text[digits..].strip_prefix(". ")).flatten()
}

/// The cells of a table row. A bar inside backticks or after a backslash separates nothing.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let (mut is_code, mut is_escaped) = (false, false);
    for letter in row.chars() {
        match letter {
            '|' if !is_code && !is_escaped => cells.push(String::new()),
            _ => {
                is_code ^= letter == '`';
                cells.last_mut().expect("there is at least one cell").push(letter);
            }
        }
        is_escaped = letter == '\\';
    }
    cells.into_iter().map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::numbered;
    use super::*;

    #[test]
    fn paragraphs_items_and_cells_are_apart_and_code_is_left_out() {
        let text = "# The head\nOne line\nand the next. Then more.\n\n```sh\n# not this one\n```\n- a first item\n- a second\n  \
                    goes on\n\n| a cell | `a|b` here |\n|---|---|\n[a]: http://example\n<p>\n";
        let found = sentences("a.md", &numbered(text));
        let found: Vec<(usize, &str)> = found.iter().map(|sentence| (sentence.line, sentence.text.as_str())).collect();
        let expected = [
            (1, "The head"),
            (2, "One line and the next."),
            (3, "Then more."),
            (8, "a first item"),
            (9, "a second goes on"),
            (12, "a cell"),
            (12, "`a|b` here"),
        ];
        assert_eq!(found, expected);
    }
}
