//! Sweeping: waits that were dropped are taken out of the color that they stand in.
//!
//! A wait that is dropped leaves its node where it is, since a node in the middle of a list cannot be found. The color
//! passes over it when it gets there. A color that is busy for long would collect such nodes, as one does whose callers
//! time out again and again. So each color counts them, and when they are half of what waits, and at least 64, the thread that
//! dropped the last one takes them out: constant work for each wait, on average.
//!
//! The inbox is swept always: the home lock and `FROZEN` keep others from it. The fifo is swept while the color is `Held` or
//! `Reading`, when the home lock owns it. While the color is `Running`, its turn owns the fifo, and drains the inbox into
//! it only when the callback posts to its own color. While it is `Queued`, it gets there soon.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use crate::color::cell::{ColorCell, State};
use crate::color::node::Node;
use crate::observe::trace;
use crate::post;
use crate::runtime::shared::Shared;

/// A wait in this color was dropped.
///
/// # Safety
/// The color is alive for the call, and no lock is held.
pub(crate) unsafe fn one(color: NonNull<ColorCell>) {
    // SAFETY: promised by the caller.
    unsafe {
        if is_due(color) {
            sweep(color);
        }
    }
}

/// Sweeps each of these colors.
///
/// # Safety
/// As [`one`].
pub(crate) unsafe fn each(colors: &[NonNull<ColorCell>]) {
    // SAFETY: promised by the caller.
    colors.iter().for_each(|color| unsafe { sweep(*color) });
}

/// Counts a wait that was dropped. Whether so many were by now that the color is to be swept.
///
/// # Safety
/// The color is alive for the call.
pub(crate) unsafe fn is_due(color: NonNull<ColorCell>) -> bool {
    // SAFETY: promised by the caller.
    let cell = unsafe { color.as_ref() };
    cell.ext.get_or_make().count_dropped_wait(cell.queued())
}

/// # Safety
/// As [`one`].
#[cold]
unsafe fn sweep(color: NonNull<ColorCell>) {
    // SAFETY: promised by the caller.
    let cell = unsafe { color.as_ref() };
    let shared = cell.shared();
    let (_, queue) = shared.lock_home(cell);
    let (mut from_fifo, mut admitted) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: we hold the home lock, which owns the fifo in these two states.
    let from_inbox = unsafe {
        let state = cell.state();
        if matches!(state, State::Held | State::Reading) {
            from_fifo = cell.unlink_dropped();
            if state == State::Reading {
                // A writer that was dropped may have stood before them.
                admitted = cell.admit_readers(None);
            }
        }
        cell.unlink_dropped_from_inbox()
    };
    drop(queue);
    // SAFETY: both lists are ours; the readers were let in, and no lock is held.
    unsafe {
        remove_all(shared, from_fifo);
        remove_all(shared, from_inbox);
        post::grant_all(admitted);
    }
}

/// Drops nodes of waits that were dropped.
///
/// # Safety
/// They are, the list is the caller's, and no lock is held.
unsafe fn remove_all(shared: &Shared, list: *mut Node) {
    let mut rest = list;
    while let Some(node) = NonNull::new(rest) {
        // SAFETY: promised by the caller; the node is consumed once its link was read.
        unsafe {
            rest = node.as_ref().next.replace(ptr::null_mut());
            trace::dropped(node);
            let Some(waits) = node.as_ref().vtable().waits else { continue };
            // The last handle to a waker goes with it, which may be anybody's code.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (waits.remove)(node))) {
                crate::runtime::panics::report(shared, None, payload);
            }
        }
    }
}
