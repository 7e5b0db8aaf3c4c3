//! Unsafe code only in some crates, with a reason; and the scheduler's rule for orderings.

use super::Finding;
use super::source::Source;

/// Crates that may hold unsafe code.
const UNSAFE_CRATES: &[&str] = &["dapple-sched", "dapple-io", "dapple-sync"];
/// The crate in which all handshakes are read-modify-writes on one word (ARCHITECTURE.md says why).
const NO_FENCE_CRATE: &str = "dapple-sched";
/// How many lines above an unsafe site its reason may be, with code in between, as in a `let` of
/// several lines.
const NEAR_LINES: usize = 3;

/// Checks one file.
pub(crate) fn check(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let name = source.path.strip_prefix("crates/").and_then(|path| path.split('/').next()).unwrap_or_default();
    let may = UNSAFE_CRATES.contains(&name);
    let root = source.path.ends_with("/src/lib.rs")
        || source.path.ends_with("/src/main.rs")
        || source.path.contains("/src/bin/");
    if root && !may && !source.code.iter().any(|line| line.contains("#![forbid(unsafe_code)]")) {
        findings.push(Finding::new(
            source.path,
            1,
            "no `#![forbid(unsafe_code)]`; add it below the crate's description",
        ));
    }
    for (line, code) in source.code.iter().enumerate() {
        if may && is_unsafe_site(code) && !has_reason(source, line) {
            let what = "unsafe without its reason; write `// SAFETY:` (a `# Safety` section for a function) above it, saying which invariant makes it sound";
            findings.push(Finding::new(source.path, line + 1, what));
        }
        if name == NO_FENCE_CRATE && source.path.contains("/src/") && !source.is_test(line) {
            findings.extend(ordering(source.path, line, code));
        }
    }
    findings
}

/// A block, implementation, trait or function; not a type, nor the name of a lint.
fn is_unsafe_site(code: &str) -> bool {
    code.match_indices("unsafe").any(|(at, word)| {
        let before = code[..at].chars().next_back();
        let rest = code[at + word.len()..].trim_start();
        let function = rest.strip_prefix("extern").map_or(rest, |rest| rest.trim_start()).strip_prefix("fn ");
        let named = function.is_some_and(|name| !name.trim_start().starts_with('('));
        before.is_none_or(|letter| !letter.is_alphanumeric() && letter != '_')
            && (rest.starts_with('{') || rest.starts_with("impl") || rest.starts_with("trait ") || named)
    })
}

/// Whether the reason is on the line or above it: across any comments and attributes, and a few
/// lines of code.
fn has_reason(source: &Source<'_>, line: usize) -> bool {
    let names_it = |text: &str| text.contains("SAFETY:") || text.contains("# Safety");
    if names_it(source.lines[line]) {
        return true;
    }
    let mut code_lines = 0;
    for above in (0..line).rev() {
        let text = source.lines[above].trim_start();
        if names_it(text) {
            return true;
        }
        if !text.starts_with("//") && !text.starts_with("#[") {
            code_lines += 1;
            if code_lines > NEAR_LINES || text.is_empty() {
                return false;
            }
        }
    }
    false
}

/// The one file that may have a fence, and says why.
const BARRIER: &str = "crates/dapple-sched/src/sync/barrier.rs";

fn ordering(path: &str, line: usize, code: &str) -> Option<Finding> {
    if path == BARRIER {
        return None;
    }
    let strongest = concat!("Seq", "Cst");
    let what = if code.contains(strongest) {
        format!(
            "`{strongest}` in the scheduler; make the handshake a read-modify-write on one word, with acquire and release"
        )
    } else if code.contains(concat!("fen", "ce(")) {
        "a fence in the scheduler; make the handshake a read-modify-write on one word (race detectors do not see fences)".to_owned()
    } else {
        return None;
    };
    Some(Finding::new(path, line + 1, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn crates_must_forbid_unsafe_code() {
        assert_eq!(lines("crates/dapple/src/lib.rs", "//! #![forbid(unsafe_code)]\n"), [1]);
        assert_eq!(lines("crates/dapple/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n"), [0; 0]);
        assert_eq!(lines("crates/dapple/src/other.rs", "//! A.\n"), [0; 0]);
        assert_eq!(lines("crates/dapple-sched/src/lib.rs", "//! A.\n"), [0; 0]);
    }

    #[test]
    fn unsafe_without_a_reason_is_found() {
        let path = "crates/dapple-sched/src/a.rs";
        for text in [
            "unsafe { a() }",
            "unsafe impl Send for A {}",
            "pub unsafe fn a() {}",
            "unsafe extern \"C\" fn a() {}",
            "unsafe trait A {}",
        ] {
            assert_eq!(lines(path, &format!("fn b() {{}}\n\n{text}\n")), [3], "{text}");
            assert_eq!(lines(path, &format!("// SAFETY: because.\n#[inline]\n{text}\n")), [0; 0], "{text}");
        }
        assert_eq!(lines(path, "/// A.\n///\n/// # Safety\n/// Never.\npub unsafe fn a() {}\n"), [0; 0]);
        assert_eq!(lines(path, "// SAFETY: because.\nlet a =\n    unsafe { b() };\n"), [0; 0]);
        assert_eq!(lines(path, "// SAFETY: for another.\n\nunsafe { b() };\n"), [3]);
    }

    #[test]
    fn unsafe_in_types_words_and_comments_is_no_site() {
        let path = "crates/dapple-io/src/a.rs";
        for text in ["f: unsafe fn(u8),", "#![deny(unsafe_op_in_unsafe_fn)]", "// unsafe { a() }", "\"unsafe { a() }\""]
        {
            assert_eq!(lines(path, text), [0; 0], "{text}");
        }
    }

    #[test]
    fn strong_orderings_and_fences_are_found_in_the_scheduler_only() {
        let text = concat!("a.load(Seq", "Cst);\nfen", "ce(Acquire);\n");
        assert_eq!(lines("crates/dapple-sched/src/a.rs", text), [1, 2]);
        assert_eq!(lines("crates/dapple-sched/tests/a.rs", text), [0; 0]);
        assert_eq!(lines("crates/dapple-io/src/a.rs", text), [0; 0]);
    }
}
