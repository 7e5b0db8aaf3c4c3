//! The holder of a `Held` color, for display only.

use crate::observe::dump::ColorState;
use crate::runtime::context;

/// A holder, in a form that fits into a word that is unused meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// A closure that was called in line, on that worker or outside.
    InLine(Option<usize>),
    /// A task that waited.
    Task,
    /// A waiter on another executor.
    Foreign,
    /// A request for several colors.
    Request,
    /// The thread that empties the color after its worker has stopped.
    Dropping,
}

impl Holder {
    /// A closure called in line by this thread.
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
    fn a_code_restores_its_holder() {
        for holder in [InLine(None), Task, Foreign, Request, Dropping, InLine(Some(0)), InLine(Some(1_023))] {
            assert_eq!(super::Holder::from_code(holder.code()), holder);
        }
    }
}
