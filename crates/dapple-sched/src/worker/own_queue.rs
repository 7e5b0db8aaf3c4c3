//! The lock of a worker's own run queue, held by that worker.

use std::ops::{Deref, DerefMut};

use super::Worker;
use crate::color::rights::ColorTurn;
use crate::sync::lock::Guard;
use crate::worker::run_queue::RunQueue;

/// The locked run queue of this thread's worker.
pub(crate) struct OwnQueue<'w>(Guard<'w, RunQueue>);

impl Worker {
    /// Locks this worker's own run queue.
    #[inline]
    pub(crate) fn lock_own(&self) -> OwnQueue<'_> {
        OwnQueue(self.slot().lock())
    }
}

impl OwnQueue<'_> {
    /// Takes the next color, and begins a turn of it; see [`RunQueue::pop`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<ColorTurn> {
        // SAFETY: `pop` has made it `Running`; the queue belongs to this thread's worker, because
        // only that thread has a `&Worker`.
        self.0.pop().map(|color| unsafe { ColorTurn::new(color) })
    }
}

impl Deref for OwnQueue<'_> {
    type Target = RunQueue;

    #[inline]
    fn deref(&self) -> &RunQueue {
        &self.0
    }
}

impl DerefMut for OwnQueue<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut RunQueue {
        &mut self.0
    }
}
