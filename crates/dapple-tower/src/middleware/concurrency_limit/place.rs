//! One of a limited number of places, acquired by polling.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_sync::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::Refused;
use crate::middleware::shedding;

/// Queues for a permit, and keeps it until it is taken. Dropping it returns either.
pub(in crate::middleware) struct PermitWait {
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    acquires: Option<Acquire>,
}

type Acquire = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>;

impl PermitWait {
    pub(in crate::middleware) fn new(semaphore: Arc<Semaphore>) -> PermitWait {
        PermitWait { semaphore, permit: None, acquires: None }
    }

    /// Ready when this has a permit. Inside a `Shed` it does not enter the line, and declines with
    /// `refused`.
    pub(in crate::middleware) fn poll_taken(
        &mut self,
        cx: &mut Context<'_>,
        refused: impl FnOnce() -> Refused,
    ) -> Poll<()> {
        if self.permit.is_some() {
            return Poll::Ready(());
        }
        // A limit with a queued caller grants its permit there; it may have done so by now.
        if self.acquires.is_none() {
            self.permit = self.semaphore.clone().try_acquire_owned().ok();
            if self.permit.is_some() {
                return Poll::Ready(());
            }
            if !shedding::would_wait() {
                shedding::decline(refused());
                return Poll::Pending;
            }
        }
        let acquires = self.acquires.get_or_insert_with(|| Box::pin(self.semaphore.clone().acquire_owned()));
        let permit = ready!(acquires.as_mut().poll(cx));
        self.acquires = None;
        self.permit = permit.ok();
        // `None` if another owner has closed the semaphore; no permit comes any more.
        if self.permit.is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The permit, for the request that begins now.
    pub(in crate::middleware) fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        self.permit.take()
    }
}

/// In the same line, at its end.
impl Clone for PermitWait {
    fn clone(&self) -> PermitWait {
        PermitWait::new(self.semaphore.clone())
    }
}

impl fmt::Debug for PermitWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitWait").field("free", &self.semaphore.available_permits()).finish_non_exhaustive()
    }
}
