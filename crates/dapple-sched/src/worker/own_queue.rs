//! The lock of a worker's own run queue, held by that worker.

use std::ops::{Deref, DerefMut};

use super::Worker;
use crate::sync::lock::Guard;
use crate::worker::run_queue::RunQueue;

/// The run queue of the worker that is this thread, locked.
pub(crate) struct OwnQueue<'w>(Guard<'w, RunQueue>);

impl Worker {
    /// Locks this worker's own run queue.
    #[inline]
    pub(crate) fn lock_own(&self) -> OwnQueue<'_> {
        OwnQueue(self.slot().lock())
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
