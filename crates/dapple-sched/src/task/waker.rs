//! A task as a waker: a counted reference under the standard library's table of functions.

use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::{Header, TaskRef};
use crate::runtime::context;

/// Each function gets the data that [`raw_waker`] stored: the waker's count, which the last two
/// take.
static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: see above.
        let task = unsafe { task_of(data) };
        mem::forget(TaskRef::clone(&task));
        raw_waker(task.0)
    },
    |data| {
        // SAFETY: see above.
        let task = ManuallyDrop::into_inner(unsafe { task_of(data) });
        if !context::wake_polled(data) {
            task.wake();
        }
    },
    |data| {
        if !context::wake_polled(data) {
            // SAFETY: see above.
            unsafe { task_of(data) }.wake();
        }
    },
    // SAFETY: see above.
    |data| drop(ManuallyDrop::into_inner(unsafe { task_of(data) })),
);

/// Wakes the light task that this thread polls, if the waker is its own; returns whether it is.
#[inline]
pub(crate) fn wake_if_polled(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &VTABLE) && context::wake_polled(waker.data())
}

/// Whether a waker belongs to a task. May return false by mistake.
pub(crate) fn is_waker_of_task(waker: &Waker) -> bool {
    is_table(waker.vtable())
}

/// Whether a waker with this table belongs to a task; its data is then the task's address.
pub(crate) fn is_table(table: &'static RawWakerVTable) -> bool {
    std::ptr::eq(table, &VTABLE)
}

/// A raw waker with the caller's count.
#[inline]
pub(super) fn raw_waker(task: NonNull<Header>) -> RawWaker {
    RawWaker::new(task.as_ptr() as *const (), &VTABLE)
}

/// The task of a waker, with the waker's count.
///
/// # Safety
/// `data` comes from `raw_waker`, and the count exists as long as the result is used.
unsafe fn task_of(data: *const ()) -> ManuallyDrop<TaskRef> {
    // SAFETY: promised by the caller.
    ManuallyDrop::new(TaskRef(unsafe { NonNull::new_unchecked(data as *mut Header) }))
}
