//! A file of results, so that an interrupted bench need not repeat them.

use super::{Experiment, Row, Trial};
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file and its results.
pub(crate) struct Saved {
    path: PathBuf,
    file: File,
    earlier: Vec<Value>,
    /// The commit of the current program.
    commit: String,
    /// The commits of the programs that made the requested results.
    commits: RefCell<BTreeSet<String>>,
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a, R> {
    commit: &'a str,
    /// The value of `--secs`.
    secs_asked: f64,
    #[serde(flatten)]
    row: &'a R,
}

impl Saved {
    /// Opens or creates the file. Skips an incomplete line.
    pub(super) fn open(path: &Path, commit: &str) -> Result<Saved> {
        let problem = || format!("cannot save results in {}: pass a file that you may write to", path.display());
        let mut options = File::options();
        let mut file = options.create(true).append(true).read(true).open(path).with_context(problem)?;
        let text = std::fs::read_to_string(path).with_context(problem)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").with_context(problem)?;
        }
        let earlier: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok(Saved { path: path.to_owned(), file, earlier, commit: commit.to_owned(), commits: RefCell::default() })
    }

    /// The earlier result of the same trial, if it passed its check.
    pub(super) fn earlier<E: Experiment>(&self, trial: &Trial<E::Case>) -> Option<Row<E::Case, E::Figures>> {
        let is_near = |line: &&Value| {
            let has = |field: &str, number: f64| line[field].as_f64() == Some(number);
            line["experiment"] == E::NAME && has("run", trial.run as f64) && has("secs_asked", trial.secs)
        };
        let found = self.earlier.iter().filter(is_near).find_map(|line| {
            let row: Row<E::Case, E::Figures> = serde_json::from_value(line.clone()).ok()?;
            let is_same = row.peer == trial.peer && row.case == trial.case && row.checked && row.figures.is_some();
            is_same.then_some((row, line["commit"].as_str().unwrap_or("unknown")))
        });
        let (row, commit) = found?;
        self.commits.borrow_mut().insert(commit.to_owned());
        Some(row)
    }

    /// Appends the result of a trial.
    pub(super) fn add(&self, secs_asked: f64, row: &impl Serialize) -> Result<()> {
        self.commits.borrow_mut().insert(self.commit.clone());
        let line = serde_json::to_string(&Line { commit: &self.commit, secs_asked, row })?;
        let written = (&self.file).write_all(format!("{line}\n").as_bytes());
        written.with_context(|| format!("cannot write to {}", self.path.display()))
    }

    /// The commits of the requested results.
    pub(super) fn commits(&self) -> String {
        self.commits.borrow().iter().map(String::as_str).collect::<Vec<&str>>().join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_spoils_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let first = Saved::open(&path, "a").expect("it is made");
        first.add(1.0, &serde_json::json!({ "run": 0 })).expect("it is written");
        (&first.file).write_all(b"{\"run\": 1, \"goo").expect("it is written");
        let second = Saved::open(&path, "b").expect("it is opened");
        assert_eq!(second.earlier, [serde_json::json!({ "commit": "a", "secs_asked": 1.0, "run": 0 })]);
        second.add(1.0, &serde_json::json!({ "run": 2 })).expect("it is written");
        assert_eq!(Saved::open(&path, "c").map(|third| third.earlier.len()).ok(), Some(2));
        assert_eq!((first.commits(), second.commits()), ("a".to_owned(), "b".to_owned()));
        let nowhere = Saved::open(&folder.path().join("none/there"), "a").err().map(|error| error.to_string());
        assert!(nowhere.is_some_and(|text| text.contains("pass a file")));
    }
}
