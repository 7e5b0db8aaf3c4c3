//! The common state of the threads of a trial, and their counts.

use crate::machine::available_memory_bytes;
use anyhow::{Result, bail, ensure};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shared by all threads. A static, because a reference in every thread would take as much memory
/// as the rest of it.
pub(super) static TALLY: Tally = Tally {
    stop: Line(AtomicBool::new(false)),
    made: Line(AtomicU64::new(0)),
    short_of_memory: AtomicBool::new(false),
};

/// The shared state.
pub(super) struct Tally {
    /// Ends the threads.
    stop: Line<AtomicBool>,
    made: Line<AtomicU64>,
    short_of_memory: AtomicBool,
}

#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

/// The counts of the threads on one kernel thread, which alone writes them.
#[derive(Default)]
struct Counts {
    /// All but the last few; see [`FLUSH_EVERY`].
    yields: AtomicU64,
    started: AtomicU64,
    ended: AtomicU64,
    /// The yields that the ended threads counted themselves.
    ended_yields: AtomicU64,
    ended_least: AtomicU64,
    ended_most: AtomicU64,
    never_ran: AtomicU64,
}

static ALL_COUNTS: Mutex<Vec<&'static Line<Counts>>> = Mutex::new(Vec::new());

thread_local! {
    /// Yields on this kernel thread: one instruction counts one.
    static YIELDS: Cell<u64> = const { Cell::new(0) };
    static OWN_COUNTS: &'static Line<Counts> = {
        let own: &'static Line<Counts> = Box::leak(Box::default());
        own.0.ended_least.store(u64::MAX, Relaxed);
        ALL_COUNTS.lock().unwrap_or_else(PoisonError::into_inner).push(own);
        own
    };
}

/// The body of each thread.
pub(super) async fn run(yield_now: impl AsyncFn()) {
    note_started();
    let mut yields = 0_u32;
    while !TALLY.stop.0.load(Relaxed) {
        yield_now().await;
        yields += 1;
        note_yield();
    }
    note_ended(yields);
}

#[inline]
fn note_yield() {
    let yields = YIELDS.get() + 1;
    YIELDS.set(yields);
    if yields.is_multiple_of(FLUSH_EVERY) {
        OWN_COUNTS.with(|own| own.0.yields.store(yields, Relaxed));
    }
}

fn note_started() {
    OWN_COUNTS.with(|own| own.0.started.store(own.0.started.load(Relaxed) + 1, Relaxed));
}

fn note_ended(yields: u32) {
    let yields = u64::from(yields);
    OWN_COUNTS.with(|own| {
        let change = |of: &AtomicU64, to: &dyn Fn(u64) -> u64| of.store(to(of.load(Relaxed)), Relaxed);
        change(&own.0.ended_yields, &|sum| sum + yields);
        change(&own.0.ended_least, &|least| least.min(yields));
        change(&own.0.ended_most, &|most| most.max(yields));
        change(&own.0.never_ran, &|count| count + u64::from(yields == 0));
        own.0.yields.store(YIELDS.get(), Relaxed);
        own.0.ended.store(own.0.ended.load(Relaxed) + 1, std::sync::atomic::Ordering::Release);
    });
}

/// The counts of all ended threads.
pub(super) struct Ended {
    pub(super) least_yields: u64,
    pub(super) most_yields: u64,
    pub(super) never_ran: u64,
}

impl Tally {
    /// Makes this many threads; stops early if memory runs short.
    pub(super) fn make(&self, count: usize, spawn: impl Fn()) {
        for made in 0..count {
            let is_short = || available_memory_bytes().is_some_and(|bytes| bytes < RESERVE_BYTES);
            if made % LOOK_EVERY == LOOK_EVERY - 1 && is_short() {
                self.made.0.fetch_add(made as u64, Relaxed);
                self.short_of_memory.store(true, Relaxed);
                return;
            }
            spawn();
        }
        self.made.0.fetch_add(count as u64, Relaxed);
    }

    /// Waits until this many have been made. The process that started the trial ends it if this
    /// takes too long.
    pub(super) fn wait_for_made(&self, due: u64) -> Result<()> {
        while self.made.0.load(Relaxed) < due {
            if self.short_of_memory.load(Relaxed) {
                bail!("memory is short after {} threads: pass fewer --threads", self.made.0.load(Relaxed));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until this many have run for the first time, up to the limit.
    pub(super) fn wait_for_started(&self, due: u64, limit: Duration) {
        let end = Instant::now() + limit;
        while sum(|of| &of.started) < due && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
    }

    /// Yields so far; each kernel thread may have made some hundred more.
    pub(super) fn yields(&self) -> u64 {
        sum(|of| &of.yields)
    }

    /// Ends all threads, and checks that each of them ran and that no yield is missing.
    pub(super) fn end(&self, due: u64) -> Result<Ended> {
        self.stop.0.store(true, Relaxed);
        while sum(|of| &of.ended) < due {
            std::thread::sleep(LOOK);
        }
        let ended = sum(|of| &of.ended);
        ensure!(ended == due, "{ended} threads ended, and {due} were made");
        let (by_threads, by_workers) = (sum(|of| &of.ended_yields), sum(|of| &of.yields));
        let all = ALL_COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let unseen = by_threads.wrapping_sub(by_workers);
        ensure!(
            unseen < FLUSH_EVERY * all.len() as u64,
            "the threads counted {by_threads} yields, and their workers {by_workers}"
        );
        Ok(Ended {
            least_yields: all.iter().map(|own| own.0.ended_least.load(Relaxed)).min().unwrap_or(0),
            most_yields: all.iter().map(|own| own.0.ended_most.load(Relaxed)).max().unwrap_or(0),
            never_ran: all.iter().map(|own| own.0.never_ran.load(Relaxed)).sum(),
        })
    }
}

fn sum(of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
    let all = ALL_COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    // Acquire: the following reads must see all writes of the ended threads.
    all.iter().map(|own| of(&own.0).load(std::sync::atomic::Ordering::Acquire)).sum()
}

/// The pause between two checks of progress.
const LOOK: Duration = Duration::from_micros(500);

/// Yields counted before others can see them.
const FLUSH_EVERY: u64 = 512;

/// Threads made between two checks of the memory.
const LOOK_EVERY: usize = 65_536;

/// The memory left to the machine.
const RESERVE_BYTES: u64 = 1 << 30;
