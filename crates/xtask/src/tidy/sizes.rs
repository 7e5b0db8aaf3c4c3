//! Files of at most 800 lines and functions of at most 70, without tests. Some programs demonstrate
//! brevity, and may not grow.

use super::Finding;
use super::source::{Source, block_end};
use std::collections::BTreeMap;

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;

/// Programs with the size that the PLDI 2007 paper gives for its own: lines of code, without
/// comments and blank lines.
const CODE_LINES_MAX: [(&str, usize); 2] =
    [("examples/small_web_server.rs", 370), ("examples/shared/scheduler.rs", 220)];

/// Lines of code of one service, without its tests: services demonstrate brevity, too.
const SERVICE_LINES_MAX: usize = 600;

/// Texts that lead to the others, and stay short.
const TEXT_LINES_MAX: [(&str, usize); 3] = [("ARCHITECTURE.md", 400), ("CHANGELOG.md", 80), ("README.md", 90)];

/// Checks the length of the texts at the root.
pub(crate) fn check_texts(texts: &[(String, String)]) -> Vec<Finding> {
    let limited = TEXT_LINES_MAX.iter().filter_map(|(path, max)| {
        let lines = texts.iter().find(|(other, _)| other == path)?.1.lines().count();
        let what = format!("{lines} lines, {max} at most; keep what a new reader needs, and move the rest into docs/");
        (lines > *max).then(|| Finding::new(path, max + 1, what))
    });
    limited.collect()
}

/// Checks the length of each service, and that it has all of its lines itself.
pub(crate) fn check_services(sources: &[Source<'_>]) -> Vec<Finding> {
    let of_services = sources.iter().filter(|source| source.path.starts_with("services/"));
    let borrowed = of_services.flat_map(|source| {
        let lines = source.code.iter().enumerate().filter(|(_, text)| text.trim_start().starts_with("#[path"));
        let what = "another service's file counts in neither; make a library of what both need".to_owned();
        lines.map(move |(line, _)| Finding::new(source.path, line + 1, what.clone()))
    });
    let mut findings: Vec<Finding> = borrowed.collect();
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources {
        let Some((name, rest)) = source.path.strip_prefix("services/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        if rest.starts_with("src/") {
            let code = source.code.iter().enumerate();
            let code = code.filter(|(line, text)| !text.trim().is_empty() && !source.is_test(*line));
            *lines.entry(name).or_default() += code.count();
        }
    }
    let long = lines.into_iter().filter(|(_, lines)| *lines > SERVICE_LINES_MAX);
    findings.extend(long.map(|(name, lines)| {
        let what = format!(
            "the service has {lines} lines of code without tests, {SERVICE_LINES_MAX} at most; make it simpler"
        );
        Finding::new(&format!("services/{name}/Cargo.toml"), 1, what)
    }));
    findings
}

/// Checks a file's length and that of its functions.
pub(crate) fn check(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = source.line_count_apart_from_tests();
    if lines > FILE_LINES_MAX {
        let what = format!(
            "{lines} lines without tests, {FILE_LINES_MAX} at most; move one of its concepts to a file of its own"
        );
        findings.push(Finding::new(source.path, 1, what));
    }
    let limit = CODE_LINES_MAX.iter().find(|(path, _)| *path == source.path);
    let code_lines = source.code.iter().filter(|line| !line.trim().is_empty()).count();
    if let Some((_, max)) = limit.filter(|(_, max)| code_lines > *max) {
        let what = format!("{code_lines} lines of code, {max} at most, as in the paper; make something simpler");
        findings.push(Finding::new(source.path, 1, what));
    }
    for (line, text) in source.code.iter().enumerate() {
        let Some((name, column)) = function(text) else {
            continue;
        };
        let Some(end) = block_end(&source.code, line, column) else {
            continue;
        };
        let lines = end - line + 1;
        if lines > FUNCTION_LINES_MAX && !source.is_test(line) {
            let what =
                format!("function `{name}` has {lines} lines, {FUNCTION_LINES_MAX} at most; give its parts names");
            findings.push(Finding::new(source.path, line + 1, what));
        }
    }
    findings
}

/// The name of the function defined on this line, and the column after it. `fn(…)` without a name
/// is a type.
fn function(code: &str) -> Option<(&str, usize)> {
    let start = code.match_indices("fn ").map(|(at, _)| at).find(|at| {
        let before = code[..*at].chars().next_back();
        before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_')
    })? + 3;
    let rest = &code[start..];
    let length = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
    (length > 0).then(|| (&rest[..length], code[..start + length].chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(lines: usize) -> String {
        format!("fn long(a: [u8; 2]) {{\n{}}}\n", "    // {\n".repeat(lines - 2))
    }

    #[test]
    fn long_functions_are_found() {
        let text = function_of(71);
        let findings = check(&Source::new("a/src/b.rs", &text));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 1);
        assert!(findings[0].what.starts_with("function `long` has 71 lines"));
        assert_eq!(check(&Source::new("a/src/b.rs", &function_of(70))), []);
        assert_eq!(check(&Source::new("a/tests/b.rs", &text)), []);
    }

    #[test]
    fn long_files_are_found_tests_apart() {
        let text = "// line\n".repeat(801);
        assert_eq!(check(&Source::new("a/src/b.rs", &text)).len(), 1);
        let half = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "// line\n".repeat(500), "// test\n".repeat(500));
        assert_eq!(check(&Source::new("a/src/b.rs", &half)), []);
    }

    #[test]
    fn programs_that_are_to_stay_small_are_found() {
        let (path, max) = CODE_LINES_MAX[0];
        let text = "// comment\n".repeat(100) + &"let a = 0;\n\n".repeat(max - 25);
        assert_eq!(check(&Source::new(path, &text)), []);
        let findings = check(&Source::new(path, &"let a = 0;\n".repeat(max + 1)));
        assert!(findings.len() == 1 && findings[0].what.starts_with("371 lines of code, 370 at most"), "{findings:?}");
    }

    #[test]
    fn long_services_are_found_over_all_their_files() {
        let (half, tests) = ("let a = 0;\n\n// line\n".repeat(300), "#[cfg(test)]\nmod tests {\n    let a = 0;\n}\n");
        let check = |more: &str| {
            let paths = ["services/a/src/main.rs", "services/b/src/main.rs", "services/a/tests/it/a.rs"];
            let mut sources = Vec::from(paths.map(|path| Source::new(path, more)));
            sources.extend(["services/a/src/b.rs", "services/a/src/c.rs"].map(|path| Source::new(path, &half)));
            check_services(&sources)
        };
        assert_eq!(check(tests), []);
        let findings = check("let a = 0;\n");
        assert!(findings.len() == 1 && findings[0].what.starts_with("the service has 601 lines"), "{findings:?}");
        assert_eq!(findings[0].file, "services/a/Cargo.toml");
        let borrowing = Source::new("services/a/src/main.rs", "#[path = \"../../b/src/b.rs\"]\nmod b;\n");
        assert_eq!(check_services(&[borrowing]).len(), 1);
    }

    #[test]
    fn functions_are_told_from_types_and_names() {
        assert_eq!(function("    pub fn a<T>() {"), Some(("a", 12)));
        assert_eq!(function("let f: fn (u8) = g;"), None);
        assert_eq!(function("often fnord"), None);
    }

    #[test]
    fn long_texts_at_the_root_are_found() {
        let texts = |lines: usize| {
            [("CHANGELOG.md".to_owned(), "line\n".repeat(lines)), ("docs/a.md".to_owned(), "line\n".repeat(500))]
        };
        assert_eq!(check_texts(&texts(80)), []);
        let findings = check_texts(&texts(81));
        assert!(findings.len() == 1 && findings[0].what.starts_with("81 lines, 80 at most"), "{findings:?}");
    }
}
