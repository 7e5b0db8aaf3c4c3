//! The output of a soak: progress lines, and the summary at its end.

use super::book::{Entry, Kind};
use super::process::Memory;
use super::trial::{Ending, Outcome};
use crate::stats::Table;
use anyhow::{Result, ensure};
use std::time::Duration;

/// All runtimes so far.
pub(crate) struct Summary {
    workers: usize,
    seed: u64,
    runtimes: u64,
    /// In the order of [`Kind::ALL`].
    entries: Vec<Entry>,
    endings: [u64; Ending::ALL.len()],
    outside: u64,
    nested: u64,
    panics: u64,
    stuck: u64,
    memory: Memory,
    last: Option<Outcome>,
}

impl Summary {
    pub(crate) fn new(workers: usize, seed: u64) -> Summary {
        Summary {
            workers,
            seed,
            runtimes: 0,
            entries: vec![Entry { same: true, ..Entry::default() }; Kind::ALL.len()],
            endings: [0; Ending::ALL.len()],
            outside: 0,
            nested: 0,
            panics: 0,
            stuck: 0,
            memory: Memory::default(),
            last: None,
        }
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.runtimes += 1;
        self.entries.iter_mut().zip(&outcome.entries).for_each(|(sum, entry)| sum.add(entry));
        self.endings[outcome.ending as usize] += 1;
        self.outside += outcome.outside;
        self.nested += outcome.nested;
        self.panics += outcome.panics;
        self.stuck += outcome.stuck;
        self.memory.note(&outcome.census);
        self.last = Some(outcome);
    }

    /// The problems of the last runtime.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.last.iter().flat_map(|outcome| outcome.problems.clone()).collect()
    }

    fn ran(&self) -> u64 {
        self.entries.iter().map(|entry| entry.ran).sum()
    }

    fn resident_mib(&self) -> f64 {
        self.last.as_ref().map_or(0.0, |outcome| outcome.census.resident_kib as f64 / 1024.0)
    }

    /// A line of progress.
    pub(crate) fn line(&self, elapsed: Duration) -> String {
        format!(
            "{:>6.0} s  {} runtimes  {:.2} M callbacks  {:.1} MiB resident",
            elapsed.as_secs_f64(),
            self.runtimes,
            self.ran() as f64 / 1e6,
            self.resident_mib(),
        )
    }

    /// The table at the end.
    pub(crate) fn text(&self, elapsed: Duration) -> String {
        let mut table = Table::new(&["what", "made", "ran", "refused", "taken back", "poisoned", "dropped"]);
        let mut total = Entry { same: true, ..Entry::default() };
        for (kind, entry) in Kind::ALL.iter().zip(&self.entries) {
            table.row(row(kind.name(), entry));
            total.add(entry);
        }
        table.row(row("all", &total));
        let endings: Vec<String> =
            Ending::ALL.iter().map(|ending| format!("{} {}", self.endings[*ending as usize], ending.name())).collect();
        format!(
            "{}{} workers, seed {}, {:.0} s: {} runtimes, ended {}\n\
             from outside threads: {}; nested programs: {}; panics on purpose: {}; workers left behind by a shutdown: {}\n{}\n",
            table.render(),
            self.workers,
            self.seed,
            elapsed.as_secs_f64(),
            self.runtimes,
            endings.join(", "),
            self.outside,
            self.nested,
            self.panics,
            self.stuck,
            self.memory_text(),
        )
    }

    fn memory_text(&self) -> String {
        match self.memory.quarters_mib() {
            Some(quarters) => format!(
                "resident memory by quarters: {} MiB; limit of the last: {:.1} MiB",
                quarters.map(|mib| format!("{mib:.1}")).join(", "),
                Memory::limit_mib(&quarters)
            ),
            None => format!("resident memory: {:.1} MiB; too few runtimes to judge it", self.resident_mib()),
        }
    }

    /// Fails if memory has grown.
    pub(crate) fn verdict(&self) -> Result<()> {
        if let Some(quarters) = self.memory.quarters_mib() {
            ensure!(quarters[3] <= Memory::limit_mib(&quarters), "memory grows: {}", self.memory_text());
        }
        Ok(())
    }
}

fn row(name: &str, entry: &Entry) -> Vec<String> {
    let [refused, canceled, poisoned] = entry.excused;
    let counts = [entry.made, entry.ran, refused, canceled, poisoned, entry.dropped()];
    std::iter::once(name.to_owned()).chain(counts.iter().map(u64::to_string)).collect()
}
