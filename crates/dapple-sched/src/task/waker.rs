//! A task as a waker: a counted reference behind the standard library's table of functions.

use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::{Header, TaskRef};
use crate::runtime::context;

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone_waker, wake, wake_by_ref, drop_waker);

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

/// The task of a waker, with the waker's count, which the caller gives up or forgets.
///
/// # Safety
/// `data` is what `raw_waker` stored.
unsafe fn task_of(data: *const ()) -> TaskRef {
    // SAFETY: promised by the caller.
    TaskRef(unsafe { NonNull::new_unchecked(data as *mut Header) })
}

/// # Safety
/// As [`task_of`]; the waker keeps its count.
unsafe fn clone_waker(data: *const ()) -> RawWaker {
    // SAFETY: promised by the caller.
    let task = ManuallyDrop::new(unsafe { task_of(data) });
    mem::forget(TaskRef::clone(&task));
    raw_waker(task.0)
}

/// # Safety
/// As [`task_of`]; the waker's count is given up.
unsafe fn wake(data: *const ()) {
    // SAFETY: promised by the caller.
    let task = unsafe { task_of(data) };
    if !context::wake_polled(data) {
        task.wake();
    }
}

/// # Safety
/// As [`clone_waker`].
unsafe fn wake_by_ref(data: *const ()) {
    if !context::wake_polled(data) {
        // SAFETY: promised by the caller.
        ManuallyDrop::new(unsafe { task_of(data) }).wake();
    }
}

/// # Safety
/// As [`wake`].
unsafe fn drop_waker(data: *const ()) {
    // SAFETY: promised by the caller.
    drop(unsafe { task_of(data) });
}
