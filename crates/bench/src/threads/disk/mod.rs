//! Threads that read random blocks from a disk, around the kernel's cache. PLDI 2007, Figure 17.

mod fio;

use crate::experiment::{BLOCK_LEN, Column, Experiment, Peer, Plot, Seen, Trial, workers_text};
use crate::machine::pin_to_cores;
use crate::reads::Reading;
use crate::usage::Switches;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The options of `bench threads --only disk`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of disk")]
pub(super) struct Flags {
    /// Numbers of concurrent readers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,16,128,1024,16384,65536", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    disk_threads: Vec<u32>,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        for &threads in &self.disk_threads {
            cases.extend(workers.iter().map(|&workers| Case { threads: threads as usize, workers }));
        }
        cases
    }
}

pub(super) struct Disk;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Threads, each of which reads one block after the other.
    threads: usize,
    /// Kernel threads that run them; cores, if each reader is a kernel thread itself.
    workers: usize,
}

/// The case of the row of `bench regret`.
pub(super) fn regret_case(workers: usize) -> Case {
    Case { threads: 128, workers }
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Megabytes (10^6) read per second of wall-clock time.
    mb_per_s: f64,
    /// User and system time of the whole process per read.
    cpu_us_per_read: f64,
    /// 99 of 100 reads took no longer; not measured for fio.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    p99_us: Option<f64>,
    /// Blocks read in the measured time.
    reads: u64,
    /// Context switches of the whole process per read.
    #[serde(flatten)]
    switches: Option<Switches>,
    /// Seconds measured.
    secs: f64,
}

impl Experiment for Disk {
    const NAME: &'static str = "disk";
    const PEERS: &'static [Peer] = &[Peer::Dapple, Peer::Tokio, Peer::Compio, Peer::Pthreads, Peer::Fio];
    const LEGEND: &'static str = "\
Medians. CPU is user and system time of the whole process per read of 4 KB, past the kernel's cache. Each run checks the number
at both ends of every block, and every sixteenth block byte by byte; fio checks nothing but that no read fails. pthreads with N
workers: pinned to N cores. fio: as many reads in flight as there are threads, and a process of its own per worker.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        if trial.peer == Peer::Fio {
            return fio::measure(trial);
        }
        if trial.peer == Peer::Pthreads {
            pin_to_cores(trial.case.workers)?;
        }
        let Case { threads, workers } = trial.case;
        let reading = Reading { path: trial.file.clone(), threads, workers, direct: true, timed: true };
        let (window, latencies) = reading.measure(trial.peer, trial.secs)?;
        Ok(Figures {
            mb_per_s: window.rate() * BLOCK_LEN as f64 / 1e6,
            cpu_us_per_read: window.cpu_ns() / 1e3,
            p99_us: Some(latencies.quantile_ns(0.99) / 1e3),
            reads: window.ops,
            switches: window.switches(),
            secs: window.secs,
        })
    }

    fn seen(_: &Case, of: &Figures) -> Option<Seen> {
        let (rate_per_s, cpu_us_per_op) = (of.reads as f64 / of.secs, of.cpu_us_per_read);
        Some(Seen { rate_per_s, cpu_us_per_op, p99_us: of.p99_us, switches: of.switches })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(120.0 + trial.secs * 2.0)
    }

    fn obstacle(peer: Peer, case: &Case) -> Option<String> {
        match peer {
            Peer::Pthreads if case.threads > PTHREADS_MAX => {
                Some(format!("{} threads of the kernel are more than it is run with", case.threads))
            }
            Peer::Fio => fio::obstacle(case),
            _ => None,
        }
    }

    fn title(_: &Case) -> String {
        "disk: random reads of 4 KB with O_DIRECT".to_owned()
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("threads", case.threads.to_string()), ("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 0 },
            Column { head: "CPU us", figure: |of| of.cpu_us_per_read, decimals: 1 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        let plot = |stem, y_title, figure| Plot {
            stem,
            y_title,
            y_log: false,
            figure,
            x_title: "threads",
            x: |case: &Case| case.threads,
            part: |case: &Case| workers_text(case.workers),
        };
        vec![
            plot("rate", "MB per second", |of: &Figures| of.mb_per_s),
            plot("cpu", "CPU us per read", |of: &Figures| of.cpu_us_per_read),
        ]
    }
}

/// More kernel threads only add stacks.
const PTHREADS_MAX: usize = 1_024;
