//! A bank: workers that transfer, readers that sum up, and the check that the total stays the same.

use super::{Case, Figures};
use crate::experiment::Trial;
use crate::usage::Usage;
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The balance of every account at the start.
pub(super) const OPENING_BALANCE: u64 = 1_000;

/// The implementation of one peer.
pub(super) trait Bank: Send + Sync + 'static {
    /// Moves a unit. No transfer is refused for lack of units: balances go below zero and wrap.
    fn transfer(&self, from: usize, to: usize) -> impl Future<Output = ()> + Send;
    /// The sum of all accounts at one moment.
    fn sum(&self) -> u64;
}

/// The common state of the threads of one run.
pub(super) struct Run {
    accounts: usize,
    stop: Line<AtomicBool>,
    counts: Vec<Line<AtomicU64>>,
    sums: Line<AtomicU64>,
    wrong: Line<AtomicU64>,
    running: Line<AtomicU64>,
}

#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

impl Run {
    /// Transfers until the run is over. Calls `pause` now and then.
    pub(super) async fn work<B: Bank>(&self, bank: &B, worker: usize, pause: impl AsyncFn()) {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(worker as u64 + 1);
        let mut count = 0;
        while !self.stop.0.load(Relaxed) {
            for _ in 0..BATCH {
                let (from, to) = pair(&mut random, self.accounts);
                bank.transfer(from, to).await;
            }
            count += BATCH;
            self.counts[worker].0.store(count, Relaxed);
            pause().await;
        }
        self.running.0.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
    }

    fn read(&self, bank: &impl Bank) {
        let due = OPENING_BALANCE * self.accounts as u64;
        while !self.stop.0.load(Relaxed) {
            self.wrong.0.fetch_add(u64::from(bank.sum() != due), Relaxed);
            self.sums.0.fetch_add(1, Relaxed);
        }
        self.running.0.fetch_sub(1, std::sync::atomic::Ordering::AcqRel);
    }

    fn transfers(&self) -> u64 {
        self.counts.iter().map(|count| count.0.load(Relaxed)).sum()
    }
}

/// Two different accounts at random.
#[inline]
fn pair(random: &mut u64, accounts: usize) -> (usize, usize) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let below = |bits: u64, limit: usize| (((bits & 0xFFFF_FFFF) * limit as u64) >> 32) as usize;
    let from = below(*random >> 32, accounts);
    let other = below(*random, accounts - 1);
    (from, other + usize::from(other >= from))
}

/// Measures a bank. `start` starts its workers: it gets the run, the bank, and their number.
pub(super) fn watch<B: Bank, K>(
    trial: &Trial<Case>,
    bank: B,
    start: impl FnOnce(&Arc<Run>, &Arc<B>, usize) -> Result<K>,
) -> Result<Figures> {
    let Case { accounts, workers, readers } = trial.case;
    let run = Arc::new(Run {
        accounts,
        stop: Line::default(),
        counts: (0..workers).map(|_| Line::default()).collect(),
        sums: Line::default(),
        wrong: Line::default(),
        running: Line(AtomicU64::new((workers + readers) as u64)),
    });
    let bank = Arc::new(bank);
    for _ in 0..readers {
        let (run, bank) = (run.clone(), bank.clone());
        std::thread::Builder::new().spawn(move || run.read(&*bank))?;
    }
    let keep = start(&run, &bank, workers)?;
    std::thread::sleep(Duration::from_secs_f64((trial.secs / 4.0).clamp(0.1, 0.5)));
    let (used, begin) = (Usage::own(), Instant::now());
    let (ops, sums) = (run.transfers(), run.sums.0.load(Relaxed));
    std::thread::sleep(Duration::from_secs_f64(trial.secs));
    let (ops, sums) = (run.transfers() - ops, run.sums.0.load(Relaxed) - sums);
    let (secs, usage) = (begin.elapsed().as_secs_f64(), Usage::own().since(used));
    run.stop.0.store(true, Relaxed);
    let end = Instant::now() + Duration::from_secs(10);
    while run.running.0.load(std::sync::atomic::Ordering::Acquire) > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The time that a peer takes to stop is not measured here.
    std::mem::forget(keep);
    check(&run, &*bank, ops)?;
    Ok(Figures {
        secs,
        rate_per_s: ops as f64 / secs,
        sums_per_s: sums as f64 / secs,
        cpu_ns_per_op: usage.cpu.as_nanos() as f64 / ops as f64,
        switches: Some(usage.switches(ops)),
    })
}

fn check(run: &Run, bank: &impl Bank, ops: u64) -> Result<()> {
    ensure!(run.running.0.load(Relaxed) == 0, "a worker or a reader did not end within 10 s");
    let (sum, due) = (bank.sum(), OPENING_BALANCE * run.accounts as u64);
    ensure!(sum == due, "the accounts hold {sum} units instead of {due}");
    let wrong = run.wrong.0.load(Relaxed);
    ensure!(wrong == 0, "{wrong} sums were wrong");
    ensure!(ops > 0, "no transfer was made while it was measured");
    Ok(())
}

/// Transfers between two checks for the end of the run.
const BATCH: u64 = 64;
