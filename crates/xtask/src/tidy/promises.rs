//! Every `unsafe impl` of `Send` or `Sync` is in the table of `docs/safety.md`, and each of its
//! lines is current.

use super::Finding;
use super::source::Source;

/// The page, from the root.
pub(crate) const PAGE: &str = "docs/safety.md";

/// Checks all files at once, against the text of the page.
pub(crate) fn check(sources: &[Source<'_>], page: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut rows: Vec<(usize, (&str, &str), bool)> =
        page.lines().enumerate().filter_map(|(line, text)| Some((line, row(text)?, false))).collect();
    for source in sources {
        let Some(path) = source.path.strip_prefix("crates/").filter(|path| path.contains("/src/")) else { continue };
        for (line, code) in source.code.iter().enumerate() {
            let Some(name) = promised(code) else { continue };
            match rows.iter_mut().find(|(_, row, _)| *row == (path, name)) {
                Some((.., is_used)) => *is_used = true,
                None => {
                    let what =
                        format!("an `unsafe impl` that {PAGE} does not name; add `| `{path}` | `{name}` | why |`");
                    findings.push(Finding::new(source.path, line + 1, what));
                }
            }
        }
    }
    for (line, (path, name), _) in rows.iter().filter(|(.., is_used)| !is_used) {
        let what = format!("`{name}` of {path} has no `unsafe impl` of `Send` or `Sync`; take the line out");
        findings.push(Finding::new(PAGE, line + 1, what));
    }
    findings
}

/// The type for which a line of code promises `Send` or `Sync`.
fn promised(code: &str) -> Option<&str> {
    let (before, name) = code.split_once(" Send for ").or_else(|| code.split_once(" Sync for "))?;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(name.len());
    before.trim_start().starts_with("unsafe impl").then_some(&name[..end])
}

/// File and type of a line of the table.
fn row(text: &str) -> Option<(&str, &str)> {
    let mut cells = text.strip_prefix("| `")?.split("` | `");
    let (path, rest) = (cells.next()?, cells.next()?);
    path.ends_with(".rs").then_some((path, rest.split('`').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: &str) -> Vec<(String, usize)> {
        let text = "unsafe impl<T: Send> Sync for A<T> {}\nunsafe impl Send for B {}\nfn f() {}\nimpl Send for C {}\n";
        let findings = check(&[Source::new("crates/dapple-io/src/new.rs", text)], page);
        findings.into_iter().map(|finding| (finding.file, finding.line)).collect()
    }

    #[test]
    fn the_page_and_the_sources_are_compared() {
        let (a, b) = ("| `dapple-io/src/new.rs` | `A` | why |\n", "| `dapple-io/src/new.rs` | `B` | why |\n");
        assert_eq!(lines(&format!("{a}{b}")), []);
        assert_eq!(lines(a), [("crates/dapple-io/src/new.rs".to_owned(), 2)]);
        let old = "| `dapple-io/src/old.rs` | `A` | why |\n";
        assert_eq!(lines(&format!("{a}{b}{old}")), [(PAGE.to_owned(), 3)]);
    }
}
