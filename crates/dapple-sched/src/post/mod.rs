//! Posting: how a node reaches its color (this file), the work after the release of the lock
//! (`afterwards`), and dropping nodes that can no longer run (`dispose`, `sweep`).
//!
//! Imports from below: `sync`, `color`, `runtime`, `observe`. From above it uses the run queue, and
//! `hold`, which frees a color. Begin with the table:
//!
//! | poster | path | locked instructions |
//! |---|---|---|
//! | a callback to its own color | appends to the fifo, which its turn owns | none |
//! | a worker to a color at home there | appends under its own lock | none, or one (`lock/owned.rs`) |
//! | a worker to an idle color on a sleeping worker, or from an I/O event | takes the color home, then as above | one or two |
//! | any other poster | inbox, and the home's remote list the first time | one or two |
//!
//! Posts that no callback of the runtime makes (from other threads, I/O events, timers) come from
//! outside: their color goes to the express list of its run queue.

pub(crate) mod afterwards;
pub(crate) mod callback;
pub(crate) mod dispose;
pub(crate) mod sweep;

use crate::color::cell::State;
use crate::color::ext::Ext;
use crate::color::node::{Granted, OwnedNode};
use crate::color::rights::{ColorRef, HomeGuard};
use crate::color::{Color, Priority};
use crate::observe::trace;
use crate::runtime::context;
use crate::runtime::switches;
use crate::sync::atomic::Ordering::*;
use crate::worker::run_queue::RunQueue;
use crate::worker::{self, Worker};

/// Accepts a fresh callback node with this priority into a color; `None` is the default color.
///
/// # Panics
/// As [`accept_in_default`].
#[inline]
pub(crate) fn accept_callback(color: Option<ColorRef<'_>>, node: OwnedNode, priority: Priority) {
    if let Err(node) = context::push_direct(color, node, priority) {
        accept_any(color, node);
    }
}

/// As [`accept_callback`], for the cases that it leaves out.
#[inline(never)]
fn accept_any(color: Option<ColorRef<'_>>, node: OwnedNode) {
    match color {
        Some(color) if trace::is_on() || color.ext.is_limited() => accept_watched(color, node),
        Some(color) => place_unwatched(color, node),
        None => accept_in_default(node),
    }
}

/// As [`accept`], for a callback that may be traced or counted.
#[cold]
fn accept_watched(color: ColorRef<'_>, node: OwnedNode) {
    accept(color, node);
}

/// Accepts a node into a color, and counts it if the color has a capacity.
#[inline]
pub(crate) fn accept(color: ColorRef<'_>, node: OwnedNode) {
    if color.ext.is_limited() {
        count(color, &node);
    }
    place(color, node);
}

/// As [`accept`], into the default color of the current runtime.
///
/// # Panics
/// If no runtime is current; the node is dropped then.
pub(crate) fn accept_in_default(node: OwnedNode) {
    struct Unplaced(Option<OwnedNode>);
    impl Drop for Unplaced {
        fn drop(&mut self) {
            if let Some(node) = self.0.take() {
                // SAFETY: no color has accepted it.
                unsafe { node.discard() };
            }
        }
    }
    let mut unplaced = Unplaced(Some(node));
    Color::DEFAULT.with_cell(|color| unplaced.0.take().into_iter().for_each(|node| accept(color, node)));
}

#[cold]
fn count(color: ColorRef<'_>, node: &OwnedNode) {
    if color.ext.get().is_some_and(Ext::count) {
        node.set_counted();
    }
}

/// Puts a node into the color's fifo or inbox.
#[inline]
pub(crate) fn place(color: ColorRef<'_>, node: OwnedNode) {
    if trace::is_on() {
        trace::accepted(&color, &node);
    }
    place_unwatched(color, node);
}

/// As [`place`], for an untraced node.
#[inline]
fn place_unwatched(color: ColorRef<'_>, node: OwnedNode) {
    if let Err(node) = context::push_in_turn(color, node) {
        place_in_other(color, node);
    }
}

/// Posts to a color that does not run here.
#[inline]
fn place_in_other(color: ColorRef<'_>, node: OwnedNode) {
    let left = context::with_own_worker(|worker| match worker {
        Some(worker) => worker.place_here(color, node),
        None => Some(node),
    });
    if let Some(node) = left {
        worker::away(|| place_in_inbox(color, node));
    }
}

impl Worker {
    /// Posts as this worker, if the color is at home here or can move here. Otherwise returns the
    /// node.
    #[inline]
    fn place_here(&self, color: ColorRef<'_>, node: OwnedNode) -> Option<OwnedNode> {
        let from_turn = context::note_post();
        let from_callback = from_turn || context::in_callback();
        // Relaxed: decided under the lock.
        let home = usize::from(color.home.load(Relaxed));
        if switches::shared_queue() {
            // Another worker may be running it.
            return Some(node);
        }
        if home != self.index {
            return self.adopt_and_place(color, node, home);
        }
        let Some(mut home) = HomeGuard::of(self.slot().lock(), color) else { return Some(node) };
        if home.is_closed() {
            return Some(node);
        }
        let Some(mut fifo) = home.fifo_of(self) else { return Some(node) };
        fifo.drain_inbox();
        fifo.push(node);
        fifo.note_arrival(self.dispatches.get(), u16::from(from_callback));
        let granted = home.enqueue();
        if !granted.is_empty() {
            drop(home);
            grant_all(granted);
        }
        None
    }

    /// As [`Worker::place_here`], for a color that was at home elsewhere.
    fn adopt_and_place(&self, color: ColorRef<'_>, node: OwnedNode, home: usize) -> Option<OwnedNode> {
        if !std::ptr::eq(&*self.shared, color.shared) {
            return Some(node);
        }
        if self.dispatches.get() || self.shared.slots[home].is_asleep() {
            let mut queue = self.slot().lock();
            if self.adopt(&mut queue, color, home)
                && let Some(mut own) = HomeGuard::of(&mut *queue, color)
                && let Some(mut fifo) = own.fifo_of(self)
            {
                fifo.push(node);
                fifo.note_arrival(self.dispatches.get(), 0);
                // It was idle, so it has no readers.
                let _none = own.enqueue();
                return None;
            }
        }
        // Relaxed: a hint for home moves. Written only on a change, to keep the cache line shared.
        if color.last_poster.load(Relaxed) != self.index as u16 {
            // Relaxed: a hint for home moves.
            color.last_poster.store(self.index as u16, Relaxed);
        }
        context::note_post_away(home);
        Some(node)
    }

    /// Moves the home of an idle color to this worker's queue. The other lock is only tried, so
    /// that two workers cannot wait for each other.
    pub(crate) fn adopt(&self, queue: &mut RunQueue, color: ColorRef<'_>, home: usize) -> bool {
        let Some(theirs) = self.shared.slots[home].try_lock() else { return false };
        // The home is checked, and its lock held, before the state is read.
        let Some(theirs) = HomeGuard::of(theirs, color) else { return false };
        let idle = theirs.state() == State::Idle && !color.inbox_waits() && !color.is_pinned() && !theirs.is_closed();
        let adopts = idle && !queue.closed;
        if adopts {
            theirs.move_to(queue);
        }
        adopts
    }
}

/// Puts an urgent node before all others of a color, from any thread. Returns a node that it did
/// not place, because a thread that may wait for others holds or reads the color, or because the
/// color's worker has stopped.
pub(crate) fn place_urgent(color: ColorRef<'_>, node: OwnedNode) -> Option<OwnedNode> {
    if trace::is_on() {
        trace::accepted(&color, &node);
    }
    let left = context::with_worker_of(color.shared, |worker| push_urgent(color, node, worker))?;
    trace::dropped(&left);
    Some(left)
}

fn push_urgent(color: ColorRef<'_>, node: OwnedNode, worker: Option<&Worker>) -> Option<OwnedNode> {
    let mut home = color.lock_home();
    let shared = color.runtime();
    if home.is_closed() || matches!(home.state(), State::Held | State::Reading) {
        return Some(node);
    }
    let fifo = match worker {
        Some(worker) => home.fifo_of(worker),
        None => home.fifo(),
    };
    let Some(mut fifo) = fifo else {
        // Under the lock: the end of the turn, which takes it, must not hand the color over in
        // between.
        let notified = color.push_inbox(node, true);
        drop(home);
        notified.into_iter().for_each(afterwards::pass_on);
        return None;
    };
    fifo.push_front(node);
    home.hasten();
    let index = home.index();
    drop(home);
    if worker.is_none_or(|worker| worker.index != index) {
        shared.kick(index);
    }
    None
}

/// Tells waiters that their colors are held for them. No lock is held.
pub(crate) fn grant_all(granted: Granted) {
    granted.tell(trace::reached);
}

/// Posts from a thread that does not own the color's home.
fn place_in_inbox(color: ColorRef<'_>, node: OwnedNode) {
    let shared = color.runtime();
    if !context::on_worker() {
        shared.check_process();
        // Relaxed: for statistics.
        shared.posts_outside.fetch_add(1, Relaxed);
    }
    let outside = context::with_worker_of(shared, |worker| worker.is_none_or(|worker| worker.dispatches.get()));
    color.push_inbox(node, outside).into_iter().for_each(afterwards::pass_on);
}
