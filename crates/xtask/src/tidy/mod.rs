//! House style as a failing test. Each finding has a place, the fault, and the replacement.

mod cancel;
mod clocks;
mod layers;
pub(crate) mod plain;
mod promises;
mod sizes;
mod source;
mod unsafe_code;
mod words;

use crate::results;
use crate::workspace::Workspace;
pub(crate) use layers::SERVICES;
pub(crate) use source::{Source, Span};
use std::path::Path;
use std::process::Command;

/// A violation of the style.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    /// Path from the root.
    file: String,
    /// Line, from 1.
    line: usize,
    /// The fault, and the replacement.
    what: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { file: file.to_owned(), line, what: what.into() }
    }
}

/// Checks the whole work tree and prints the findings; true if there are none.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    let texts = texts_of(&workspace)?;
    let mut findings = layers::check(&workspace)?;
    for (path, text) in &texts {
        findings.extend(check_file(path, text));
    }
    let rust = texts.iter().filter(|(path, _)| path.ends_with(".rs"));
    let sources: Vec<Source<'_>> = rust.map(|(path, text)| Source::new(path, text)).collect();
    findings.extend(cancel::check(&sources));
    findings.extend(clocks::check(&sources));
    findings.extend(sizes::check_services(&sources));
    findings.extend(sizes::check_texts(&texts));
    let page = texts.iter().find(|(path, _)| path == promises::PAGE).map_or("", |(_, text)| text);
    findings.extend(promises::check(&sources, page));
    findings.extend(plain::check(&texts, &sources));
    let stale = results::problems(&workspace.root)?;
    findings.extend(stale.into_iter().map(|what| Finding::new(results::PAGE, 1, what)));
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    for Finding { file, line, what } in &findings {
        println!("{file}:{line}: {what}");
    }
    println!("tidy: {} files, {} findings", texts.len(), findings.len());
    Ok(findings.is_empty())
}

/// All text files, each with its path from the root, in the order in which git lists them.
pub(crate) fn texts() -> Result<Vec<(String, String)>, String> {
    texts_of(&Workspace::own()?)
}

fn texts_of(workspace: &Workspace) -> Result<Vec<(String, String)>, String> {
    // A listed file that was removed, or is not text, has no style.
    let read = |path: String| std::fs::read_to_string(workspace.root.join(&path)).ok().map(|text| (path, text));
    Ok(files(workspace)?.into_iter().filter_map(read).collect())
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = words::check_text(path, text);
    if path.ends_with(".rs") {
        let source = Source::new(path, text);
        findings.extend(words::check_code(&source));
        findings.extend(sizes::check(&source));
        findings.extend(unsafe_code::check(&source));
    }
    findings
}

/// The files that git tracks or would track; without git, everything in the root except the build
/// folder.
fn files(workspace: &Workspace) -> Result<Vec<String>, String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(&workspace.root);
    if let Ok(output) = git.output()
        && output.status.success()
    {
        let list = String::from_utf8_lossy(&output.stdout);
        return Ok(list.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect());
    }
    let mut paths = Vec::new();
    walk(workspace, &workspace.root, &mut paths).map_err(|error| format!("cannot list the work tree: {error}"))?;
    Ok(paths)
}

fn walk(workspace: &Workspace, folder: &Path, paths: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_file() {
            paths.push(workspace.relative(&path));
        } else if kind.is_dir()
            && entry.file_name() != "target"
            && entry.file_name() != ".git"
            && path != workspace.target
        {
            walk(workspace, &path, paths)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tidy_file_has_no_findings() {
        let text = "//! A program.\n\n#![forbid(unsafe_code)]\n\nfn main() {\n    println!(\"{{\");\n}\n";
        assert_eq!(check_file("crates/new/src/main.rs", text), []);
    }

    #[test]
    fn every_kind_of_file_check_is_wired_in() {
        let spelling = concat!("//! A col", "our.\nfn main() { tod", "o!() }\n");
        let findings = check_file("crates/new/src/main.rs", spelling);
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 1], "{findings:?}");
    }
}
