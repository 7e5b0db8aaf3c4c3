//! Splits a paragraph into sentences.

use super::{Lines, Sentence};

/// Words with a period that ends no sentence.
const ABBREVIATIONS: &[&str] = &["e.g.", "i.e.", "vs.", "cf.", "etc.", "Sec.", "Fig."];

/// The sentences of one paragraph, each with the line of its first word.
pub(super) fn sentences(path: &str, paragraph: &Lines) -> Vec<Sentence> {
    let words: Vec<(usize, &str)> =
        paragraph.iter().flat_map(|(line, text)| text.split_whitespace().map(move |word| (*line, word))).collect();
    let mut out = Vec::new();
    let mut start = 0;
    for at in 0..words.len() {
        let is_end = match words.get(at + 1) {
            Some((_, next)) => ends_sentence(words[at].1) && begins_sentence(next),
            None => true,
        };
        if is_end {
            let text = words[start..=at].iter().map(|(_, word)| *word).collect::<Vec<_>>().join(" ");
            out.push(Sentence { file: path.to_owned(), line: words[start].0, text, is_heading: false });
            start = at + 1;
        }
    }
    out
}

fn ends_sentence(word: &str) -> bool {
    let bare = word.trim_start_matches('(');
    word.trim_end_matches(['"', ')', '*', '_', '`']).ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&bare)
}

fn begins_sentence(word: &str) -> bool {
    let first = word.trim_start_matches(['(', '"', '*', '_', '[']).chars().next();
    first.is_some_and(|letter| letter.is_uppercase() || letter.is_numeric() || letter == '`')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_the_next_one_begins() {
        let lines = vec![
            (3, "A task (e.g. This one) ends.".to_owned()),
            (4, "`Color` is next! Is it? (It is.) See".to_owned()),
            (5, "section 2.1 of the text".to_owned()),
        ];
        let found = sentences("a.md", &lines);
        let found: Vec<(usize, &str)> = found.iter().map(|sentence| (sentence.line, sentence.text.as_str())).collect();
        let expected = [
            (3, "A task (e.g. This one) ends."),
            (4, "`Color` is next!"),
            (4, "Is it?"),
            (4, "(It is.)"),
            (4, "See section 2.1 of the text"),
        ];
        assert_eq!(found, expected);
    }
}
