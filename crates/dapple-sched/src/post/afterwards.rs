//! What follows from a section under a worker's lock, to be done once that is released: others' code runs in it, and other
//! locks are taken.

use crate::color::node::Granted;
use crate::color::rights::{ColorList, Dead, Hold, Notified};
use crate::hold;
use crate::post;
use crate::post::dispose;
use crate::runtime::shared::Shared;

/// What is to be done once the worker's lock is released.
pub(crate) struct Afterwards {
    pub(crate) dead: ColorList<Dead>,
    /// Waiters for whom a color is held now.
    pub(crate) granted: Granted,
    /// Colors that were taken off our list and whose home is another worker.
    pub(crate) strays: ColorList<Notified>,
    /// What is held no longer, of a color whose home is another worker.
    pub(crate) held: Option<Hold>,
    /// A worker to whose queue a color was moved.
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

/// Links a color where it belongs, or sees to what is in it if its worker has stopped.
pub(crate) fn pass_on(color: Notified) {
    if let Some(left) = color.link() {
        dispose::notified(left);
    }
}

/// No worker.
const NOBODY: usize = usize::MAX;
