//! Clocks, randomness and the number of processors, for the library crates: through `dapple_sched::environment` only, so that a
//! simulation decides them.

use super::Finding;
use super::source::Source;
use std::collections::BTreeSet;

/// The crates with programs, which run on the kernel only.
const PROGRAMS: &[&str] = &["dapple-cli", "dapple-sign"];
/// The file that asks the standard library on behalf of all others.
const ENVIRONMENT: &str = "crates/dapple-sched/src/environment.rs";
/// A comment on the line, or above it, that begins so and says why the machine's own clock or keys are meant.
const MARK: &str = "// REAL:";

/// Calls that no import is needed to recognize, with the replacement.
const CALLS: &[(&str, &str)] = &[
    (concat!("System", "Time::now"), "dapple_sched::environment::system_now"),
    (concat!("clock_get", "time"), "dapple_sched::environment::now or system_now"),
    (concat!("get", "random"), "dapple_sched::environment::random"),
    (concat!("rand::", "rng"), "dapple_sched::environment::random"),
    (concat!("thread", "_rng"), "dapple_sched::environment::random"),
    (concat!("Os", "Rng"), "dapple_sched::environment::random"),
    (concat!("available_", "parallelism"), "dapple_sched::environment::parallelism"),
];

/// Types of the standard library with keys that no seed decides.
const KEYED: &[&str] = &[concat!("Random", "State"), concat!("Hash", "Map"), concat!("Hash", "Set")];

/// Checks all files.
pub(crate) fn check(sources: &[Source<'_>]) -> Vec<Finding> {
    let tests = test_files(sources);
    let checked = sources.iter().filter(|source| is_library(source) && !tests.contains(source.path));
    checked.flat_map(check_file).collect()
}

fn is_library(source: &Source<'_>) -> bool {
    let Some((name, rest)) = source.path.strip_prefix("crates/").and_then(|path| path.split_once('/')) else {
        return false;
    };
    let is_ours = name == "dapple" || name.starts_with("dapple-") && !PROGRAMS.contains(&name);
    is_ours && rest.starts_with("src/") && !source.is_test_file() && source.path != ENVIRONMENT
}

/// Paths of modules that `#[cfg(test)] mod name;` declares.
fn test_files(sources: &[Source<'_>]) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for source in sources {
        let folder = match source.path.strip_suffix(".rs") {
            Some(path) => match path.rsplit_once('/') {
                Some((folder, "mod" | "lib" | "main")) => folder,
                _ => path,
            },
            None => continue,
        };
        for lines in source.code.windows(2) {
            let name = lines[1].trim().strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
            if let Some(name) = name.filter(|_| lines[0].trim() == "#[cfg(test)]") {
                files.insert(format!("{folder}/{name}.rs"));
            }
        }
    }
    files
}

fn check_file(source: &Source<'_>) -> Vec<Finding> {
    let imports = imports(source);
    let has_import = |name: &str| imports.iter().any(|(_, text)| has_word(text, name));
    let (instant, wall) = (has_import("Instant"), has_import(concat!("System", "Time")));
    let mut findings = Vec::new();
    let mut find = |line: usize, what: &str, instead: &str| {
        if !is_marked(source, line) {
            let what = format!(
                "`{what}` is the machine's, and no simulation decides it; use `{instead}`, or say why not in a comment that begins with `{MARK}`"
            );
            findings.push(Finding::new(source.path, line + 1, what));
        }
    };
    for (line, text) in &imports {
        for name in KEYED.iter().filter(|name| has_word(text, name)) {
            find(*line, name, &format!("dapple_sched::environment::{name}"));
        }
    }
    for (line, code) in source.code.iter().enumerate().filter(|(line, _)| !source.is_test(*line)) {
        for (call, instead) in CALLS.iter().filter(|(call, _)| has_word(code, call)) {
            if !code.trim_start().starts_with("use ") {
                find(line, call, instead);
            }
        }
        if reads_instant(code, instant) {
            find(line, concat!("Instant", "::now"), "dapple_sched::environment::now");
        }
        if (instant || wall) && code.contains(concat!(".elap", "sed()")) {
            find(line, concat!("elap", "sed"), "dapple_sched::environment::now() - begin");
        }
        let is_path = |name: &&&str| {
            let path = ["std::hash::", "std::collections::", "hash_map::"];
            path.iter().any(|path| has_word(code, &format!("{path}{name}")))
        };
        for name in KEYED.iter().filter(is_path).filter(|_| !imports.iter().any(|(at, _)| *at == line)) {
            find(line, name, &format!("dapple_sched::environment::{name}"));
        }
    }
    findings
}

/// The statements `use std::…;` outside of tests, each with its first line (from 0). One with a reason allows all uses of what it names.
fn imports(source: &Source<'_>) -> Vec<(usize, String)> {
    let mut imports = Vec::new();
    for (line, code) in source.code.iter().enumerate() {
        if code.trim_start().trim_start_matches("pub ").starts_with("use std::")
            && !source.is_test(line)
            && !is_marked(source, line)
        {
            let end = source.code[line..].iter().position(|code| code.contains(';')).unwrap_or(0);
            imports.push((line, source.code[line..=line + end].join(" ")));
        }
    }
    imports
}

/// Whether the standard library's clock is read: by its whole path, or by its name where that is imported.
fn reads_instant(code: &str, is_imported: bool) -> bool {
    let call = concat!("Instant", "::now");
    code.match_indices(call).any(|(at, _)| match code[..at].ends_with("::") {
        true => code[..at].ends_with("std::time::"),
        false => is_imported && !code[..at].ends_with(is_of_name),
    })
}

fn is_marked(source: &Source<'_>, line: usize) -> bool {
    if source.lines[line].contains(MARK) {
        return true;
    }
    let comments = source.lines[..line].iter().rev().take_while(|text| text.trim_start().starts_with("//"));
    comments.into_iter().any(|text| text.contains(MARK))
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_of_name) && !text[at + word.len()..].starts_with(is_of_name))
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/dapple-io/src/a.rs";

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&[Source::new(path, text)]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn clocks_of_the_standard_library_are_found() {
        let now = concat!("Instant", "::now()");
        let wall = concat!("System", "Time::now()");
        assert_eq!(lines(PATH, &format!("use std::time::{{Duration, Instant}};\nlet a = {now};\n")), [2]);
        assert_eq!(lines(PATH, &format!("use std::{{\n    time::Instant,\n}};\nlet a = {now};\n")), [4]);
        assert_eq!(lines(PATH, &format!("let a = std::time::{now};\n")), [1]);
        assert_eq!(lines(PATH, &format!("use std::time::SystemTime;\nlet a = {wall};\n")), [2]);
        assert_eq!(lines(PATH, concat!("use std::time::Instant;\nlet a = begin.elap", "sed();\n")), [2]);
        assert_eq!(lines(PATH, concat!("use rustix::time::clock_get", "time;\nclock_get", "time(a);\n")), [2]);
        for clock in ["crate::time", "dapple_io::time"] {
            assert_eq!(
                lines(PATH, &format!("use {clock}::Instant;\nlet a = {now};\nlet b = {clock}::{now};\n")),
                [0; 0]
            );
        }
    }

    #[test]
    fn keys_that_no_seed_decides_are_found() {
        let map = concat!("Hash", "Map");
        let keys = concat!("Random", "State");
        assert_eq!(lines(PATH, &format!("use std::collections::{{BTreeMap, {map}}};\n")), [1]);
        assert_eq!(lines(PATH, &format!("use std::collections::hash_map::{keys};\n")), [1]);
        assert_eq!(lines(PATH, &format!("fn a() {{\n    std::hash::{keys}::new()\n}}\n")), [2]);
        assert_eq!(lines(PATH, &format!("use dapple_sched::environment::{{{map}, {keys}}};\n")), [0; 0]);
        assert_eq!(lines(PATH, concat!("let a = rand::", "rng();\nget", "random::fill(&mut a);\n")), [1, 2]);
    }

    #[test]
    fn the_number_of_processors_is_found() {
        let call = concat!("available_", "parallelism()");
        assert_eq!(lines(PATH, &format!("use std::thread;\nlet a = thread::{call};\n")), [2]);
        assert_eq!(lines(PATH, &format!("let a = std::thread::{call}; // REAL: threads of the kernel.\n")), [0; 0]);
        assert_eq!(lines(PATH, "let a = environment::parallelism();\n"), [0; 0]);
    }

    #[test]
    fn a_reason_allows_the_machines_own_clock() {
        let now = concat!("std::time::Instant", "::now()");
        assert_eq!(lines(PATH, &format!("// REAL: the kernel's threads are waited for.\nlet a = {now};\n")), [0; 0]);
        assert_eq!(lines(PATH, &format!("// REAL: a reason\n// of two lines.\nlet a = {now};\n")), [0; 0]);
        let of_file = "// REAL: it is a thread.\nuse std::time::Instant;\nlet a = ";
        assert_eq!(lines(PATH, &format!("{of_file}{};\n", &now["std::time::".len()..])), [0; 0]);
        assert_eq!(lines(PATH, &format!("let a = {now}; // REAL: threads.\nlet b = 1;\nlet a = {now};\n")), [3]);
    }

    #[test]
    fn tests_and_programs_may_read_the_machines_clock() {
        let text = concat!("let a = std::time::Instant", "::now();\n");
        for path in ["crates/dapple-cli/src/a.rs", "crates/dapple-io/tests/it/a.rs", "crates/bench/src/a.rs"] {
            assert_eq!(lines(path, text), [0; 0], "{path}");
        }
        assert_eq!(lines(PATH, &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")), [0; 0]);
        let declared = Source::new("crates/dapple-io/src/lib.rs", "#[cfg(test)]\nmod a;\n");
        assert!(check(&[declared, Source::new(PATH, text)]).is_empty());
    }
}
