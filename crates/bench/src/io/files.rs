//! Random reads of 4 KB by the number of readers, through the kernel's cache and around it.
//! Gribble, Figures 38 and 39.

use crate::experiment::{BLOCK_LEN, Column, Experiment, Peer, Plot, Trial, workers_text};
use crate::machine::pin_to_cores;
use crate::reads::Reading;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The options of `bench io --only files`.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of files")]
pub(super) struct Flags {
    /// Numbers of concurrent readers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2,4,8,15", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    readers: Vec<u16>,
}

impl Flags {
    pub(super) fn cases(&self, workers: &[usize]) -> Vec<Case> {
        let mut cases = Vec::new();
        for cached in [false, true] {
            for &readers in &self.readers {
                cases.extend(workers.iter().map(|&workers| Case { cached, readers: usize::from(readers), workers }));
            }
        }
        cases
    }
}

pub(super) struct Files;

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Through the kernel's cache, or around it.
    cached: bool,
    /// Threads, each of which reads one block after the other.
    readers: usize,
    /// Kernel threads that run them; cores, if each reader is a kernel thread itself.
    workers: usize,
}

/// The figures of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// The median time of a read.
    p50_us: f64,
    /// 99 of 100 took no longer.
    p99_us: f64,
    /// Megabytes (10^6) read per second of wall-clock time.
    mb_per_s: f64,
    /// User and system time of the whole process per read.
    cpu_us_per_read: f64,
    /// Seconds measured.
    secs: f64,
}

impl Experiment for Files {
    const NAME: &'static str = "files";
    const PEERS: &'static [Peer] = &[Peer::Dapple, Peer::Tokio, Peer::Compio, Peer::Pthreads];
    const LEGEND: &'static str = "\
Medians of the runs. p50, p99: how long a read of 4 KB took. CPU is user and system time of the whole process. Each run checks
the number at both ends of every block, and every sixteenth block byte by byte. pthreads with N workers: pinned to N cores.";
    type Case = Case;
    type Figures = Figures;

    fn measure(trial: &Trial<Case>) -> Result<Figures> {
        let Case { cached, readers, workers } = trial.case;
        if trial.peer == Peer::Pthreads {
            pin_to_cores(workers)?;
        }
        if cached {
            // All of it, because the kernel may have evicted parts since they were written.
            std::io::copy(&mut std::fs::File::open(&trial.file)?, &mut std::io::sink())?;
        }
        let reading = Reading { path: trial.file.clone(), threads: readers, workers, direct: !cached, timed: true };
        let (window, latencies) = reading.measure(trial.peer, trial.secs)?;
        Ok(Figures {
            p50_us: latencies.quantile_ns(0.5) / 1e3,
            p99_us: latencies.quantile_ns(0.99) / 1e3,
            mb_per_s: window.rate() * BLOCK_LEN as f64 / 1e6,
            cpu_us_per_read: window.cpu_ns() / 1e3,
            secs: window.secs,
        })
    }

    fn limit(trial: &Trial<Case>) -> Duration {
        Duration::from_secs_f64(180.0 + trial.secs * 2.0)
    }

    fn obstacle(_: Peer, _: &Case) -> Option<String> {
        None
    }

    fn title(case: &Case) -> String {
        format!("files: random reads of 4 KB {}", if case.cached { "from the kernel's cache" } else { "with O_DIRECT" })
    }

    fn labels(case: &Case) -> Vec<(&'static str, String)> {
        vec![("readers", case.readers.to_string()), ("workers", case.workers.to_string())]
    }

    fn one_worker(case: &Case) -> Option<Case> {
        Some(Case { workers: 1, ..*case })
    }

    fn columns() -> Vec<Column<Figures>> {
        vec![
            Column { head: "p50 us", figure: |of| of.p50_us, decimals: 1 },
            Column { head: "p99 us", figure: |of| of.p99_us, decimals: 1 },
            Column { head: "MB/s", figure: |of| of.mb_per_s, decimals: 0 },
            Column { head: "CPU us", figure: |of| of.cpu_us_per_read, decimals: 1 },
        ]
    }

    fn plots() -> Vec<Plot<Case, Figures>> {
        vec![Plot {
            stem: "latency",
            y_title: "median latency, us",
            y_log: false,
            figure: |of| of.p50_us,
            x_title: "readers",
            x: |case| case.readers,
            part: |case| format!("{} {}", if case.cached { "cached" } else { "uncached" }, workers_text(case.workers)),
        }]
    }
}
