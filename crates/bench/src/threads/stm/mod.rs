//! Transfers between two random accounts, as transactions, compared with other ways of sharing
//! state between threads.

mod bank;
mod peers;

use crate::experiment::{Column, Experiment, Peer, Plot, Seen, Trial};
use crate::usage::Switches;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The options of `bench threads --only stm`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of stm")]
pub(super) struct Flags {
    /// Accounts
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "100,2", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    accounts: Vec<u32>,
    /// Further threads that sum up all accounts again and again
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "0,1", value_parser = clap::value_parser!(u16).range(0..=64))]
    readers: Vec<u16>,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &accounts in &self.accounts {
            for &readers in &self.readers {
                let case = |&workers| Case { accounts: accounts as usize, workers, readers: usize::from(readers) };
                cases.extend(workers.iter().map(case));
            }
        }
        cases
    }
}

pub(super) struct Stm;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Accounts to choose from.
    accounts: usize,
    /// Threads that make transfers.
    workers: usize,
    /// Threads that sum up all accounts.
    readers: usize,
}

/// The case of the row of `bench regret`.
pub(super) fn regret_case(workers: usize) -> Case {
    Case { accounts: 100, workers, readers: 0 }
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Seconds measured, after the warm-up.
    secs: f64,
    /// Transfers per second of wall-clock time.
    rate_per_s: f64,
    /// Sums of all accounts per second of wall-clock time.
    sums_per_s: f64,
    /// User and system time of the whole process per transfer.
    cpu_ns_per_op: f64,
    /// Context switches of the whole process per transfer.
    #[serde(flatten)]
    switches: Option<Switches>,
}

impl Experiment for Stm {
    const NAME: &'static str = "stm";
    const PEERS: &'static [Peer] =
        &[Peer::Dapple, Peer::DappleThreads, Peer::DappleWhen, Peer::FastStm, Peer::AsyncStm, Peer::Mutex];
    const LEGEND: &'static str = "\
Medians. CPU is user and system time of the whole process per transfer, readers included; each run
checks that no unit came or went, and each sum that it is right.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        peers::with_bank(trial)
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let (rate_per_s, cpu_us_per_op) = (of.rate_per_s, of.cpu_ns_per_op / 1e3);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us: None, switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(trial.secs * 2.0 + 30.0)
    }

    fn obstacle(_: Peer, _: &Case) -> Option<String> {
        None
    }

    fn title(case: &Case) -> String {
        format!("stm: {} accounts, {} threads that sum them up", case.accounts, case.readers)
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "M transfers/s", figure: |of| of.rate_per_s / 1e6, decimals: 2 },
            Column { head: "CPU ns", figure: |of| of.cpu_ns_per_op, decimals: 0 },
            Column { head: "k sums/s", figure: |of| of.sums_per_s / 1e3, decimals: 0 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        vec![Plot {
            stem: "transfers",
            y_title: "million transfers per second",
            y_log: false,
            figure: |of| of.rate_per_s / 1e6,
            x_title: "workers",
            x: |case| case.workers,
            part: |case| format!("{} accounts {} readers", case.accounts, case.readers),
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn every_peer_runs_and_passes_its_check() {
        for &peer in Stm::PEERS {
            for readers in [0, 1] {
                let case = Case { accounts: 5, workers: 2, readers };
                let experiment = Stm::NAME.to_owned();
                let (file, go_program) = (PathBuf::new(), None);
                let trial = Trial { experiment, peer, run: 0, secs: 0.3, file, go_program, case };
                let figures = Stm::measure(&trial).expect("it starts and passes");
                assert!(figures.rate_per_s > 0.0, "{figures:?}");
            }
        }
    }
}
