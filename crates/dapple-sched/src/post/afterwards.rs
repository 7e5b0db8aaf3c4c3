//! Work that a section under a worker's lock leaves for the time after the lock's release, because
//! the work runs foreign code, or takes other locks.

use crate::color::node::Granted;
use crate::color::rights::{ColorList, Dead, Hold, Notified};
use crate::hold;
use crate::post;
use crate::post::dispose;
use crate::runtime::shared::Shared;

/// Work for the time after the release of the worker's lock.
pub(crate) struct Afterwards {
    pub(crate) dead: ColorList<Dead>,
    /// Waiters that have a color held for them now.
    pub(crate) granted: Granted,
    /// Colors that this worker took off its list, but that are at home on another worker.
    pub(crate) strays: ColorList<Notified>,
    /// A hold that has ended, of a color at home on another worker.
    pub(crate) held: Option<Hold>,
    /// A worker that got a color in its queue.
    pub(crate) kick: usize,
}

impl Afterwards {
    #[inline]
    pub(crate) fn new() -> Afterwards {
        Afterwards {
            dead: ColorList::new(),
            granted: Granted::none(),
            strays: ColorList::new(),
            held: None,
            kick: NOBODY,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        let lists_are_empty = self.dead.is_empty() && self.granted.is_empty() && self.strays.is_empty();
        lists_are_empty && self.held.is_none() && self.kick == NOBODY
    }

    /// Frees, hands over and passes on, with no lock held.
    pub(crate) fn settle(mut self, shared: &Shared) {
        if self.kick != NOBODY {
            shared.kick(self.kick);
        }
        self.held.take().into_iter().for_each(hold::release);
        while let Some(color) = self.dead.pop() {
            // SAFETY: no lock is held, and `shared` is kept by the worker.
            unsafe { hold::free(color) };
        }
        while let Some(color) = self.strays.pop() {
            pass_on(color);
        }
        post::grant_all(self.granted);
    }
}

/// Links a color at its home, or drops its callbacks if that worker has stopped.
pub(crate) fn pass_on(color: Notified) {
    if let Some(left) = color.link() {
        dispose::notified(left);
    }
}

/// No worker.
const NOBODY: usize = usize::MAX;
