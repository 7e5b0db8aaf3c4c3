//! The clock of traces: the processor's cycle counter, where it runs evenly and is the same on all cores.
//!
//! A reading takes a third of the time of [`Instant::now`], and a traced callback takes two. Its times are instants of the
//! same clock, but for an error of some microseconds in a recording of seconds.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::*};
// REAL: it measures the speed of the processor's counter; a simulation has its own clock here, too.
use std::time::{Duration, Instant};

use crate::environment::{is_simulated, measured_now};

/// Turns readings of the counter into instants.
pub(crate) struct Ticks {
    /// The same moment by both clocks; `None` if the counter cannot be used.
    base: Option<(Instant, u64)>,
    /// Nanoseconds of a tick, times 2^32; 0 while that is not known.
    ns_per_tick: AtomicU64,
}

impl Ticks {
    pub(crate) fn new() -> Ticks {
        let base = is_even().then(both);
        Ticks { base, ns_per_tick: AtomicU64::new(0) }
    }

    /// Measures the counter's speed since [`Ticks::new`], unless that was a moment ago.
    pub(crate) fn measure(&self) {
        let Some((begin, ticks)) = self.base else { return };
        let now = both();
        let (passed, ticks) = (now.0.saturating_duration_since(begin), now.1.saturating_sub(ticks));
        if passed >= MEASURED_MIN && ticks > 0 {
            let ns_per_tick = (passed.as_nanos() << 32) / u128::from(ticks);
            // Relaxed: either speed is good enough.
            self.ns_per_tick.store(u64::try_from(ns_per_tick).unwrap_or(0), Relaxed);
        }
    }

    /// Now, by the counter if its speed is known.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        let ns_per_tick = self.ns_per_tick.load(Relaxed);
        match self.base {
            Some((begin, ticks)) if ns_per_tick > 0 && !is_simulated() => {
                let passed = counter().saturating_sub(ticks);
                begin + Duration::from_nanos(((u128::from(passed) * u128::from(ns_per_tick)) >> 32) as u64)
            }
            _ => measured_now(),
        }
    }
}

/// The same moment by both clocks: the best of some readings, because any may be interrupted.
fn both() -> (Instant, u64) {
    let reading = || {
        let (before, now, after) = (counter(), Instant::now(), counter());
        (after.saturating_sub(before), (now, before + after.saturating_sub(before) / 2))
    };
    let best = (0..READINGS).map(|_| reading()).min_by_key(|reading| reading.0);
    best.map_or_else(|| (Instant::now(), counter()), |reading| reading.1)
}

const READINGS: usize = 8;

/// The counter, if there is one.
#[inline]
fn counter() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: all processors of this kind have the instruction; a kernel that forbids it to programs keeps no clock by
    // it, and then `is_even` is false.
    let ticks = unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let ticks = 0;
    ticks
}

/// Whether the kernel keeps its own clock by the counter. It has checked all cores.
fn is_even() -> bool {
    static IS_EVEN: OnceLock<bool> = OnceLock::new();
    let of_kernel = || std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let can = cfg!(all(target_arch = "x86_64", target_os = "linux", not(miri), not(dapple_loom), not(dapple_shuttle)));
    can && *IS_EVEN.get_or_init(|| of_kernel().is_ok_and(|source| source.trim() == "tsc"))
}

/// The shortest time in which the speed is measured: a reading is off by less than 100 ns.
const MEASURED_MIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_between_readings_of_the_other_clock() {
        let ticks = Ticks::new();
        let at_first = (Instant::now(), ticks.now(), Instant::now());
        assert!(at_first.0 <= at_first.1 && at_first.1 <= at_first.2, "the speed is not known: {at_first:?}");
        while ticks.base.is_some_and(|(begin, _)| begin.elapsed() < Duration::from_millis(20)) {}
        ticks.measure();
        let mut last = None;
        for _ in 0..1_000 {
            let (before, now, after) = (Instant::now(), ticks.now(), Instant::now());
            // A thousandth of 20 ms, for a reading that was interrupted while the speed was measured.
            let error = Duration::from_micros(20) + (after - ticks.base.map_or(after, |base| base.0)) / 1_000;
            assert!(before <= now + error && now <= after + error, "{before:?} {now:?} {after:?}");
            assert!(last <= Some(now), "it never runs backwards");
            last = Some(now);
        }
    }
}
