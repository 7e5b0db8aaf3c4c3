//! A grant of a throttle, until it is used.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::discipline::Charge;
use super::key::Key;
use super::shared::{Shared, Throttle};
use super::until::UntilReady;
use crate::Refused;

/// A permission to go; dropping it unused gives it back.
pub(crate) struct Grant<K: Key> {
    shared: Arc<Shared<K>>,
    key: K,
    cost: u64,
    charge: Option<Charge>,
}

impl<K: Key> Grant<K> {
    /// Takes a grant at once, or fails.
    pub(crate) fn take(throttle: &Throttle<K>, key: K, cost: u64) -> Result<Grant<K>, Refused> {
        let charge = throttle.try_take_charged(&key, cost)?;
        Ok(Grant { shared: throttle.shared().clone(), key, cost, charge: Some(charge) })
    }

    /// Ready with the grant.
    pub(crate) fn poll(waits: &mut UntilReady<K>, cx: &mut Context<'_>) -> Poll<Result<Grant<K>, Refused>> {
        let charge = ready!(waits.poll_charged(cx))?;
        let (shared, key, cost) = waits.what();
        Poll::Ready(Ok(Grant { shared, key, cost, charge: Some(charge) }))
    }

    pub(crate) fn spend(mut self) {
        self.charge = None;
    }
}

impl<K: Key> Drop for Grant<K> {
    fn drop(&mut self) {
        if let Some(charge) = self.charge.take().filter(|_| self.cost > 0) {
            self.shared.put_back(&self.key, self.cost, charge);
        }
    }
}

impl<K: Key> fmt::Debug for Grant<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("cost", &self.cost).finish_non_exhaustive()
    }
}
