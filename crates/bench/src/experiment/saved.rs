//! A file of results: runs, so that an interrupted bench need not repeat them, and tables.
//!
//! Each line is a JSON object. A line with `session` names the machine, commit and command of the
//! runs after it. A line with `report` has tables. Any other line is a run.

use super::{Experiment, Row, Trial};
use crate::machine::About;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file and its results.
pub(crate) struct Saved {
    path: PathBuf,
    file: File,
    /// Runs, each with the number of its session.
    earlier: Vec<(usize, Value)>,
    /// The machine, commit and command of each session. The last session is the current one.
    sessions: Vec<About>,
    /// Whether the file has the line of the current session.
    is_begun: Cell<bool>,
    /// The sessions of the runs in the next report.
    used: RefCell<BTreeSet<usize>>,
}

/// The first line of a session.
#[derive(Serialize)]
struct Begin<'a> {
    session: &'a About,
}

/// The line of a run.
#[derive(Serialize)]
struct Line<'a, R> {
    commit: &'a str,
    /// The value of `--secs`, if it distinguishes runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    secs_asked: Option<f64>,
    #[serde(flatten)]
    row: &'a R,
}

impl Saved {
    /// Opens or creates the file, for the session `about`. Skips an incomplete line.
    pub(crate) fn open(path: &Path, about: &About) -> Result<Saved> {
        let problem = || format!("cannot save results in {}: pass a file that you may write to", path.display());
        let mut options = File::options();
        let mut file = options.create(true).append(true).read(true).open(path).with_context(problem)?;
        let text = std::fs::read_to_string(path).with_context(problem)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").with_context(problem)?;
        }
        let (earlier, mut sessions) = read(&text);
        sessions.push(about.clone());
        let (is_begun, used) = (Cell::new(false), RefCell::default());
        Ok(Saved { path: path.to_owned(), file, earlier, sessions, is_begun, used })
    }

    /// The earlier result of the same trial, if it passed its check.
    pub(super) fn earlier<E: Experiment>(&self, trial: &Trial<E::Case>) -> Option<Row<E::Case, E::Figures>> {
        let is_near = |(_, line): &&(usize, Value)| {
            let has = |field: &str, number: f64| line[field].as_f64() == Some(number);
            line["experiment"] == E::NAME && has("run", trial.run as f64) && has("secs_asked", trial.secs)
        };
        let found = self.earlier.iter().filter(is_near).find_map(|(session, line)| {
            let row: Row<E::Case, E::Figures> = serde_json::from_value(line.clone()).ok()?;
            let is_same = row.peer == trial.peer && row.case == trial.case && row.checked && row.figures.is_some();
            is_same.then_some((row, *session))
        });
        let (row, session) = found?;
        self.used.borrow_mut().insert(session);
        Some(row)
    }

    /// Appends the result of a trial.
    pub(crate) fn add(&self, secs_asked: Option<f64>, row: &impl Serialize) -> Result<()> {
        let (own, session) = (self.sessions.len() - 1, self.own());
        self.used.borrow_mut().insert(own);
        if !self.is_begun.replace(true) {
            self.append(&Begin { session })?;
        }
        self.append(&Line { commit: &session.commit, secs_asked, row })
    }

    /// Appends tables.
    pub(crate) fn add_report(&self, report: &impl Serialize) -> Result<()> {
        self.append(report)
    }

    /// The machines and commits of all runs since the last call, and the current command.
    pub(crate) fn about(&self) -> About {
        let used = std::mem::take(&mut *self.used.borrow_mut());
        let used: Vec<&About> = used.iter().map(|session| &self.sessions[*session]).collect();
        let all = |field: fn(&About) -> &str| {
            let different: BTreeSet<&str> = used.iter().map(|about| field(about)).collect();
            different.into_iter().collect::<Vec<&str>>().join(" and ")
        };
        About {
            machine: all(|about| &about.machine),
            kernel: all(|about| &about.kernel),
            commit: all(|about| &about.commit),
            date: all(|about| &about.date),
            command: self.own().command.clone(),
            busy: used.iter().filter_map(|about| about.busy).max_by(f64::total_cmp),
        }
    }

    fn own(&self) -> &About {
        &self.sessions[self.sessions.len() - 1]
    }

    fn append(&self, line: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(line)?;
        let written = (&self.file).write_all(format!("{line}\n").as_bytes());
        written.with_context(|| format!("cannot write to {}", self.path.display()))
    }
}

/// The runs and their sessions. A run without a session gets one with only its commit.
fn read(text: &str) -> (Vec<(usize, Value)>, Vec<About>) {
    let (mut runs, mut sessions) = (Vec::new(), Vec::new());
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if let Ok(about) = serde_json::from_value::<About>(line["session"].clone()) {
            sessions.push(about);
        } else if line["report"].is_null() {
            let commit = line["commit"].as_str().unwrap_or(NOT_SAVED);
            if sessions.last().is_none_or(|about| about.commit != commit) {
                sessions.push(of_commit(commit));
            }
            runs.push((sessions.len() - 1, line));
        }
    }
    (runs, sessions)
}

fn of_commit(commit: &str) -> About {
    let [machine, kernel, date, command] = [NOT_SAVED; 4].map(str::to_owned);
    About { machine, kernel, commit: commit.to_owned(), date, command, busy: None }
}

const NOT_SAVED: &str = "not saved";

#[cfg(test)]
mod tests {
    use super::*;

    fn about(commit: &str, machine: &str) -> About {
        About { machine: machine.to_owned(), busy: None, ..of_commit(commit) }
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        let first = Saved::open(&path, &about("a", "m")).expect("it is made");
        first.add(Some(1.0), &serde_json::json!({ "run": 0 })).expect("it is written");
        (&first.file).write_all(b"{\"run\": 1, \"goo").expect("it is written");
        let second = Saved::open(&path, &about("b", "m")).expect("it is opened");
        let saved = serde_json::json!({ "commit": "a", "secs_asked": 1.0, "run": 0 });
        assert_eq!(second.earlier, [(0, saved)]);
        second.add(None, &serde_json::json!({ "run": 2 })).expect("it is written");
        assert_eq!(Saved::open(&path, &about("c", "m")).map(|third| third.earlier.len()).ok(), Some(2));
        let nowhere = Saved::open(&folder.path().join("none/there"), &about("a", "m")).err();
        assert!(nowhere.is_some_and(|error| error.to_string().contains("pass a file")));
    }

    #[test]
    fn each_run_belongs_to_its_session_and_no_run_to_a_report() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.jsonl");
        std::fs::write(&path, "{\"commit\":\"old\",\"run\":0}\n").expect("it is written");
        let run = serde_json::json!({ "run": 1 });
        for (commit, machine) in [("a", "m"), ("b", "n")] {
            let saved = Saved::open(&path, &about(commit, machine)).expect("it is opened");
            saved.add(None, &run).and_then(|()| saved.add(None, &run)).expect("they are written");
            let own = saved.about();
            assert_eq!((own.commit.as_str(), own.machine.as_str()), (commit, machine));
            saved.add_report(&serde_json::json!({ "report": "r" })).expect("it is written");
        }
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(text.matches("session").count(), 2, "{text}");
        let saved = Saved::open(&path, &about("c", "m")).expect("it is opened");
        let numbers: Vec<usize> = saved.earlier.iter().map(|(session, _)| *session).collect();
        assert_eq!(numbers, [0, 1, 1, 2, 2]);
        saved.used.borrow_mut().extend([0, 1, 2]);
        let all = saved.about();
        assert_eq!((all.commit.as_str(), all.machine.as_str()), ("a and b and old", "m and n and not saved"));
    }
}
