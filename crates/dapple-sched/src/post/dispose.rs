//! Dropping what can no longer run: after a worker has stopped, callbacks are dropped by whoever holds their color.
//!
//! Dropping a closure counts as running it (C1), so it happens while the color is held. No worker is needed for that:
//! the home lock of a stopped worker still works.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::color::cell::{ColorCell, State};
use crate::color::holder::Holder;
use crate::color::node::Node;
use crate::hold;
use crate::observe::trace;
use crate::runtime::context;
use crate::runtime::shared::{Linked, Shared};
use crate::sync::atomic::Ordering::*;

/// Takes over the notification of a color whose home has stopped.
///
/// # Safety
/// The caller has set NOTIFIED and did not link the color, or has taken it off a closed list; the cell is alive.
pub(super) unsafe fn notified(color: NonNull<ColorCell>) {
    // SAFETY: promised by the caller; NOTIFIED keeps the cell alive until `take_notified`, after which we hold the
    // lock without which it cannot be freed.
    unsafe {
        let cell = color.as_ref();
        let queue = loop {
            let (_, queue) = cell.shared().lock_home(cell);
            if queue.closed {
                break queue;
            }
            // Stolen from the stopped worker since we looked, and perhaps running: its new home takes the news.
            drop(queue);
            if cell.shared().link_remote(color) == Linked::Yes {
                return;
            }
        };
        match cell.state() {
            State::Idle => {
                cell.take_notified();
                cell.set_held(Holder::Dropping, None);
                drop(queue);
                hold::release(color);
            }
            State::Queued | State::Held | State::Reading => cell.take_notified(),
            State::Running => unreachable!("a worker that has stopped runs no color"),
        }
    }
}

/// Drops every callback of a color that the caller has set to `Held`, until none is left. False: a request for several
/// colors was reached; the color is `Held` for that now, which will see to the rest.
///
/// Does not unwind: a panic is reported, and ends with the callback, or the waker, that it comes from.
///
/// # Safety
/// The color is `Held` by the caller.
pub(crate) unsafe fn drop_callbacks(color: NonNull<ColorCell>) -> bool {
    // SAFETY: `Held` keeps the cell alive, which keeps the runtime. A count, as the color is gone once it was granted.
    let shared = unsafe {
        let shared = color.as_ref().shared;
        Arc::increment_strong_count(shared);
        Arc::from_raw(shared)
    };
    let waits = loop {
        // SAFETY: promised by the caller. What was popped before a panic is not met again.
        match catch_unwind(AssertUnwindSafe(|| unsafe { drop_until_request(&shared, color) })) {
            Ok(waits) => break waits,
            Err(payload) => crate::runtime::panics::report(&shared, Some(color), payload),
        }
    };
    let Some(node) = waits else { return true };
    // SAFETY: popped, so ours.
    let Some(wait) = unsafe { node.as_ref() }.vtable().waits else { return true };
    // SAFETY: the color is `Held` by the caller, who passes it on; no lock is held.
    unsafe {
        if node.as_ref().reads() {
            // Alone for the moment; what stands behind it is reached when it has gone.
            let cell = color.as_ref();
            let (_, queue) = shared.lock_home(cell);
            cell.links(|links| {
                links.state = State::Reading;
                links.readers = 1;
            });
            drop(queue);
        }
        // The color is the request's from here on, also where a waker panics.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (wait.grant)(node))) {
            crate::runtime::panics::report(&shared, None, payload);
        }
    }
    false
}

/// Drops callbacks until none is left, or returns the node of a request for several colors, popped.
///
/// # Safety
/// As [`drop_callbacks`].
unsafe fn drop_until_request(shared: &Shared, color: NonNull<ColorCell>) -> Option<NonNull<Node>> {
    // SAFETY: `Held` keeps the cell alive.
    let cell = unsafe { color.as_ref() };
    context::in_frame(color, false, |_| {
        loop {
            let (_, queue) = shared.lock_home(cell);
            // SAFETY: we hold the home lock, and the color is not running.
            let node = unsafe {
                cell.drain_inbox();
                cell.pop()
            };
            drop(queue);
            let node = node?;
            // SAFETY: popped, so ours.
            unsafe {
                if node.as_ref().vtable().waits.is_some_and(|waits| waits.granted_when_stopped) {
                    return Some(node);
                }
                drop_node(shared, color, node);
            }
        }
    })
}

/// Drops one callback without running it.
///
/// # Safety
/// The node is the caller's, who holds the color.
unsafe fn drop_node(shared: &Shared, color: NonNull<ColorCell>, node: NonNull<Node>) {
    // SAFETY: promised by the caller.
    let (vtable, counted) = unsafe { (node.as_ref().vtable(), node.as_ref().counted()) };
    if counted {
        // SAFETY: held by the caller, hence alive.
        unsafe { color.as_ref() }.count_off();
    }
    // Relaxed: a number to show.
    shared.callbacks_dropped.fetch_add(1, Relaxed);
    // SAFETY: promised by the caller.
    unsafe { trace::dropped(node) };
    // SAFETY: promised by the caller; a panic in a destructor ends with that callback (C8).
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| unsafe { (vtable.drop)(node) })) {
        crate::runtime::panics::report(shared, Some(color), payload);
    }
}
