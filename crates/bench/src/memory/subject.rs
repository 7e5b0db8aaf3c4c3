//! The measured things, and the operations that each peer needs for them.

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A thing that takes memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Thing {
    /// A color that never ran, with its handle
    Unused,
    /// A color that ran one callback, with its handle
    Idle,
    /// A callback of 24 bytes that waits in a color
    Queued,
}

impl Thing {
    /// One line for readers.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Thing::Unused => "unused: bytes per color that never ran",
            Thing::Idle => "idle: bytes per color that ran once",
            Thing::Queued => "queued: bytes per callback of 24 bytes that waits",
        }
    }
}

/// A peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Peer {
    /// The scheduler of Dapple, directly
    Dapple,
    /// tokio, a task with an unbounded channel per color
    TokioMpsc,
    /// Actors: `kameo` on tokio, an actor per color
    Kameo,
}

/// A small callback with 24 bytes of data.
#[derive(Clone, Copy)]
pub(crate) struct Small {
    pub(crate) index: u64,
    pub(crate) factor: u64,
    pub(crate) tally: &'static Tally,
}

impl Small {
    pub(crate) fn run(self) {
        self.tally.sum.fetch_add(self.index * self.factor, Relaxed);
        self.tally.runs.fetch_add(1, Relaxed);
    }
}

/// The counts of what has run.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) runs: AtomicU64,
    /// The sum of their values.
    pub(crate) sum: AtomicU64,
    /// Colors that have started, if that runs something.
    pub(crate) started: AtomicU64,
}

/// One peer: a runtime with one worker, and colors on it.
pub(crate) trait Subject {
    /// Makes this many colors and keeps their handles.
    fn make(&mut self, count: usize);

    /// Makes one color that runs nothing until the gate opens; returns its index.
    fn make_stalled(&mut self, gate: oneshot::Receiver<()>) -> usize;

    /// Posts a callback to the color of that index.
    fn post(&self, index: usize, small: Small);

    /// The number of different colors.
    fn distinct(&self) -> usize;

    /// Whether making a color starts something that runs.
    fn starts(&self) -> bool;
}

impl Tally {
    /// Waits until this many callbacks have run.
    pub(crate) fn wait_for_runs(&self, runs: u64) -> Result<()> {
        wait_for(&self.runs, runs, "callbacks have run")
    }

    /// Waits until this many colors have started.
    pub(crate) fn wait_for_started(&self, started: u64) -> Result<()> {
        wait_for(&self.started, started, "colors have started")
    }
}

/// The longest wait for posted callbacks to run.
const LIMIT: Duration = Duration::from_secs(60);

fn wait_for(count: &AtomicU64, due: u64, what: &str) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while count.load(Relaxed) < due {
        if Instant::now() > end {
            bail!("{} of {due} {what} within {LIMIT:?}", count.load(Relaxed));
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    Ok(())
}
