//! One figure, in a separate process: freed memory of another one would hide it.

use super::subject::{Peer, Small, Subject, Tally, Thing};
use super::{dapple, kameo, tokio_mpsc};
use crate::machine::{end_with_parent, own_memory_bytes};
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;

/// Arguments of the hidden `memory-trial` command.
#[derive(clap::Args)]
pub(crate) struct TrialArgs {
    #[arg(long)]
    pub(crate) peer: Peer,
    #[arg(long)]
    pub(crate) thing: Thing,
    #[arg(long)]
    pub(crate) count: usize,
    #[arg(long)]
    pub(crate) run: usize,
}

/// The result of one run: one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// The peer.
    pub(crate) peer: Peer,
    /// The thing.
    pub(crate) thing: Thing,
    /// The number of things.
    pub(crate) count: usize,
    /// Number of the repetition, from 0.
    pub(crate) run: usize,
    /// The growth of the process, over `count`.
    pub(crate) bytes_each: f64,
    /// Whether all callbacks ran when they should and never before.
    pub(crate) checked: bool,
    /// The finding of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl Measured {
    /// A run that yielded no figure.
    pub(crate) fn failed(args: &TrialArgs, problem: String) -> Measured {
        let TrialArgs { peer, thing, count, run } = *args;
        Measured { peer, thing, count, run, bytes_each: 0.0, checked: false, problem: Some(problem) }
    }
}

/// Runs one trial and prints its line.
pub(crate) fn run_trial(args: &TrialArgs) -> Result<()> {
    end_with_parent()?;
    let measured = measure(args).unwrap_or_else(|error| Measured::failed(args, format!("{error:#}")));
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

fn measure(args: &TrialArgs) -> Result<Measured> {
    let tally: &'static Tally = Box::leak(Box::default());
    let mut bench = Bench {
        subject: match args.peer {
            Peer::Dapple => Box::new(dapple::DappleColors::start()?),
            Peer::TokioMpsc => Box::new(tokio_mpsc::Channels::start(tally)?),
            Peer::Kameo => Box::new(kameo::Actors::start(tally)?),
        },
        tally,
        colors: 0,
        runs: 0,
        sum: 0,
    };
    // The cost of the first use is not a color's.
    bench.make(WARM_UP)?;
    bench.post_to_each(0, WARM_UP)?;
    use_up_free_memory();
    let grown = match args.thing {
        Thing::Unused => bench.unused(args.count),
        Thing::Idle => bench.idle(args.count),
        Thing::Queued => bench.queued(args.count),
    }?;
    // Dropping a million takes long, and the process ends anyway.
    std::mem::forget(bench);
    let bytes_each = grown as f64 / args.count as f64;
    Ok(Measured { bytes_each, checked: true, problem: None, ..Measured::failed(args, String::new()) })
}

/// Colors that are made and used before the measurement.
const WARM_UP: usize = 8;

const SETTLE: Duration = Duration::from_millis(20);

/// Allocates the free memory that the start of the program and the warm-up have left: a hundred
/// things would fit into it, and seem to cost nothing.
fn use_up_free_memory() {
    for _ in 0..16 {
        for size in (24..1_040).step_by(16).chain([2_000, 4_000, 8_000]) {
            Vec::leak(vec![1_u8; size]);
        }
    }
}

struct Bench {
    subject: Box<dyn Subject>,
    tally: &'static Tally,
    colors: usize,
    runs: u64,
    sum: u64,
}

impl Bench {
    fn make(&mut self, count: usize) -> Result<()> {
        self.subject.make(count);
        self.colors += count;
        match self.subject.starts() {
            true => self.tally.wait_for_started(self.colors as u64),
            false => Ok(()),
        }
    }

    /// Posts one callback to each color from `first` on, and waits until they have run. Only some
    /// at a time, because the memory for a million waiting callbacks is not that of an idle color.
    fn post_to_each(&mut self, first: usize, count: usize) -> Result<()> {
        const TOGETHER: usize = 64;
        for start in (first..first + count).step_by(TOGETHER) {
            (start..(start + TOGETHER).min(first + count)).for_each(|color| self.post(color));
            self.tally.wait_for_runs(self.runs)?;
        }
        self.check_all_ran()
    }

    fn post(&mut self, color: usize) {
        self.runs += 1;
        self.sum += self.runs * 3;
        self.subject.post(color, Small { index: self.runs, factor: 3, tally: self.tally });
    }

    fn check_all_ran(&self) -> Result<()> {
        self.tally.wait_for_runs(self.runs)?;
        // Callbacks that have run may still be freeing their memory.
        std::thread::sleep(SETTLE);
        let (runs, sum) = (self.tally.runs.load(Relaxed), self.tally.sum.load(Relaxed));
        ensure!(runs == self.runs, "{runs} callbacks ran and {} were posted", self.runs);
        ensure!(sum == self.sum, "what ran adds up to {sum} instead of {}", self.sum);
        Ok(())
    }

    fn unused(&mut self, count: usize) -> Result<u64> {
        let (before, first) = (own_memory_bytes()?, self.colors);
        self.make(count)?;
        let grown = own_memory_bytes()?.saturating_sub(before);
        // They were queued and could have run, each on its own.
        self.post_to_each(first, count)?;
        self.check_distinct()?;
        Ok(grown)
    }

    fn idle(&mut self, count: usize) -> Result<u64> {
        let (before, first) = (own_memory_bytes()?, self.colors);
        self.make(count)?;
        self.post_to_each(first, count)?;
        let grown = own_memory_bytes()?.saturating_sub(before);
        self.check_distinct()?;
        Ok(grown)
    }

    fn check_distinct(&self) -> Result<()> {
        let distinct = self.subject.distinct();
        ensure!(distinct == self.colors, "{} colors were made, and {distinct} are different", self.colors);
        Ok(())
    }

    fn queued(&mut self, count: usize) -> Result<u64> {
        let (open, gate) = oneshot::channel();
        let color = self.subject.make_stalled(gate);
        std::thread::sleep(SETTLE);
        let (before, ran) = (own_memory_bytes()?, self.tally.runs.load(Relaxed));
        (0..count).for_each(|_| self.post(color));
        let grown = own_memory_bytes()?.saturating_sub(before);
        let early = self.tally.runs.load(Relaxed) - ran;
        ensure!(early == 0, "{early} callbacks ran that should have waited");
        drop(open);
        self.check_all_ran()?;
        Ok(grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_peer_passes_its_check() {
        for &peer in Peer::value_variants() {
            for &thing in Thing::value_variants() {
                let measured = measure(&TrialArgs { peer, thing, count: 1_000, run: 0 }).expect("it passes");
                // Other tests of this process allocate and free meanwhile, so the figure itself is
                // not checked.
                assert!(measured.checked && measured.bytes_each.is_finite(), "{measured:?}");
            }
        }
    }

    #[test]
    fn a_callback_is_as_small_as_the_table_says() {
        assert_eq!(size_of::<Small>(), 24);
    }
}
