//! Common parts of the experiments of `threads` and `io`: trials in separate processes, peers in
//! turns, one line of JSON for each trial, a table and plots at the end.

mod blocks;
mod histogram;
mod options;
mod peer;
mod plot;
mod saved;
mod seen;
mod table;
mod window;

pub(crate) use blocks::{BLOCK_LEN, BlockFile, blocks_of, check_block, open_direct};
pub(crate) use histogram::Histogram;
pub(crate) use options::{Offer, Options};
pub(crate) use peer::Peer;
pub(crate) use plot::Plot;
pub(crate) use saved::Saved;
pub(crate) use seen::Seen;
pub(crate) use table::Column;
pub(crate) use window::{Window, wait_until};

use crate::chart::{Chart, Curves};
use crate::machine::{About, end_with_parent, own_command, run_apart};
use crate::output::{Output, Report};
use crate::stats::Table;
use crate::words::{name, verdict};
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// One experiment: its parameters, its peers, and the measurement of one trial.
pub(crate) trait Experiment {
    /// Its name on the command line and in the JSON lines.
    const NAME: &'static str;
    /// The possible peers, in the order of the table.
    const PEERS: &'static [Peer];
    /// The meaning of the columns, and the checks.
    const LEGEND: &'static str;
    /// Whether the titles of its cases name the parts of its plots.
    const TITLES_NAME_PARTS: bool = false;
    /// The parameters. Its fields are in the JSON lines.
    type Case: Clone + PartialEq + Serialize + DeserializeOwned;
    /// The measurements. Its fields are in the JSON lines.
    type Figures: Serialize + DeserializeOwned;

    /// Runs one trial, in a process that does nothing else. An error is a trial that could not be
    /// run or failed its check.
    fn measure(trial: &Trial<Self::Case>) -> Result<Self::Figures>;

    /// How long a trial may take before it counts as stuck.
    fn limit(trial: &Trial<Self::Case>) -> Duration;

    /// Why this peer cannot run this case here; `None` if it can.
    fn obstacle(peer: Peer, case: &Self::Case) -> Option<String>;

    /// The common line above the cases of one table.
    fn title(case: &Self::Case) -> String;

    /// The labels that distinguish the cases of one table.
    fn labels(case: &Self::Case) -> Vec<(&'static str, String)>;

    /// The same case with one worker, for comparison; `None` if workers are not varied.
    fn one_worker(case: &Self::Case) -> Option<Self::Case>;

    /// The columns of the table, with the primary figure first.
    fn columns() -> Vec<Column<Self::Figures>>;

    /// The plots.
    fn plots() -> Vec<Plot<Self::Case, Self::Figures>>;

    /// The figures that `bench regret` compares; `None` if it has no row of this experiment.
    fn seen(_case: &Self::Case, _figures: &Self::Figures) -> Option<Seen> {
        None
    }

    /// A paper's figures in comparison: more tables, and charts with the stems of their file names.
    fn beside_paper(_rows: &[Row<Self::Case, Self::Figures>], _about: &About) -> BesidePaper {
        BesidePaper::default()
    }

    /// Summary lines, printed after the runs' lines in JSON mode.
    fn summary(_rows: &[Row<Self::Case, Self::Figures>]) -> Vec<serde_json::Value> {
        Vec::new()
    }
}

/// The parameters of one trial, passed to its process as JSON.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Trial<C> {
    /// The experiment.
    pub(crate) experiment: String,
    /// The peer that runs it.
    pub(crate) peer: Peer,
    /// Number of the repetition, from 0.
    pub(crate) run: usize,
    /// Seconds to measure, if time ends a trial.
    pub(crate) secs: f64,
    /// The files made for all trials: the file of numbered blocks, the folder of sites; empty
    /// without any.
    pub(crate) file: PathBuf,
    /// The Go program with the Go peers, if there is one.
    pub(crate) go_program: Option<PathBuf>,
    /// The parameters of the case.
    pub(crate) case: C,
}

/// The result of one trial: one line of JSON. `figures` are missing if it has none.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "C: DeserializeOwned, F: DeserializeOwned"))]
pub(crate) struct Row<C, F> {
    experiment: String,
    pub(crate) peer: Peer,
    #[serde(flatten)]
    pub(crate) case: C,
    pub(crate) run: usize,
    #[serde(flatten)]
    pub(crate) figures: Option<F>,
    pub(crate) checked: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    problem: Option<String>,
}

#[cfg(test)]
impl<C, F> Row<C, F> {
    /// A row of a run that passed its check.
    pub(crate) fn of_test(peer: Peer, case: C, run: usize, figures: F) -> Row<C, F> {
        let experiment = String::new();
        Row { experiment, peer, case, run, figures: Some(figures), checked: true, problem: None }
    }
}

/// A paper's figures next to the measurements.
#[derive(Default)]
pub(crate) struct BesidePaper {
    pub(crate) tables: Vec<(String, Table)>,
    pub(crate) charts: Vec<(String, Chart)>,
    pub(crate) curves: Vec<(String, Curves)>,
}

/// The output of a trial's process.
#[derive(Serialize, Deserialize)]
pub(crate) struct Answer<F> {
    pub(crate) figures: Option<F>,
    pub(crate) problem: Option<String>,
}

/// The common state of all experiments of one command.
pub(crate) struct Session<'a> {
    pub(crate) output: &'a Output,
    pub(crate) about: &'a About,
    /// The hidden subcommand that runs one trial.
    pub(crate) trial_command: &'static str,
    /// The requested peers; empty for all.
    pub(crate) peers: &'a [Peer],
    pub(crate) runs: u32,
    pub(crate) secs: f64,
    pub(crate) file: PathBuf,
    pub(crate) go_program: Option<PathBuf>,
    /// The folder of plots.
    pub(crate) plot: Option<PathBuf>,
}

impl Session<'_> {
    /// Runs one experiment; prints omitted peers and the reasons to standard error. Returns the
    /// number of trials.
    pub(crate) fn run<E: Experiment>(&self, cases: &[E::Case], failures: &mut Vec<String>) -> Result<usize> {
        let wanted = |peer: &&Peer| self.peers.is_empty() || self.peers.contains(peer);
        let peers: Vec<Peer> = E::PEERS.iter().filter(wanted).copied().collect();
        let mut possible = Vec::new();
        let mut left_out = LeftOut::default();
        for (index, case) in cases.iter().enumerate() {
            if cases[..index].contains(case) {
                continue;
            }
            let runs_here = |peer: &Peer| match self.obstacle::<E>(*peer, case) {
                Some(why) => {
                    left_out.add(*peer, case_title::<E>(case), why);
                    false
                }
                None => true,
            };
            possible.push((case, peers.iter().copied().filter(runs_here).collect::<Vec<Peer>>()));
        }
        left_out.lines(possible.len()).iter().for_each(|line| eprintln!("{line}"));
        let rows = self.output.in_turns(
            self.runs,
            |run| self.trials::<E>(&possible, run),
            |trial| (E::title(&trial.case), title::<E>(trial)),
            |trial| self.once::<E>(trial),
        )?;
        self.report::<E>(&rows)?;
        let failed = verdict(&rows, |row| {
            let problem = row.problem.as_ref()?;
            Some(format!("{} of {}, run {}: {problem}", name(row.peer), case_title::<E>(&row.case), row.run))
        });
        failures.extend(failed.err().map(|error| format!("{error:#}")));
        Ok(rows.len())
    }

    fn obstacle<E: Experiment>(&self, peer: Peer, case: &E::Case) -> Option<String> {
        if peer.is_go() && self.go_program.is_none() {
            return Some("`go` is not installed or did not build the peer (https://go.dev/doc/install)".to_owned());
        }
        E::obstacle(peer, case)
    }

    /// The trials of one repetition; each begins with another peer, so that the order favors none.
    fn trials<E: Experiment>(&self, possible: &[(&E::Case, Vec<Peer>)], run: usize) -> Vec<Trial<E::Case>> {
        let mut trials = Vec::new();
        for (case, peers) in possible {
            let mut peers = peers.clone();
            let first = run % peers.len().max(1);
            peers.rotate_left(first);
            trials.extend(peers.iter().map(|&peer| Trial {
                experiment: E::NAME.to_owned(),
                peer,
                run,
                secs: self.secs,
                file: self.file.clone(),
                go_program: self.go_program.clone(),
                case: (*case).clone(),
            }));
        }
        trials
    }

    /// Runs a trial, unless its result is saved already.
    fn once<E: Experiment>(&self, trial: &Trial<E::Case>) -> Row<E::Case, E::Figures> {
        let Some(saved) = self.output.saved() else { return self.apart::<E>(trial) };
        if let Some(row) = saved.earlier::<E>(trial) {
            return row;
        }
        let row = self.apart::<E>(trial);
        if let Err(error) = saved.add(Some(trial.secs), &row) {
            eprint!("\nwarning: {error:#}: ");
        }
        row
    }

    fn apart<E: Experiment>(&self, trial: &Trial<E::Case>) -> Row<E::Case, E::Figures> {
        let answer = apart::<E>(self.trial_command, trial);
        let answer = answer.unwrap_or_else(|error| Answer { figures: None, problem: Some(format!("{error:#}")) });
        Row {
            experiment: trial.experiment.clone(),
            peer: trial.peer,
            case: trial.case.clone(),
            run: trial.run,
            checked: answer.problem.is_none(),
            figures: answer.figures,
            problem: answer.problem,
        }
    }

    fn report<E: Experiment>(&self, rows: &[Row<E::Case, E::Figures>]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let about = self.output.saved().map_or_else(|| self.about.clone(), Saved::about);
        let beside = E::beside_paper(rows, &about);
        if let Some(folder) = &self.plot {
            let mut files = plot::write::<E>(folder, &about, rows)?;
            for (stem, chart) in &beside.charts {
                files.push(plot::write_chart(folder, &format!("{}-{stem}", E::NAME), chart)?);
            }
            for (stem, curves) in &beside.curves {
                files.push(plot::write_curves(folder, &format!("{}-{stem}", E::NAME), curves)?);
            }
            for file in files {
                eprintln!("wrote {}", file.display());
            }
        }
        let mut tables: Vec<(String, Table)> = table::tables::<E>(rows);
        tables.extend(beside.tables);
        self.output.summary(&E::summary(rows))?;
        let runs = format!("{}, each in a separate process, the peers in turns", self.runs);
        self.output.end_of(E::NAME, &about, &Report { runs, tables, legend: E::LEGEND })
    }
}

/// Runs a trial in a separate process, through this hidden subcommand.
pub(crate) fn apart<E: Experiment>(command: &str, trial: &Trial<E::Case>) -> Result<Answer<E::Figures>> {
    let mut command = own_command(command)?;
    command.arg(serde_json::to_string(trial)?);
    run_apart(command, E::limit(trial))
}

/// Omitted peers and cases, with reasons.
#[derive(Default)]
struct LeftOut(Vec<(Peer, String, String)>);

impl LeftOut {
    fn add(&mut self, peer: Peer, case: String, why: String) {
        self.0.push((peer, case, why));
    }

    /// A line for each; a single one for a peer that can run none of the cases for the same reason.
    fn lines(&self, cases: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for (peer, case, why) in &self.0 {
            let alike = self.0.iter().filter(|(other, _, reason)| other == peer && reason == why).count();
            let line = match alike == cases {
                true => format!("left out: {}: {why}", name(*peer)),
                false => format!("left out: {} of {case}: {why}", name(*peer)),
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }
}

/// Runs the trial of an experiment and prints its line.
pub(crate) fn answer<E: Experiment>(trial: &str) -> Result<()> {
    end_with_parent()?;
    let trial: Trial<E::Case> = serde_json::from_str(trial).context("cannot read what the trial is told")?;
    let answer = match E::measure(&trial) {
        Ok(figures) => Answer { figures: Some(figures), problem: None },
        Err(error) => Answer { figures: None, problem: Some(format!("{error:#}")) },
    };
    println!("{}", serde_json::to_string(&answer)?);
    // Threads that still run end with the process: stopping a hundred million threads is not
    // measured.
    std::process::exit(0)
}

/// The experiment of a trial.
pub(crate) fn experiment_of(trial: &str) -> Result<String> {
    let trial: Trial<serde_json::Value> = serde_json::from_str(trial).context("cannot read what the trial is told")?;
    Ok(trial.experiment)
}

/// "1 run", "2 runs".
pub(crate) fn runs_text(runs: usize) -> String {
    format!("{runs} run{}", if runs == 1 { "" } else { "s" })
}

/// "1 worker", "2 workers".
pub(crate) fn workers_text(workers: usize) -> String {
    format!("{workers} worker{}", if workers == 1 { "" } else { "s" })
}

fn title<E: Experiment>(trial: &Trial<E::Case>) -> String {
    let labels = E::labels(&trial.case).into_iter().map(|(_, value)| format!("/{value}"));
    format!("{}{}", name(trial.peer), labels.collect::<String>())
}

fn case_title<E: Experiment>(case: &E::Case) -> String {
    let labels = E::labels(case).into_iter().map(|(what, value)| format!("; {what} {value}"));
    format!("{}{}", E::title(case), labels.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_can_run_nothing_is_reported_once() {
        let mut left_out = LeftOut::default();
        for case in ["one", "two"] {
            left_out.add(Peer::Go, case.to_owned(), "it is not installed".to_owned());
        }
        left_out.add(Peer::Fio, "two".to_owned(), "too many".to_owned());
        assert_eq!(left_out.lines(2), ["left out: go: it is not installed", "left out: fio of two: too many"]);
        assert_eq!(left_out.lines(3).len(), 3);
    }
}
