//! Every public future documents whether it may be dropped before it resolves, and what is lost
//! then.
//!
//! A function counts if it is `async`, if its result is an `impl Future`, or if that is a public
//! type of the same crate which is a future. So do the functions of public traits.

use super::Finding;
use super::source::{Source, block_end};
use std::collections::HashSet;

/// The crates with public futures.
const CRATES: &[&str] = &["dapple", "dapple-flow", "dapple-io", "dapple-sched", "dapple-stm", "dapple-sync"];
/// One of these must be in the documentation, in any case of letters.
const WORDS: &[&str] = &["cancel safe", "cancel-safe"];

/// Checks all files at once, as a future may be made in one and defined in another.
pub(crate) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in CRATES {
        let folder = format!("crates/{name}/src/");
        let own: Vec<&Source<'_>> = sources.iter().filter(|source| source.path.starts_with(&folder)).collect();
        let futures: HashSet<String> = own.iter().flat_map(|source| futures_in(source)).collect();
        for source in own {
            findings.extend(check_file(source, &futures));
        }
    }
    findings
}

/// Names of types that implement `Future` here.
fn futures_in(source: &Source<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for line in 0..source.code.len() {
        let Some((before, rest)) = source.code[line].split_once("Future for ") else { continue };
        let is_whole_word = before.ends_with([' ', ':']);
        if is_whole_word && before.trim_start().starts_with("impl") && !source.is_test(line) {
            names.push(last_name(rest).to_owned());
        }
    }
    names
}

fn check_file(source: &Source<'_>, futures: &HashSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let traits = public_traits(source);
    for line in (0..source.code.len()).filter(|line| !source.is_test(*line)) {
        let is_in_trait = traits.iter().any(|range| range.contains(&line));
        let Some(signature) = signature(source, line, is_in_trait) else { continue };
        if is_future(&signature, futures) && !says_it(source, line) {
            let what = "the documentation of a public future does not say whether it is cancel safe; add a section \
                        `# Cancel safety`: what is lost when it is dropped before it resolves";
            findings.push(Finding::new(source.path, line + 1, what));
        }
    }
    findings
}

/// Lines of `pub trait … { }`.
fn public_traits(source: &Source<'_>) -> Vec<std::ops::Range<usize>> {
    let begins = |line: &usize| source.code[*line].trim_start().starts_with("pub trait ");
    let whole = |line: usize| block_end(&source.code, line, 0).map(|end| line..end);
    (0..source.code.len()).filter(begins).filter_map(whole).collect()
}

/// The signature of the public function that begins on this line, in one line.
fn signature(source: &Source<'_>, line: usize, is_in_trait: bool) -> Option<String> {
    let first = source.code[line].trim_start();
    let rest = match first.strip_prefix("pub ") {
        Some(rest) => rest,
        None if is_in_trait => first,
        None => return None,
    };
    if !(rest.starts_with("fn ") || rest.starts_with("async fn ") || rest.starts_with("const fn ")) {
        return None;
    }
    let mut whole = String::new();
    for code in &source.code[line..] {
        let end = code.find(" {").or_else(|| code.trim_end().ends_with(';').then_some(code.len()));
        whole.push_str(code[..end.unwrap_or(code.len())].trim());
        whole.push(' ');
        if end.is_some() {
            break;
        }
    }
    Some(whole)
}

fn is_future(signature: &str, futures: &HashSet<String>) -> bool {
    let signature = signature.split(" where ").next().unwrap_or_default();
    let result = result_of(signature).unwrap_or_default().trim();
    let is_impl = result.starts_with("impl ") && result.contains("Future<");
    signature.contains("async fn ") || is_impl || futures.contains(last_name(result))
}

/// The result type after the function's own arrow: the last one outside of parentheses.
fn result_of(signature: &str) -> Option<&str> {
    let mut depth = 0_i32;
    let mut arrow = None;
    for (at, letter) in signature.char_indices() {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 && signature[at..].starts_with("->") {
            arrow = Some(at + 2);
        }
    }
    arrow.map(|at| &signature[at..])
}

/// `Sleep` of `time::Sleep`, and of `Sleep<'_> `.
fn last_name(path: &str) -> &str {
    let path = path.trim();
    let end = path.find(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'));
    let path = &path[..end.unwrap_or(path.len())];
    path.rsplit("::").next().unwrap_or(path)
}

/// Whether the documentation above a line has the words. Attributes may come between.
fn says_it(source: &Source<'_>, line: usize) -> bool {
    let above = source.lines[..line].iter().rev();
    let belongs = |text: &&&str| {
        let text = text.trim();
        text.starts_with("///") || !text.is_empty() && !text.ends_with(['{', '}', ';'])
    };
    let text: Vec<String> = above.take_while(belongs).map(|text| text.to_lowercase()).collect();
    // From top to bottom, so that words on two lines are found.
    let whole: String =
        text.iter().rev().map(|text| text.trim().trim_start_matches('/').trim().to_owned() + " ").collect();
    WORDS.iter().any(|words| whole.contains(words)) || whole.contains("cancel safety")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let source = Source::new("crates/dapple-io/src/new.rs", text);
        check(&[source]).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn futures_that_do_not_say_it_are_found() {
        let text = "/// Waits.\npub async fn wait() {}\n\n/// Waits.\npub fn wait_too(\n    a: u8,\n) -> impl Future<Output = ()> {\n}\n\n\
                    /// See wait.\npub struct Wait;\n\nimpl std::future::Future for Wait {\n}\n\n/// Waits.\npub fn third() -> Wait {\n}\n\n\
                    pub trait Waiting {\n    /// Waits.\n    async fn wait(&self);\n    fn no(&self);\n}\n";
        assert_eq!(lines(text), [2, 5, 17, 22]);
    }

    #[test]
    fn those_that_say_it_and_those_that_are_none_are_not() {
        let text = "/// Waits. Cancel safe.\n#[inline]\npub async fn wait() {}\n\n/// Waits.\n///\n/// # Cancel safety\n///\n/// None.\n\
                    pub fn too() -> impl Future<Output = ()> {\n}\n\n/// Waits. It is not cancel\n/// safe.\npub async fn split() {}\n\n\
                    fn private() -> impl Future {}\npub(crate) async fn inner() {}\n/// A callback.\npub fn f(g: impl Fn() -> Wait) -> u8 {}\n\
                    #[cfg(test)]\nmod tests {\n    pub async fn test() {}\n}\n";
        assert_eq!(lines(text), [0_usize; 0]);
    }

    #[test]
    fn the_result_is_found_behind_the_arguments() {
        let futures = HashSet::from(["Sleep".to_owned()]);
        assert!(is_future("pub fn a(f: impl Fn() -> u8) -> time::Sleep ", &futures));
        assert!(!is_future("pub fn a(f: impl Fn() -> Sleep) -> u8 ", &futures));
        assert!(is_future("pub fn a<F: Fn()>(f: F) -> impl Future<Output = F> + Send where F: Send ", &futures));
    }
}
