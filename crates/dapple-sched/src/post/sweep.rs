//! Sweeping: takes dropped waits out of their color.
//!
//! A dropped wait leaves its node in place, because a node in the middle of a list cannot be found.
//! The color skips the node when it gets there. A color that is busy for long would collect such
//! nodes, for example if its callers time out again and again. So each color counts them. When they
//! are half of the waiting nodes, and at least 64, the thread that dropped the last one takes them
//! out: constant work for each wait, on average.
//!
//! The inbox is always swept: the home lock and `FROZEN` keep others from it. The fifo is swept
//! while the color is `Held` or `Reading`, when the home lock owns it. While the color is
//! `Running`, its turn owns the fifo, and drains the inbox into it only when the callback posts to
//! its own color. While it is `Queued`, its turn comes soon.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::color::cell::State;
use crate::color::node::NodeList;
use crate::color::rights::ColorRef;
use crate::observe::trace;
use crate::post;
use crate::runtime::panics;
use crate::runtime::shared::Shared;

/// Counts a dropped wait in this color, and sweeps if due. No lock is held.
pub(crate) fn one(color: ColorRef<'_>) {
    if is_due(color) {
        sweep(color);
    }
}

/// Counts a dropped wait. True if the color is due for a sweep.
pub(crate) fn is_due(color: ColorRef<'_>) -> bool {
    color.ext.get_or_make().count_dropped_wait(color.queued())
}

/// Sweeps a color. No lock is held.
#[cold]
pub(crate) fn sweep(color: ColorRef<'_>) {
    let shared = color.runtime();
    let mut home = color.lock_home();
    let mut from_fifo = NodeList::new();
    if matches!(home.state(), State::Held | State::Reading) {
        from_fifo = home.fifo().expect("it does not run").unlink_dropped();
    }
    // A dropped writer may have been in front of these readers.
    let admitted = home.admit_readers();
    let from_inbox = home.unlink_dropped_from_inbox();
    drop(home);
    remove_all(shared, from_fifo);
    remove_all(shared, from_inbox);
    post::grant_all(admitted);
}

/// Drops the nodes of dropped waits.
fn remove_all(shared: &Shared, mut list: NodeList) {
    while let Some(node) = list.pop() {
        trace::dropped(&node);
        // This drops the last handle to a waker, which may be foreign code.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| node.remove())) {
            panics::report(shared, None, payload);
        }
    }
}
