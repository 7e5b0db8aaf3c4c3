//! The wait until a cost may pass.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::discipline::{Charge, Ticket};
use super::key::Key;
use super::shared::Shared;
use crate::Refused;

/// See [`Throttle::until_ready`](super::Throttle::until_ready).
///
/// Cancel safe: dropping it leaves the queue, and returns an unused grant.
#[must_use = "futures do nothing unless awaited"]
pub struct UntilReady<K: Key = ()> {
    shared: Arc<Shared<K>>,
    key: K,
    cost: u64,
    /// From the first poll on, until its result.
    ticket: Option<Ticket>,
}

impl<K: Key> UntilReady<K> {
    pub(super) fn new(shared: Arc<Shared<K>>, key: K, cost: u64) -> UntilReady<K> {
        UntilReady { shared, key, cost, ticket: None }
    }

    /// The throttle, the key and the cost.
    pub(super) fn what(&self) -> (Arc<Shared<K>>, K, u64) {
        (self.shared.clone(), self.key.clone(), self.cost)
    }

    /// As `poll`, for callers that may give the grant back.
    pub(super) fn poll_charged(&mut self, cx: &mut Context<'_>) -> Poll<Result<Charge, Refused>> {
        if self.cost == 0 {
            return Poll::Ready(Ok(Charge::Borrowed));
        }
        self.shared.poll(&mut self.ticket, &self.key, self.cost, cx.waker()).map_or(Poll::Pending, Poll::Ready)
    }
}

impl<K: Key> Future for UntilReady<K> {
    type Output = Result<(), Refused>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_charged(cx).map_ok(|_| ())
    }
}

impl<K: Key> Unpin for UntilReady<K> {}

impl<K: Key> Drop for UntilReady<K> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.cancel(ticket, &self.key, self.cost);
        }
    }
}

impl<K: Key> fmt::Debug for UntilReady<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntilReady").field("cost", &self.cost).finish_non_exhaustive()
    }
}
