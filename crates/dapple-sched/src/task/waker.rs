//! A task as a waker: a counted reference behind the standard library's table of functions.

use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::{Header, TaskRef};
use crate::runtime::context;

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone_waker, wake, wake_by_ref, drop_waker);

/// The waker of a task for the time of a poll. It has no count of its own.
///
/// # Safety
/// The caller has a count for as long as it is used.
#[inline]
pub(crate) unsafe fn borrowed_waker(task: NonNull<Header>) -> ManuallyDrop<Waker> {
    // SAFETY: promised by the caller; it is not dropped.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(task)) })
}

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

#[inline]
fn raw_waker(task: NonNull<Header>) -> RawWaker {
    RawWaker::new(task.as_ptr() as *const (), &VTABLE)
}

/// # Safety
/// `data` is what `raw_waker` stored.
unsafe fn task_of(data: *const ()) -> NonNull<Header> {
    // SAFETY: promised by the caller.
    unsafe { NonNull::new_unchecked(data as *mut Header) }
}

/// # Safety
/// As [`task_of`]; the waker holds a count.
unsafe fn clone_waker(data: *const ()) -> RawWaker {
    // SAFETY: the waker that is cloned holds a count.
    let task = unsafe { task_of(data) };
    mem::forget(TaskRef::retain(task));
    raw_waker(task)
}

/// # Safety
/// As [`task_of`]; the waker's count is given up.
unsafe fn wake(data: *const ()) {
    // SAFETY: the waker's count is ours now.
    let task = TaskRef(unsafe { task_of(data) });
    if !context::wake_polled(data) {
        task.wake();
    }
}

/// # Safety
/// As [`task_of`]; the waker holds a count.
unsafe fn wake_by_ref(data: *const ()) {
    if !context::wake_polled(data) {
        // SAFETY: the waker holds a count, which stays its own.
        ManuallyDrop::new(TaskRef(unsafe { task_of(data) })).wake();
    }
}

/// # Safety
/// As [`task_of`]; the waker's count is given up.
unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker's count is ours now.
    drop(TaskRef(unsafe { task_of(data) }));
}
