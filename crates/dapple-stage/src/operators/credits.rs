//! Permits of a limit for types that are polled before they are called, as services are.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sync::sync::limit::{Acquire, Limit, Permit};
use dapple_tower::middleware::shedding;

use crate::{Reason, Refused};

/// Claims one permit at a time; a clone is another claim.
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

    /// Ready when a permit is held. A pending claim keeps its position in the queue until it is
    /// dropped; inside a `Shed` it gets none.
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
        self.permit = Some(acquired.expect("the waiting line is unbounded, and the limit is never closed"));
        Poll::Ready(())
    }

    /// Takes the permit that `poll_ready` acquired.
    pub(crate) fn take(&mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl Clone for Claim {
    fn clone(&self) -> Claim {
        Claim::new(self.limit.clone())
    }
}
