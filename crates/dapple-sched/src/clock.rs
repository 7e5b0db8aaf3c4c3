//! The time slice of a turn, read from the clock as seldom as the callbacks are short.

use std::cell::Cell;
use std::time::Instant;

/// Tells a turn when to make room for I/O, timers and other colors.
pub(crate) struct Slice {
    started: Option<Instant>,
    /// Callbacks until the next look at the clock.
    countdown: Cell<u32>,
}

impl Slice {
    /// Starts the clock if the turn is long enough to need one.
    #[inline]
    pub(crate) fn start(timed: bool) -> Slice {
        Slice { started: timed.then(Instant::now), countdown: Cell::new(1) }
    }

    /// Whether the clock was started.
    pub(crate) fn is_timed(&self) -> bool {
        self.started.is_some()
    }

    /// Called after each callback but the last. `mean_ns` is what a callback of this color takes, as far as known.
    #[inline]
    pub(crate) fn is_over(&self, mean_ns: impl FnOnce() -> u16) -> bool {
        let left = self.countdown.get() - 1;
        if left > 0 {
            self.countdown.set(left);
            return false;
        }
        self.look(mean_ns())
    }

    fn look(&self, mean_ns: u16) -> bool {
        // Sixteen short callbacks at most between two looks: a callback that suddenly takes a millisecond delays the
        // end of the turn by sixteen.
        let until_next = LOOK_EVERY_NS / u32::from(mean_ns.max(1));
        self.countdown.set(if mean_ns == 0 { 1 } else { until_next.clamp(1, 16) });
        // A model must not depend on the clock.
        cfg!(not(any(dapple_loom, dapple_shuttle))) && self.elapsed_ns() > SLICE_NS
    }

    /// Time since the start; zero where the turn is not timed.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        self.started.map_or(0, |started| started.elapsed().as_nanos() as u64)
    }
}

/// How long one color may run while others wait.
pub(crate) const SLICE_NS: u64 = 500_000;

/// How much time may pass between two looks at the clock, by what callbacks took so far.
const LOOK_EVERY_NS: u32 = 32_000;
