//! Threads that read random blocks of a file, one after the other, on several peers.

mod peers;

use crate::experiment::{Histogram, Peer, Window, blocks_of, check_block, wait_until};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The parameters of the reads.
pub(crate) struct Reading {
    /// The file of numbered blocks.
    pub(crate) path: PathBuf,
    /// Threads that read.
    pub(crate) threads: usize,
    /// Kernel threads that run them.
    pub(crate) workers: usize,
    /// Whether the reads bypass the kernel's cache.
    pub(crate) direct: bool,
    /// Whether each read is timed.
    pub(crate) timed: bool,
}

impl Reading {
    /// Lets the peer read for this many seconds; an error if a block was wrong. Latencies are empty
    /// unless `timed`.
    pub(crate) fn measure(&self, peer: Peer, secs: f64) -> Result<(Window, Histogram)> {
        let latencies = self.timed.then(Histogram::default);
        let run = Arc::new(Run { blocks: blocks_of(&self.path)?, latencies, ..Run::default() });
        let keep = peers::start(peer, self, &run)?;
        // By then all of them have their memory, and the queues have their full length.
        let warm = wait_until("as many blocks are read as there are threads", || {
            run.reads.load(Relaxed) >= self.threads as u64 || run.stop.load(Relaxed)
        });
        if let Some(latencies) = &run.latencies {
            latencies.clear();
        }
        let window = warm.and_then(|()| Window::of(secs, || run.reads.load(Relaxed)));
        let latencies = Histogram::default();
        if let Some(measured) = &run.latencies {
            latencies.copy_from(measured);
        }
        run.stop.store(true, Relaxed);
        if let Some(problem) = run.problem.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bail!(problem);
        }
        // The time that a peer takes to stop is not measured here.
        std::mem::forget(keep);
        Ok((window?, latencies))
    }
}

/// The common state of the threads of one trial.
#[derive(Default)]
struct Run {
    blocks: u64,
    stop: AtomicBool,
    reads: AtomicU64,
    problem: Mutex<Option<String>>,
    /// The times of reads; `None` if they are not needed, because reading the clock costs too.
    latencies: Option<Histogram>,
}

/// One thread's random blocks.
struct Blocks {
    run: Arc<Run>,
    random: u64,
    count: u64,
    begin: Option<Instant>,
}

impl Blocks {
    fn of(run: &Arc<Run>, thread: usize) -> Blocks {
        let random = (thread as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Blocks { run: run.clone(), random, count: 0, begin: None }
    }

    /// The number of the next block; `None` when the run is over.
    fn next(&mut self) -> Option<u64> {
        if self.run.stop.load(Relaxed) {
            return None;
        }
        self.begin = self.run.latencies.is_some().then(Instant::now);
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Some(((u128::from(self.random) * u128::from(self.run.blocks)) >> 64) as u64)
    }

    /// Checks and counts a block. A wrong block ends the run.
    fn note(&mut self, number: u64, read: std::io::Result<&[u8]>) {
        if let (Some(latencies), Some(begin)) = (&self.run.latencies, self.begin) {
            latencies.add(begin.elapsed().as_nanos() as u64);
        }
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

/// One block of this many is compared byte by byte; of the others, both ends.
const COMPARE_EVERY: u64 = 16;
