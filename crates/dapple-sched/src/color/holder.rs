//! Who has a color that is `Held`. Nothing depends on it: it is there to be shown.

use crate::observe::dump::ColorState;
use crate::runtime::context;

/// Who has a color, in a form that fits into a word that is not used meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// A closure that was called in line, on that worker or outside.
    InLine(Option<usize>),
    /// A task that has waited.
    Task,
    /// A waiter on another executor.
    Foreign,
    /// A request for several colors.
    Request,
    /// Whoever empties it, as its worker has stopped.
    Dropping,
}

impl Holder {
    /// This thread, in line.
    #[inline]
    pub(crate) fn here() -> Holder {
        Holder::InLine(context::with_worker(|worker| worker.index))
    }

    #[inline]
    pub(crate) fn code(self) -> usize {
        match self {
            Holder::InLine(None) => 1,
            Holder::Task => 2,
            Holder::Foreign => 3,
            Holder::Request => 4,
            Holder::Dropping => 5,
            Holder::InLine(Some(worker)) => FIRST_WORKER + worker,
        }
    }

    pub(super) fn from_code(code: usize) -> Holder {
        match code {
            1 => Holder::InLine(None),
            2 => Holder::Task,
            3 => Holder::Foreign,
            4 => Holder::Request,
            FIRST_WORKER.. => Holder::InLine(Some(code - FIRST_WORKER)),
            _ => Holder::Dropping,
        }
    }

    pub(crate) fn shown(self) -> ColorState {
        match self {
            Holder::InLine(worker) => ColorState::InLine { worker },
            Holder::Task => ColorState::HandedToTask,
            Holder::Foreign => ColorState::HandedToForeign,
            Holder::Request => ColorState::HeldForRequest,
            Holder::Dropping => ColorState::Dropping,
        }
    }
}

const FIRST_WORKER: usize = 16;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use super::Holder::*;

    #[test]
    fn a_code_tells_who_it_is() {
        for holder in [InLine(None), Task, Foreign, Request, Dropping, InLine(Some(0)), InLine(Some(1_023))] {
            assert_eq!(super::Holder::from_code(holder.code()), holder);
        }
    }
}
