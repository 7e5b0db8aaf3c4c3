//! Finds the driver of the calling thread.

use std::cell::OnceCell;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use dapple_sched::Handle;

use super::reactor::Reactor;
use super::slot::Slot;
use super::standing::{self, Standing};
use super::{EpollDriver, Shared};

/// The reactor for a new descriptor.
pub(crate) fn reactor_for_source() -> io::Result<Arc<Reactor>> {
    with(|driver, worker| driver.least_loaded(worker).clone())
}

/// Calls `f` with the slot for a new timer, and whether the calling thread owns that slot.
#[inline]
pub(crate) fn with_slot_for_timer<R>(f: impl FnOnce(&Slot, bool) -> R) -> io::Result<R> {
    let mut f = Some(f);
    // An error: the thread is ending, and its locals were dropped.
    let done = OWN_SLOT.try_with(|own| own.get().map(|slot| f.take().map(|f| f(slot, true))));
    if let Ok(Some(Some(result))) = done {
        return Ok(result);
    }
    with_other_slot(f.take().expect("it was not called"))
}

#[cold]
fn with_other_slot<R>(f: impl FnOnce(&Slot, bool) -> R) -> io::Result<R> {
    let slot = with(|driver, worker| (driver.slot_for_timer(worker).clone(), worker.is_some()))?;
    Ok(f(&slot.0, slot.1))
}

/// On a worker, its slot.
pub(crate) fn own_slot() -> Option<Arc<Slot>> {
    // An error: the thread is ending, and its locals are gone.
    OWN_SLOT.try_with(|own| own.get().cloned()).ok().flatten()
}

/// Calls `f` with this thread's slot, if it is a worker.
pub(crate) fn with_own_slot<R>(f: impl FnOnce(Option<&Slot>) -> R) -> R {
    let mut f = Some(f);
    let mut call = |own: Option<&Slot>| f.take().expect("it is called once")(own);
    // An error: the thread is ending, and its locals are gone.
    match OWN_SLOT.try_with(|own| call(own.get().map(|own| &**own))) {
        Ok(result) => result,
        Err(_) => call(None),
    }
}

/// Whether this thread is the worker of this slot.
pub(crate) fn owns(slot: &Arc<Slot>) -> bool {
    OWN_SLOT.try_with(|own| own.get().is_some_and(|own| Arc::ptr_eq(own, slot))).unwrap_or(false)
}

/// Makes this thread, a worker, the permanent owner of a slot.
pub(crate) fn own(slot: Arc<Slot>) {
    OWN_SLOT.with(|own| {
        let first = own.set(slot).is_ok();
        debug_assert!(first, "a thread is a worker of one runtime");
    });
}

/// Now, by the clock of this thread's runtime; `None` if that is the real one.
pub(crate) fn standing_now() -> Option<Instant> {
    // If an environment moves the clock, it is also the thread's.
    if !standing::exist() || dapple_sched::environment::is_simulated() {
        return None;
    }
    match own_slot() {
        Some(slot) => slot.shared().standing.as_ref().map(Standing::now),
        None => shared().ok()?.standing.as_ref().map(Standing::now),
    }
}

/// The clock of the runtime that this thread works for or has entered; the oldest runtime of the
/// process does not count.
pub(crate) fn clock_of_thread() -> Option<Option<Instant>> {
    let now = |shared: &Shared| shared.standing.as_ref().map(Standing::now);
    if let Some(slot) = own_slot() {
        return Some(now(slot.shared()));
    }
    let handle = Handle::of_thread()?;
    handle.driver::<EpollDriver>().map(|driver| now(&driver.shared))
}

pub(crate) fn shared() -> io::Result<Arc<Shared>> {
    with(|driver, _| driver.shared.clone())
}

fn with<R>(f: impl FnOnce(&EpollDriver, Option<usize>) -> R) -> io::Result<R> {
    let handle = Handle::try_current().ok_or_else(|| {
        io::Error::other(
            "no Dapple runtime here: call this from a task or callback, or enter a runtime first (Runtime::enter)",
        )
    })?;
    let driver = handle.driver::<EpollDriver>().ok_or_else(|| {
        io::Error::other(
            "the Dapple runtime has no epoll driver: build it with dapple::builder() (dapple_io::runtime_builder()), or \
             give EpollDriver::new to Builder::driver",
        )
    })?;
    Ok(f(driver, handle.worker_index()))
}

#[cfg(not(dapple_loom))]
thread_local! {
    /// On a worker, its slot. The runtime knows it, too, but arming a timer should not use data
    /// that workers share.
    static OWN_SLOT: OnceCell<Arc<Slot>> = const { OnceCell::new() };
}

#[cfg(dapple_loom)]
loom::thread_local! {
    static OWN_SLOT: OnceCell<Arc<Slot>> = OnceCell::new();
}
