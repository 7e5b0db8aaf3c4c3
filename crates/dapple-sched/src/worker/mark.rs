//! The mark by which the monitor lets thieves help a worker that ends no turn.
//!
//! | level | the monitor found | thieves take |
//! |---|---|---|
//! | `NONE` | nothing | by the ordinary rules |
//! | `PREEMPTED` | its thread is ready to run, and others have the processor | colors that are worth moving, events and timers |
//! | `OVERDUE` | it is in a long callback, or blocked in one | everything |
//! | `SERVED` | as `OVERDUE` | nothing until the monitor marks it again: a thief has just taken work from it |
//!
//! A mark names its turn by the number of turns that the worker had ended before. It is void once
//! that turn has ended, so the worker never removes it. So a worker's turns cost no more, and no
//! thief takes work from a worker because of a callback that is over.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A worker's mark; see the module's table. All accesses are `Relaxed`: a hint for thieves, which
/// look under the locks.
#[derive(Default)]
pub(crate) struct Mark(AtomicU64);

/// The rights of thieves beyond the ordinary rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Help {
    /// None.
    No,
    /// To take all colors that are worth moving, events and timers.
    Paying,
    /// To take everything.
    All,
}

impl Mark {
    /// Marks the worker, after this many turns, as preempted in the next one.
    pub(super) fn set_preempted(&self, turns: u64) {
        self.0.store(turns << LEVEL_BITS | PREEMPTED, Relaxed);
    }

    /// Marks the worker, after this many turns, as in a long callback.
    pub(super) fn set_overdue(&self, turns: u64) {
        self.0.store(turns << LEVEL_BITS | OVERDUE, Relaxed);
    }

    /// Removes the mark: the worker sleeps.
    pub(super) fn clear(&self) {
        self.0.store(NONE, Relaxed);
    }

    /// Marks it overdue for all turns: in models, workers steal at any time.
    #[cfg(any(dapple_loom, dapple_shuttle))]
    pub(crate) fn set_overdue_for_good(&self) {
        self.0.store(ANY_TURN | OVERDUE, Relaxed);
    }

    /// Notes that a thief was there. Called under the worker's lock.
    pub(super) fn serve(&self) {
        let mark = self.0.load(Relaxed);
        self.0.store(if mark & LEVELS == OVERDUE { mark | SERVED } else { NONE }, Relaxed);
    }

    /// The rights of thieves. `turns`: the number of turns that the worker has ended.
    #[inline]
    pub(crate) fn help(&self, turns: impl FnOnce() -> u64) -> Help {
        match self.level(turns) {
            PREEMPTED => Help::Paying,
            OVERDUE => Help::All,
            _ => Help::No,
        }
    }

    /// Whether the worker is in a long callback.
    pub(crate) fn is_overdue(&self, turns: impl FnOnce() -> u64) -> bool {
        matches!(self.level(turns), OVERDUE | SERVED)
    }

    #[inline]
    fn level(&self, turns: impl FnOnce() -> u64) -> u64 {
        let mark = self.0.load(Relaxed);
        let valid = mark & LEVELS != NONE && (is_for_good(mark) || mark >> LEVEL_BITS == turns());
        if valid { mark & LEVELS } else { NONE }
    }
}

fn is_for_good(mark: u64) -> bool {
    cfg!(any(dapple_loom, dapple_shuttle)) && mark & ANY_TURN == ANY_TURN
}

const LEVEL_BITS: u32 = 2;
const LEVELS: u64 = (1 << LEVEL_BITS) - 1;

const NONE: u64 = 0;
const PREEMPTED: u64 = 1;
const OVERDUE: u64 = 2;
const SERVED: u64 = 3;

/// In models: the mark covers all turns.
const ANY_TURN: u64 = !LEVELS;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::{Help, Mark};

    #[test]
    fn a_mark_is_void_once_its_turn_has_ended() {
        let mark = Mark::default();
        assert_eq!(mark.help(|| 0), Help::No);
        mark.set_overdue(7);
        assert_eq!((mark.help(|| 7), mark.is_overdue(|| 7)), (Help::All, true));
        assert_eq!((mark.help(|| 8), mark.is_overdue(|| 8)), (Help::No, false));
        mark.set_preempted(8);
        assert_eq!((mark.help(|| 8), mark.is_overdue(|| 8)), (Help::Paying, false));
        assert_eq!(mark.help(|| 9), Help::No);
    }

    #[test]
    fn a_mark_helps_once_until_it_is_set_again() {
        let mark = Mark::default();
        mark.set_overdue(0);
        mark.serve();
        assert_eq!((mark.help(|| 0), mark.is_overdue(|| 0)), (Help::No, true));
        mark.set_overdue(0);
        assert_eq!(mark.help(|| 0), Help::All);
        mark.set_preempted(0);
        mark.serve();
        assert_eq!(mark.help(|| 0), Help::No);
    }
}
