//! Threads that read random blocks from a disk, past the kernel's cache. PLDI 2007, Figure 17.

mod fio;
mod peers;

use super::pin_to_cores;
use crate::experiment::{
    Column, Experiment, Peer, Plot, Trial, Window, blocks_of, check_block, wait_until, workers_text,
};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What `bench threads --only disk` can be told.
#[derive(clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Options of disk")]
pub(super) struct Flags {
    /// How many threads read at the same time
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

/// The experiment.
pub(super) struct Disk;

/// What is varied.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Case {
    /// Threads, each of which reads one block after the other.
    threads: usize,
    /// Threads of the kernel that run them; cores, where each is a thread of the kernel itself.
    workers: usize,
}

/// What is measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Megabytes (10^6) read per second of wall-clock time.
    mb_per_s: f64,
    /// User and system time of the whole process per read.
    cpu_us_per_read: f64,
    /// Blocks read while it was measured.
    reads: u64,
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
        let run = Arc::new(Run { blocks: blocks_of(&trial.file)?, ..Run::default() });
        let keep = peers::start(trial, &run)?;
        // By then all of them have their memory, and the queues are as long as they get.
        let threads = trial.case.threads as u64;
        let warm = wait_until("as many blocks are read as there are threads", || {
            run.reads.load(Relaxed) >= threads || run.stop.load(Relaxed)
        });
        let window = warm.and_then(|()| Window::of(trial.secs, || run.reads.load(Relaxed)));
        run.stop.store(true, Relaxed);
        if let Some(problem) = run.problem.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bail!(problem);
        }
        let window = window?;
        // How a peer stops is not measured here.
        std::mem::forget(keep);
        Ok(Figures {
            mb_per_s: window.rate() * crate::experiment::BLOCK_LEN as f64 / 1e6,
            cpu_us_per_read: window.cpu_ns() / 1e3,
            reads: window.ops,
            secs: window.secs,
        })
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

/// What the threads of one trial share.
#[derive(Default)]
pub(super) struct Run {
    blocks: u64,
    stop: AtomicBool,
    reads: AtomicU64,
    problem: Mutex<Option<String>>,
}

/// One thread's random blocks.
pub(super) struct Blocks {
    run: Arc<Run>,
    random: u64,
    count: u64,
}

impl Blocks {
    pub(super) fn of(run: &Arc<Run>, thread: usize) -> Blocks {
        let random = (thread as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Blocks { run: run.clone(), random, count: 0 }
    }

    /// The number of the next block; none when the run is over.
    pub(super) fn next(&mut self) -> Option<u64> {
        if self.run.stop.load(Relaxed) {
            return None;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Some(((u128::from(self.random) * u128::from(self.run.blocks)) >> 64) as u64)
    }

    /// Checks and counts what was read. A run with a wrong block is over.
    pub(super) fn note(&mut self, number: u64, read: std::io::Result<&[u8]>) {
        self.count += 1;
        let whole = self.count.is_multiple_of(COMPARE_EVERY);
        let outcome = read.context("a read failed").and_then(|block| check_block(number, block, whole));
        match outcome {
            Ok(()) => {
                self.run.reads.fetch_add(1, Relaxed);
            }
            Err(error) => {
                let mut problem = self.run.problem.lock().unwrap_or_else(PoisonError::into_inner);
                problem.get_or_insert(format!("{error:#}"));
                self.run.stop.store(true, Relaxed);
            }
        }
    }
}

/// Of so many blocks one is compared byte by byte; of the others, both ends.
const COMPARE_EVERY: u64 = 16;

/// More threads of the kernel bring nothing but stacks.
const PTHREADS_MAX: usize = 1_024;
