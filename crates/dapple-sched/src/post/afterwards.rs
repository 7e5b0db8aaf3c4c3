//! What follows from a section under a worker's lock, to be done once that is released: others' code runs in it, and other
//! locks are taken.

use std::ptr::{self, NonNull};

use crate::color::cell::ColorCell;
use crate::color::node::Node;
use crate::hold;
use crate::post;
use crate::post::dispose;
use crate::runtime::shared::{Linked, Shared};
use crate::sync::atomic::Ordering::*;

/// What is to be done once the worker's lock is released.
pub(crate) struct Afterwards {
    /// Dead colors, chained through `remote_next`.
    pub(crate) dead: *mut ColorCell,
    /// Waiters for whom a color is held now, chained.
    pub(crate) granted: *mut Node,
    /// Colors that were taken off our list and whose home is another worker, chained likewise.
    pub(crate) strays: *mut ColorCell,
    /// A worker to whose queue a color was moved.
    pub(crate) kick: usize,
}

impl Afterwards {
    #[inline]
    pub(crate) fn new() -> Afterwards {
        Afterwards { dead: ptr::null_mut(), granted: ptr::null_mut(), strays: ptr::null_mut(), kick: NOBODY }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.dead.is_null() && self.granted.is_null() && self.strays.is_null() && self.kick == NOBODY
    }

    /// A color that nobody can reach any more: to be freed.
    ///
    /// # Safety
    /// `is_dead` said so.
    pub(crate) unsafe fn bury(&mut self, color: NonNull<ColorCell>) {
        // Relaxed: a list of this thread's own.
        // SAFETY: promised by the caller: it is there until it is freed from this list.
        unsafe { color.as_ref() }.remote_next.store(self.dead, Relaxed);
        self.dead = color.as_ptr();
    }

    /// Waiters, in a chain, for whom their colors are held now.
    pub(crate) fn grant(&mut self, chain: *mut Node) {
        let mut last = chain;
        while let Some(node) = NonNull::new(last) {
            // SAFETY: the chain is ours.
            let next = unsafe { node.as_ref() }.next.get();
            if next.is_null() {
                // SAFETY: as above.
                unsafe { node.as_ref() }.next.set(self.granted);
                self.granted = chain;
            }
            last = next;
        }
    }

    /// Frees, hands over and passes on, with no lock held.
    pub(crate) fn settle(self, shared: &Shared) {
        if self.kick != NOBODY {
            shared.kick(self.kick);
        }
        let mut dead = self.dead;
        while let Some(color) = NonNull::new(dead) {
            // SAFETY: `is_dead` said so; the chain is ours.
            unsafe {
                // Relaxed: as in `bury`.
                dead = color.as_ref().remote_next.load(Relaxed);
                hold::free(color);
            }
        }
        let mut strays = self.strays;
        while let Some(color) = NonNull::new(strays) {
            // SAFETY: taken off our list, and not linked since.
            unsafe {
                // Relaxed: as in `bury`.
                strays = color.as_ref().remote_next.load(Relaxed);
                pass_on(shared, color);
            }
        }
        // SAFETY: each of them has its color, and the chain is ours.
        unsafe { post::grant_all(self.granted) };
    }
}

/// Links a color, whose notification the caller owns, where it belongs.
///
/// # Safety
/// The caller owns the notification.
pub(crate) unsafe fn pass_on(shared: &Shared, color: NonNull<ColorCell>) {
    if shared.link_remote(color) == Linked::Closed {
        // SAFETY: promised by the caller; the home has stopped.
        unsafe { dispose::notified(color) };
    }
}

/// No worker.
const NOBODY: usize = usize::MAX;
