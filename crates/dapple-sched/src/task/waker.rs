//! A task as a waker: a counted reference behind the standard library's table of functions.

use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::{Header, TaskRef};
use crate::runtime::context;

/// Each is given what [`raw_waker`] stored: the waker's count, which the last two take.
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

/// Whether a waker is that of the light task that this thread polls; if so, the task is woken.
#[inline]
pub(crate) fn wake_if_polled(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &VTABLE) && context::wake_polled(waker.data())
}

/// Whether a waker is that of a task. It may say no by mistake.
pub(crate) fn is_waker_of_task(waker: &Waker) -> bool {
    is_table(waker.vtable())
}

/// Whether a waker of this table is that of a task, whose address its data then is.
pub(crate) fn is_table(table: &'static RawWakerVTable) -> bool {
    std::ptr::eq(table, &VTABLE)
}

/// What becomes a waker with the caller's count.
#[inline]
pub(super) fn raw_waker(task: NonNull<Header>) -> RawWaker {
    RawWaker::new(task.as_ptr() as *const (), &VTABLE)
}

/// The task of a waker, with the waker's count.
///
/// # Safety
/// `data` is what `raw_waker` stored, and the count is there for as long as what is returned is used.
unsafe fn task_of(data: *const ()) -> ManuallyDrop<TaskRef> {
    // SAFETY: promised by the caller.
    ManuallyDrop::new(TaskRef(unsafe { NonNull::new_unchecked(data as *mut Header) }))
}
