//! Calls on files through io_uring, one ring per worker.
//!
//! A worker makes its ring at the first use. The ring's descriptor is registered in the worker's
//! epoll, so that an idle worker still waits in one place. Calls of a worker's tasks go to the
//! submission queue. The worker passes them to the kernel in one system call when it next polls its
//! driver: before it sleeps, and every 50 us while it is busy.
//!
//! Threads that are not workers have no ring: their calls go to the blocking pool. The kernel
//! cancels a thread's submissions when the thread ends, and workers end last of all threads. And to
//! wake a worker so that it submits costs as much as to wake a thread of the pool.
//!
//! [`ring`] has the states of an operation, and which threads may touch a ring.

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

/// The worker that performs a call of this thread, instead of the pool.
#[derive(Clone)]
pub(crate) struct Here(Arc<Slot>);

/// The ring of the current worker. `None` on other threads, and if io_uring is refused or switched
/// off.
pub(crate) fn here() -> Option<Here> {
    let slot = current::own_slot()?;
    slot.ring_or_make().is_some().then_some(Here(slot))
}

impl Here {
    pub(crate) fn perform(&self, request: Request) -> Operation {
        Operation::new(self.0.clone(), request)
    }
}
