//! Room for requests, taken or waited for.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_sched::poll_budget;
use dapple_sync::sync::limit::Turn;

use super::super::device::Writer;
use super::core::{Core, Job, NoRoom};
use super::{Completion, Written};

/// Room for `count` requests; its drop gives unused room back.
pub(super) struct Room<W: Writer> {
    core: Arc<Core<W>>,
    /// The place in the waiting line.
    turn: Turn,
    count: usize,
}

impl<W: Writer> Room<W> {
    pub(super) fn new(core: Arc<Core<W>>) -> Self {
        Room { core, turn: Turn::default(), count: 0 }
    }

    pub(super) fn core(&self) -> &Arc<Core<W>> {
        &self.core
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes room for one more request, at once.
    pub(super) fn try_take(&mut self) -> Result<(), NoRoom> {
        self.core.try_room()?;
        self.count += 1;
        Ok(())
    }

    /// Takes room for at least one request; waits for it.
    pub(super) fn poll_one(&mut self, cx: &Context<'_>) -> Poll<Result<(), NoRoom>> {
        if self.count == 0 {
            ready!(self.core.poll_room(&mut self.turn, cx))?;
            self.count = 1;
            // The handle keeps the room until the next call.
            ready!(poll_budget(cx));
        }
        Poll::Ready(Ok(()))
    }

    /// Takes room for up to `max` requests together, as far as available.
    pub(super) fn fill(&mut self, max: usize) {
        self.count += self.core.take_more(max.saturating_sub(self.count));
    }

    /// Uses the room for one.
    pub(super) fn accept(&mut self, job: Job, to: Completion<Written>) {
        debug_assert!(self.count > 0, "a request without room");
        self.count -= 1;
        self.core.accept(job, to);
    }

    pub(super) fn release(&mut self) {
        self.core.forget_room(&mut self.turn);
        self.core.return_room(std::mem::take(&mut self.count));
    }
}

impl<W: Writer> Drop for Room<W> {
    fn drop(&mut self) {
        self.release();
    }
}
