//! The time slice of a turn, with few clock readings for short callbacks.

use std::cell::Cell;
use std::time::Instant;

use crate::environment::measured_now;

/// Tells a turn when to make room for I/O, timers and other colors.
pub(crate) struct Slice {
    /// Not set until the first reading, if the callbacks are known to be short.
    started: Cell<Option<Instant>>,
}

impl Slice {
    /// `timed`: reads the clock at once, because the turn is a sample.
    #[inline]
    pub(crate) fn start(timed: bool) -> Slice {
        Slice { started: Cell::new(timed.then(measured_now)) }
    }

    /// Whether the clock was started.
    pub(super) fn is_timed(&self) -> bool {
        self.started.get().is_some()
    }

    /// Whether the slice is over. Call it after as many callbacks as [`until_look`] says.
    pub(super) fn is_over(&self, slice_ns: u64) -> bool {
        if self.started.get().is_none() {
            self.started.set(Some(measured_now()));
        }
        self.elapsed_ns() > slice_ns
    }

    /// The time of the first clock reading.
    pub(crate) fn started(&self) -> Option<Instant> {
        self.started.get()
    }

    /// Time since the start; zero if the clock was not read.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        // A model must not depend on the clock.
        let started = self.started.get().filter(|_| cfg!(not(any(dapple_loom, dapple_shuttle))));
        started.map_or(0, |started| (measured_now() - started).as_nanos() as u64)
    }
}

/// The smoothed mean of a sampled time, from the former mean (0: none) and one more sample. An
/// outlier counts little, and later samples soon outweigh it: the thread may have been preempted
/// for some milliseconds.
#[inline]
pub(crate) fn smooth(mean_ns: u32, sample_ns: u32) -> u32 {
    if mean_ns == 0 {
        return sample_ns;
    }
    // With a lower limit, because a mean of one nanosecond could not grow by less than one.
    let counted = sample_ns.min(mean_ns.saturating_mul(4).max(COUNTED_MIN_NS));
    (mean_ns / 4 * 3 + counted / 4 + (mean_ns % 4 * 3 + counted % 4) / 4).min(sample_ns.saturating_mul(4))
}

/// How many callbacks may run until the next clock reading: one while nothing is known (`mean_ns`
/// is 0); at most sixteen short ones, so that a callback that suddenly takes a millisecond delays
/// the end of the turn by at most sixteen; 64 if sixteen take less time than half a dozen readings.
#[inline]
pub(super) fn until_look(mean_ns: u16) -> u32 {
    match mean_ns {
        0 => 1,
        1..TINY_NS => 64,
        mean_ns => (LOOK_EVERY_NS / u32::from(mean_ns)).clamp(1, 16),
    }
}

/// The default time for which one color may run while others wait.
pub(super) const SLICE_NS: u64 = 500_000;

/// A shorter callback costs no more than a clock reading.
pub(super) const TINY_NS: u16 = 50;

/// The time that may pass between two clock readings, judged by earlier callbacks.
const LOOK_EVERY_NS: u32 = 32_000;

/// A sample always counts at least this much.
const COUNTED_MIN_NS: u32 = 100;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::smooth;

    #[test]
    fn one_sample_that_is_far_off_is_soon_forgotten() {
        assert_eq!(smooth(0, 700), 700, "the first one counts in full");
        let preempted = smooth(200, 4_000_000);
        assert!((200..=400).contains(&preempted), "{preempted}");
        assert!(smooth(4_000_000, 200) <= 800);
    }

    #[test]
    fn a_mean_follows_what_has_changed_for_good() {
        for (before, after) in [(100, 50_000), (50_000, 100), (30, 40), (1, 1_000_000)] {
            let mean = (0..60).fold(before, |mean, _| smooth(mean, after));
            assert!(mean.abs_diff(after) <= after / 8 + 3, "{before} to {after}: {mean}");
        }
        assert_eq!(smooth(500, 500), 500);
    }
}
