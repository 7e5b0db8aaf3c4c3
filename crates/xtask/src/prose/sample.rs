//! `cargo xtask sentences`: a random sample of the repository's sentences, for a person to judge.

use super::{Sentence, sentences};
use crate::tidy;

/// Shorter ones, such as "Panics." or the head of a table, need no judge.
const WORDS_MIN: usize = 4;

pub(crate) const HELP: &str = "\
cargo xtask sentences [--seed N] [--count N] [PATH…]

Prints a random sample of the sentences in comments, documentation, messages, texts of --help, and Markdown, each with its
file and line. Every sentence of at least four words is drawn with the same probability, and a seed draws the same sample
again as long as the texts are the same.

  --seed N   chooses the sample; default 1
  --count N  how many sentences; default 100
  PATH       only files with this start of their path, such as crates/dapple-io; default: all of the repository
";

/// The arguments of the command.
#[derive(Debug, PartialEq)]
struct Request {
    seed: u64,
    count: usize,
    paths: Vec<String>,
}

/// Prints a sample.
pub(crate) fn run(arguments: &[&str]) -> Result<bool, String> {
    let request = parse(arguments)?;
    let wanted = |path: &str| request.paths.is_empty() || request.paths.iter().any(|start| path.starts_with(start));
    let texts = tidy::texts()?;
    let mut all: Vec<Sentence> =
        texts.iter().filter(|(path, _)| wanted(path)).flat_map(|(path, text)| sentences(path, text)).collect();
    all.retain(|sentence| sentence.text.split_whitespace().count() >= WORDS_MIN);
    let total = all.len();
    for sentence in draw(all, request.seed, request.count) {
        println!("{}:{}: {}", sentence.file, sentence.line, sentence.text);
    }
    println!("sentences: seed {}, {} of {total}", request.seed, request.count.min(total));
    Ok(true)
}

fn parse(arguments: &[&str]) -> Result<Request, String> {
    let mut request = Request { seed: 1, count: 100, paths: Vec::new() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|value| value.parse::<u64>().ok());
            value.ok_or(format!("`{argument}` takes a number"))
        };
        match *argument {
            "--seed" => request.seed = number()?,
            "--count" => request.count = usize::try_from(number()?).unwrap_or(usize::MAX),
            flag if flag.starts_with('-') => {
                return Err(format!("there is no `{flag}`; see `cargo xtask sentences --help`"));
            }
            path => request.paths.push(path.to_owned()),
        }
    }
    Ok(request)
}

/// Draws without putting back (the first steps of a Fisher-Yates shuffle), then sorts by file and
/// line.
fn draw(mut all: Vec<Sentence>, seed: u64, count: usize) -> Vec<Sentence> {
    let count = count.min(all.len());
    let mut state = seed;
    for at in 0..count {
        let left = all.len() - at;
        // The bias of the remainder is below one in 10^13 here.
        let step = (split_mix(&mut state) % left as u64) as usize;
        all.swap(at, at + step);
    }
    all.truncate(count);
    all.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    all
}

/// The generator SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_lines(count: usize) -> Vec<Sentence> {
        let sentence = |line| Sentence { file: "a.md".to_owned(), line, text: String::new(), is_heading: false };
        (0..count).map(sentence).collect()
    }

    #[test]
    fn a_seed_draws_the_same_sentences_again_and_none_twice() {
        let first = draw(of_lines(1000), 7, 100);
        assert_eq!(first, draw(of_lines(1000), 7, 100));
        assert_ne!(first, draw(of_lines(1000), 8, 100));
        assert!(first.windows(2).all(|pair| pair[0].line < pair[1].line));
        assert_eq!(draw(of_lines(3), 1, 100).len(), 3);
    }

    #[test]
    fn every_sentence_is_drawn_about_as_often() {
        let mut drawn = [0_u32; 20];
        for seed in 0..2000 {
            for sentence in draw(of_lines(20), seed, 5) {
                drawn[sentence.line] += 1;
            }
        }
        // 500 is the mean and 19 the deviation; the seeds are fixed.
        assert!(drawn.iter().all(|times| (400..600).contains(times)), "{drawn:?}");
    }

    #[test]
    fn the_command_line_is_understood_or_refused() {
        let all = Request { seed: 1, count: 100, paths: vec![] };
        assert_eq!(parse(&[]), Ok(all));
        let some = Request { seed: 3, count: 5, paths: vec!["docs/".to_owned()] };
        assert_eq!(parse(&["--seed", "3", "docs/", "--count", "5"]), Ok(some));
        assert!(parse(&["--seed"]).is_err() && parse(&["--seed", "x"]).is_err() && parse(&["--sed", "1"]).is_err());
    }
}
