//! `cargo xtask results`: the tables of saved runs, in bench/RESULTS.md.
//!
//! `bench COMMAND --save bench/runs/NAME.jsonl` appends its runs and its tables to that file. This
//! command shows the tables of all such files, with machine, commit and command, and marks a table
//! as older once the measured code has changed. It needs no build and no network.

mod git;
mod render;

use crate::workspace::Workspace;
use git::Git;
use render::{Run, section};
use std::path::Path;

pub(crate) const HELP: &str = "\
cargo xtask results [--check]

Writes the tables of all saved runs, bench/runs/*.jsonl, into bench/RESULTS.md, with machine, commit and command. Marks a table
as older once the measured code differs from that at its commit; comments do not count. To save runs and their tables:

  cargo xtask bench web --only small --save bench/runs/web.jsonl

A later table replaces an earlier one of the same file that has the same title.

  --check  writes nothing, and fails where bench/RESULTS.md is not what the command would write; `tidy` does the same.
           Where git is missing or does not have a commit, the marks that bench/RESULTS.md has are taken as right.
";

/// The page with the tables.
pub(crate) const PAGE: &str = "bench/RESULTS.md";

/// Writes the page, or only compares it.
pub(crate) fn run(is_check: bool) -> Result<bool, String> {
    let workspace = Workspace::own()?;
    let Outcome { now, due, problems } = outcome(&workspace.root)?;
    problems.iter().for_each(|problem| println!("results: {problem}"));
    if now == due {
        println!("results: {PAGE} shows all saved runs");
    } else if is_check {
        println!("results: {DIFFERS}");
    } else {
        std::fs::write(workspace.root.join(PAGE), &due).map_err(|error| format!("cannot write {PAGE}: {error}"))?;
        println!("results: wrote {PAGE}");
    }
    Ok(problems.is_empty() && (now == due || !is_check))
}

/// For `tidy`: what is wrong with the page.
pub(crate) fn problems(root: &Path) -> Result<Vec<String>, String> {
    let Outcome { now, due, mut problems } = outcome(root)?;
    if now != due {
        problems.push(DIFFERS.to_owned());
    }
    Ok(problems)
}

const DIFFERS: &str =
    "bench/RESULTS.md is not what the saved runs and the code say: `cargo xtask results` writes it anew";

/// The page as it is and as it should be.
struct Outcome {
    now: String,
    due: String,
    /// Files that the command cannot show.
    problems: Vec<String>,
}

fn outcome(root: &Path) -> Result<Outcome, String> {
    let now = std::fs::read_to_string(root.join(PAGE)).map_err(|error| format!("cannot read {PAGE}: {error}"))?;
    let git = Git::new(root);
    let (mut problems, mut runs) = (Vec::new(), Vec::new());
    for (name, text) in saved(root)? {
        match Run::read(&name, &text) {
            Ok(run) => runs.push(run),
            Err(problem) => problems.push(problem),
        }
    }
    let own = section(&runs, &now, |commit, crates| git.since(commit, crates));
    let due = replaced(&now, &own).ok_or(format!("{PAGE} has no lines `{BEGIN}` and `{END}`, one after the other"))?;
    for commit in git.unknown() {
        println!("results: git does not have the commit {commit}: {PAGE} keeps its mark");
    }
    Ok(Outcome { now, due, problems })
}

/// The names and texts of the files with saved runs, in the order of their names.
fn saved(root: &Path) -> Result<Vec<(String, String)>, String> {
    let folder = root.join("bench/runs");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if let (Some(name), true) = (path.file_stem(), path.extension().is_some_and(|extension| extension == "jsonl")) {
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            files.push((name.to_string_lossy().into_owned(), text));
        }
    }
    files.sort();
    Ok(files)
}

/// The page with another text between the two lines.
fn replaced(page: &str, own: &str) -> Option<String> {
    let begin = page.find(BEGIN)? + BEGIN.len();
    let end = begin + page[begin..].find(END)?;
    Some(format!("{}\n\n{own}{}", &page[..begin], &page[end..]))
}

const BEGIN: &str = "<!-- `cargo xtask results` writes what follows -->";
const END: &str = "<!-- up to here -->";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_two_lines_is_replaced() {
        let page = format!("# Head\n\n{BEGIN}\nold\n{END}\n\ntail\n");
        let due = replaced(&page, "new\n\n").expect("it has both lines");
        assert_eq!(due, format!("# Head\n\n{BEGIN}\n\nnew\n\n{END}\n\ntail\n"));
        assert_eq!(replaced(&due, "new\n\n"), Some(due.clone()));
        assert_eq!(replaced(&format!("{END}\n{BEGIN}\n"), ""), None);
    }

    #[test]
    fn the_page_shows_what_is_saved() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(problems(&root), Ok(Vec::new()));
    }
}
