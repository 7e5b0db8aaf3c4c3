//! Permits of a limit for what is polled before it is called, as services are.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sync::sync::limit::{Acquire, Limit, Permit};
use dapple_tower::middleware::shedding;

use crate::{Reason, Refused};

/// One that wants a permit at a time; a clone is another.
pub(crate) struct Claim {
    limit: Limit,
    acquire: Option<Acquire>,
    permit: Option<Permit>,
}

impl Claim {
    pub(crate) fn new(limit: Limit) -> Claim {
        Claim { limit, acquire: None, permit: None }
    }

    pub(crate) fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Ready when a permit is held. A claim that was pending keeps its place in line until it is dropped; inside of a `Shed` it
    /// gets none.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.permit.is_some() {
            return Poll::Ready(());
        }
        if self.acquire.is_none() {
            self.permit = self.limit.try_acquire();
            if self.permit.is_some() {
                return Poll::Ready(());
            }
            if !shedding::would_wait() {
                shedding::decline(Refused::new(Reason::Full { len: self.limit.used() }, Duration::ZERO));
                return Poll::Pending;
            }
        }
        let acquire = self.acquire.get_or_insert_with(|| self.limit.acquire());
        let Poll::Ready(acquired) = Pin::new(acquire).poll(cx) else { return Poll::Pending };
        self.acquire = None;
        self.permit = Some(acquired.expect("its line has no bound, and it is never closed"));
        Poll::Ready(())
    }

    /// Takes the permit along that `poll_ready` has got.
    pub(crate) fn take(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl Clone for Claim {
    fn clone(&self) -> Claim {
        Claim::new(self.limit.clone())
    }
}
