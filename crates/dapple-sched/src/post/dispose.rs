//! Dropping callbacks that can no longer run: after a worker has stopped, the holder of a color
//! drops its callbacks.
//!
//! Dropping a closure counts as running it (C1), so it happens while the color is held. It needs no
//! worker: the home lock of a stopped worker still works.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::color::cell::State;
use crate::color::holder::Holder;
use crate::color::node::OwnedNode;
use crate::color::rights::{ColorRef, Hold, Notified};
use crate::hold;
use crate::observe::trace;
use crate::runtime::context;
use crate::runtime::panics;
use crate::runtime::shared::Shared;
use crate::sync::atomic::Ordering::*;

/// Takes over the notification of a color with a stopped home.
pub(super) fn notified(news: Notified) {
    let hold = news.with_color(|color, mut news| {
        let mut home = loop {
            let home = color.lock_home();
            if home.is_closed() {
                break home;
            }
            // Stolen from the stopped worker since the check, and perhaps running: its new home
            // takes the notification.
            drop(home);
            news = news.link()?;
        };
        let idle = home.state() == State::Idle;
        home.take_notified(news);
        idle.then(|| home.hold(false, Holder::Dropping, None))
    });
    hold.into_iter().for_each(hold::release);
}

/// Drops every callback of a color that is `Held`. `None` if it reached a request for several
/// colors, which now has the hold and continues.
///
/// Does not unwind: a panic is reported, and ends only the callback, or the waker, that it comes
/// from.
pub(crate) fn drop_callbacks(hold: Hold) -> Option<Hold> {
    hold.with_color(|color, hold| {
        // A count on the runtime, because the color may be freed after the grant.
        let shared = color.counted_runtime();
        let waits = loop {
            // If a panic occurs, the node popped before it is not reached again.
            match catch_unwind(AssertUnwindSafe(|| drop_until_request(&shared, &hold))) {
                Ok(waits) => break waits,
                Err(payload) => panics::report(&shared, Some(color.ptr()), payload),
            }
        };
        let Some(node) = waits else { return Some(hold) };
        if node.reads() {
            // For the moment this is the only reader; the nodes after it are reached when it has
            // ended.
            _ = color.lock_home().become_reader(hold);
        }
        // From here on the request has the color, even if a waker panics. SAFETY: the color is held
        // for the node, which this consumes; no lock is held.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| unsafe { node.grant() })) {
            panics::report(&shared, None, payload);
        }
        None
    })
}

/// Drops callbacks until none is left, or until it reaches the node of a request for several
/// colors, which it returns.
fn drop_until_request(shared: &Shared, hold: &Hold) -> Option<OwnedNode> {
    let color = hold.color();
    context::in_frame(color.ptr(), |_| {
        loop {
            let mut home = color.lock_home();
            let mut fifo = home.fifo().expect("a held color does not run");
            fifo.drain_inbox();
            let node = fifo.pop();
            drop(home);
            let node = node?;
            if node.vtable().waits.is_some_and(|waits| waits.granted_when_stopped) {
                return Some(node);
            }
            drop_node(shared, color, node);
        }
    })
}

/// Drops one callback of a held color, without running it.
fn drop_node(shared: &Shared, color: ColorRef<'_>, node: OwnedNode) {
    if node.counted() {
        color.count_off();
    }
    // Relaxed: for statistics.
    shared.callbacks_dropped.fetch_add(1, Relaxed);
    trace::dropped(&node);
    // SAFETY: this consumes the node, and its color is held. A panic in a destructor ends only that
    // callback (C8).
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| unsafe { node.discard() })) {
        panics::report(shared, Some(color.ptr()), payload);
    }
}
