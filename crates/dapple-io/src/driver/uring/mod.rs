//! Calls on files through io_uring, one ring per worker.
//!
//! A ring is made when its worker first needs it. Its descriptor is registered in the worker's epoll, so that an idle
//! worker still waits in one place. What the tasks of a worker begin is written to the submission queue, and handed to the
//! kernel in one system call when the worker next looks at its driver: before it sleeps, and every 50 us while it is busy.
//!
//! Threads that are no workers have no ring: their calls go to the blocking pool. The kernel cancels what a thread has
//! submitted when that thread ends, and workers are the threads that end last; and waking a worker to submit costs as much as
//! waking a thread of the pool.
//!
//! [`ring`] has the states of an operation, and who may touch a ring.

mod buffers;
#[cfg(not(dapple_loom))]
mod kernel;
#[cfg(dapple_loom)]
#[path = "model_kernel.rs"]
mod kernel;
mod operation;
mod request;
mod ring;
mod setup;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::current;
use super::slot::Slot;
pub(crate) use operation::Operation;
pub(crate) use request::{Call, INLINE_MAX, Memory, Request};
pub(crate) use ring::{Next, Ring};
pub(crate) use setup::{Limits, Refused, is_switched_off};

/// Where a call of this thread goes if not to the pool.
#[derive(Clone)]
pub(crate) struct Here(Arc<Slot>);

/// The ring of the present worker. `None` on other threads, and where io_uring is refused or switched off.
pub(crate) fn here() -> Option<Here> {
    let slot = current::own_slot()?;
    slot.ring_or_make().is_some().then_some(Here(slot))
}

impl Here {
    pub(crate) fn perform(&self, request: Request) -> Operation {
        Operation::new(self.0.clone(), request)
    }
}
