//! The wait for a replica.
//!
//! This is not a [`Limit`](dapple_sync::sync::limit::Limit): a new replica takes every waiter, so
//! each change wakes them all, and they check again. There is no permit to grant or to return, and
//! no order among waiters.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::Picked;
use super::balancer::Balancer;
use crate::time::{Sleep, now};

/// See [`Balancer::wait`]. Cancel safe: if dropped, it has picked nothing.
#[must_use = "futures do nothing unless awaited"]
pub struct Wait<K: Clone + Eq + Hash, T: Clone> {
    balancer: Balancer<K, T>,
    place: TrialWait,
}

/// The registration of a waiting task, and the time of the next trial.
#[derive(Default)]
pub(super) struct TrialWait {
    pub(super) waiter: Option<u64>,
    next_trial: Option<(Instant, Sleep)>,
}

impl TrialWait {
    /// Wakes the task when the next trial is due; ready if that is now.
    pub(super) fn poll_trial(&mut self, next: Option<Instant>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(until) = next else {
            self.next_trial = None;
            return Poll::Pending;
        };
        if self.next_trial.as_ref().is_none_or(|(before, _)| *before != until) {
            self.next_trial = Some((until, Sleep::until(until)));
        }
        match &mut self.next_trial {
            Some((_, sleep)) => Pin::new(sleep).poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Wait<K, T> {
    pub(super) fn new(balancer: Balancer<K, T>) -> Wait<K, T> {
        Wait { balancer, place: TrialWait::default() }
    }

    /// If there is nothing to pick now, returns the time of the next trial; from here on each
    /// change wakes the task.
    fn look(&mut self, waker: &Waker) -> Option<Option<Instant>> {
        let mut next = None;
        let is_there = self.balancer.shared.look_or_wait(&mut self.place.waiter, waker, |replicas| {
            next = replicas.next_trial(|_| true);
            let is_due = next.is_some_and(|next| next <= now());
            (replicas.serving_len() > 0 || is_due).then_some(())
        });
        is_there.is_none().then_some(next)
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Future for Wait<K, T> {
    type Output = Picked<K, T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Picked<K, T>> {
        let this = self.get_mut();
        loop {
            if let Ok(picked) = this.balancer.pick() {
                this.balancer.shared.forget(&mut this.place.waiter);
                return Poll::Ready(picked);
            }
            if let Some(next) = this.look(cx.waker()) {
                std::task::ready!(this.place.poll_trial(next, cx));
            }
        }
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Unpin for Wait<K, T> {}

impl<K: Clone + Eq + Hash, T: Clone> Drop for Wait<K, T> {
    fn drop(&mut self) {
        self.balancer.shared.forget(&mut self.place.waiter);
    }
}

impl<K: Clone + Eq + Hash, T: Clone> fmt::Debug for Wait<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}
