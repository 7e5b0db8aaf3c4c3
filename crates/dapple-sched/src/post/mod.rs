//! Posting: how a node reaches its color (in this file), what is left to do once the lock is released (`afterwards`), and how nodes are
//! dropped that can no longer run (`dispose`, `sweep`).
//!
//! Imports from below: `sync`, `color`, `runtime`, `observe`. From above: the run queue, and `hold`, which frees a color.
//! Begin with the table:
//!
//! | who posts | path | locked instructions |
//! |---|---|---|
//! | a callback to its own color | appends to the fifo, which its turn owns | none |
//! | a worker to a color at home there | appends under its own lock | none, or one (`lock/owned.rs`) |
//! | a worker to an idle color elsewhere whose home sleeps, or from an I/O event | takes the color home, then as above | one or two |
//! | anybody else | inbox, and the home's remote list the first time | one or two |
//!
//! What no callback of the runtime posts (other threads, I/O events, timers) comes from outside: its color goes by the
//! express list of its run queue.

pub(crate) mod afterwards;
pub(crate) mod callback;
pub(crate) mod dispose;
pub(crate) mod sweep;

use std::mem;
use std::ptr::{self, NonNull};

use crate::color::cell::{ColorCell, State};
use crate::color::ext::Ext;
use crate::color::node::Node;
use crate::color::{Color, Priority};
use crate::observe::trace;
use crate::runtime::context;
use crate::runtime::shared::Linked;
use crate::runtime::switches;
use crate::sync::atomic::Ordering::*;
use crate::worker::run_queue::{EXPRESS, RunQueue};
use crate::worker::{self, Worker};

/// Accepts a callback into a color; `None` is the default color.
///
/// # Panics
/// As [`accept_in_default`].
///
/// # Safety
/// As [`place`]; the node is fresh, and has that priority.
#[inline]
pub(crate) unsafe fn accept_callback(color: Option<NonNull<ColorCell>>, node: NonNull<Node>, priority: Priority) {
    let cell = color.map_or(ptr::null(), |color| color.as_ptr().cast_const());
    // SAFETY: promised by the caller; as this thread runs the color, it owns the fifo. It is not the default color, which has
    // no cell here.
    unsafe {
        if context::is_direct(cell) && !(*cell).inbox_waits() {
            (*cell).push_as(node, priority);
        } else {
            accept_any(color, node);
        }
    }
}

/// As [`accept_callback`], with all that there may be to see to.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn accept_any(color: Option<NonNull<ColorCell>>, node: NonNull<Node>) {
    // SAFETY: promised by the caller.
    unsafe {
        match color {
            Some(color) if trace::is_on() || color.as_ref().ext.is_limited() => accept_watched(color, node),
            Some(color) => place_unwatched(color, node),
            None => accept_in_default(node),
        }
    }
}

/// As [`accept`], where the callback may be traced or counted.
///
/// # Safety
/// As there.
#[cold]
unsafe fn accept_watched(color: NonNull<ColorCell>, node: NonNull<Node>) {
    // SAFETY: promised by the caller.
    unsafe { accept(color, node) };
}

/// Accepts a node into a color, and counts it where the color has a capacity.
///
/// # Safety
/// As [`place`].
#[inline]
pub(crate) unsafe fn accept(color: NonNull<ColorCell>, node: NonNull<Node>) {
    // SAFETY: promised by the caller.
    unsafe {
        if color.as_ref().ext.is_limited() {
            count(color.as_ref(), node.as_ref());
        }
        place(color, node);
    }
}

/// As [`accept`], into the default color of the current runtime.
///
/// # Panics
/// If no runtime is current; the node is dropped then.
///
/// # Safety
/// The node is the caller's to give.
pub(crate) unsafe fn accept_in_default(node: NonNull<Node>) {
    struct Unplaced(NonNull<Node>);
    impl Drop for Unplaced {
        fn drop(&mut self) {
            // SAFETY: promised by the caller of `accept_in_default`; it was not accepted.
            unsafe { (self.0.as_ref().vtable().drop)(self.0) };
        }
    }
    let unplaced = Unplaced(node);
    Color::DEFAULT.with_cell(|color| {
        mem::forget(unplaced);
        // SAFETY: `with_cell` keeps the color alive; the node is the caller's.
        unsafe { accept(color, node) };
    });
}

#[cold]
fn count(cell: &ColorCell, node: &Node) {
    if cell.ext.get().is_some_and(Ext::count) {
        node.set_counted();
    }
}

/// Puts a node where its color will find it.
///
/// # Safety
/// `color` is alive for the call (a handle, or it runs here), and the node is the caller's to give.
#[inline]
pub(crate) unsafe fn place(color: NonNull<ColorCell>, node: NonNull<Node>) {
    if trace::is_on() {
        // SAFETY: promised by the caller.
        unsafe { trace::accepted(color.as_ref(), node.as_ref()) };
    }
    // SAFETY: promised by the caller.
    unsafe { place_unwatched(color, node) };
}

/// As [`place`], for what nothing traces.
///
/// # Safety
/// As there.
#[inline]
unsafe fn place_unwatched(color: NonNull<ColorCell>, node: NonNull<Node>) {
    if context::running_color() == Some(color) {
        // SAFETY: this thread runs the color, so it owns the fifo.
        unsafe {
            color.as_ref().drain_inbox();
            color.as_ref().push(node);
        }
    } else {
        // SAFETY: promised by the caller.
        unsafe { place_in_other(color, node) };
    }
}

/// Posts to a color that is not the one that runs here.
///
/// # Safety
/// As [`place`].
#[inline]
unsafe fn place_in_other(color: NonNull<ColorCell>, node: NonNull<Node>) {
    // SAFETY: promised by the caller.
    let cell = unsafe { color.as_ref() };
    let placed = context::with_worker(|worker| {
        // SAFETY: promised by the caller.
        std::ptr::eq(&*worker.shared, cell.shared) && unsafe { worker.place_here(color, node) }
    });
    if placed != Some(true) {
        // SAFETY: promised by the caller; the node has not been placed.
        worker::away(|| unsafe { place_in_inbox(color, node) });
    }
}

impl Worker {
    /// Posts as this worker, if the color is at home here or can be brought here. False: the node is still the caller's.
    ///
    /// # Safety
    /// As [`place`], and the color belongs to this worker's runtime.
    #[inline]
    unsafe fn place_here(&self, color: NonNull<ColorCell>, node: NonNull<Node>) -> bool {
        // SAFETY: promised by the caller.
        let cell = unsafe { color.as_ref() };
        let sender = context::running_color();
        if let Some(sender) = sender {
            // SAFETY: this thread runs the sender, so it owns its fifo.
            unsafe { sender.as_ref().fifo(|fifo| fifo.posts_out = fifo.posts_out.saturating_add(1)) };
        }
        let from_callback = sender.is_some() || context::in_callback();
        // Relaxed: decided under the lock.
        let home = usize::from(cell.home.load(Relaxed));
        if switches::shared_queue() {
            // Another worker may be running it.
            return false;
        }
        if home != self.index {
            // SAFETY: promised by the caller.
            return unsafe { self.adopt_and_place(color, node, home) };
        }
        let mut queue = self.slot().lock();
        // Relaxed: the lock of the worker that it must be at home on is held.
        if usize::from(cell.home.load(Relaxed)) != self.index || queue.closed {
            return false;
        }
        // SAFETY: we hold the home lock; a color that is `Running` here runs on this very thread.
        let granted = unsafe {
            cell.drain_inbox();
            cell.push(node);
            cell.fifo(|fifo| {
                fifo.rank |= self.express();
                if from_callback {
                    fifo.posts_in = fifo.posts_in.saturating_add(1);
                }
            });
            enqueue(&mut queue, color)
        };
        if !granted.is_null() {
            drop(queue);
            // SAFETY: `enqueue` let them join.
            unsafe { grant_all(granted) };
        }
        true
    }

    /// What an I/O event or a timer adds to the rank of its color.
    #[inline]
    fn express(&self) -> u8 {
        u8::from(self.dispatches.get()) * EXPRESS
    }

    /// # Safety
    /// As [`Worker::place_here`].
    unsafe fn adopt_and_place(&self, color: NonNull<ColorCell>, node: NonNull<Node>, home: usize) -> bool {
        // SAFETY: promised by the caller.
        let cell = unsafe { color.as_ref() };
        if self.dispatches.get() || self.shared.slots[home].is_asleep() {
            let mut queue = self.slot().lock();
            // SAFETY: `adopt` gave us the home lock's color, idle and with an empty inbox.
            if !queue.closed && unsafe { self.adopt(color, home) } {
                // SAFETY: we hold the lock of what is now the home.
                unsafe {
                    cell.push(node);
                    cell.fifo(|fifo| fifo.rank |= self.express());
                    queue.push(color);
                }
                return true;
            }
        }
        // Relaxed: a hint for home moves. Written only where it changes, to leave the line alone.
        if cell.last_poster.load(Relaxed) != self.index as u16 {
            // Relaxed: a hint for home moves.
            cell.last_poster.store(self.index as u16, Relaxed);
        }
        if let Some(sender) = context::running_color() {
            // SAFETY: this thread runs the sender, so it owns its fifo.
            unsafe {
                sender.as_ref().fifo(|fifo| {
                    fifo.posts_away = fifo.posts_away.saturating_add(1);
                    fifo.away_to = home as u16;
                });
            }
        }
        false
    }

    /// Moves the home of an idle color here. The caller holds this worker's own lock; the other is only tried, so that
    /// two workers cannot wait for each other.
    ///
    /// # Safety
    /// `color` is alive and of this runtime.
    pub(crate) unsafe fn adopt(&self, color: NonNull<ColorCell>, home: usize) -> bool {
        // SAFETY: promised by the caller.
        let cell = unsafe { color.as_ref() };
        let Some(theirs) = self.shared.slots[home].try_lock() else { return false };
        // Relaxed, the store as well: under the locks of both homes.
        // SAFETY: the home is checked, and its lock held, before the state is read.
        let idle = usize::from(cell.home.load(Relaxed)) == home
            && unsafe { cell.state() } == State::Idle
            && !cell.inbox_waits()
            && !cell.is_pinned()
            && !theirs.closed;
        if idle {
            cell.home.store(self.index as u16, Relaxed);
        }
        idle
    }
}

/// Gives a color that has just received something its place in the run queue. Returns requests to read that join those
/// who read the color now: to be granted ([`grant_all`]) once the lock is released.
///
/// # Safety
/// `queue` is the home's, locked and not closed, and the fifo is not empty.
#[inline]
#[must_use]
pub(crate) unsafe fn enqueue(queue: &mut RunQueue, color: NonNull<ColorCell>) -> *mut Node {
    // SAFETY: promised by the caller.
    unsafe {
        match color.as_ref().state() {
            State::Idle => queue.push(color),
            State::Queued => queue.raise(color),
            State::Running | State::Held => {}
            State::Reading => return color.as_ref().admit_readers(None),
        }
    }
    ptr::null_mut()
}

/// Puts a node before all others of a color, from whatever thread. False: somebody holds the color or reads it, and may
/// have to wait for others before he lets go of it, or the color's worker has stopped; the node is still the caller's.
///
/// # Safety
/// The color is alive, and the node is urgent and the caller's to give.
pub(crate) unsafe fn place_urgent(color: NonNull<ColorCell>, node: NonNull<Node>) -> bool {
    // SAFETY: promised by the caller; a node that was not placed is still his.
    unsafe {
        if trace::is_on() {
            trace::accepted(color.as_ref(), node.as_ref());
        }
        let placed = push_urgent(color, node);
        if !placed {
            trace::dropped(node);
        }
        placed
    }
}

/// # Safety
/// As [`place_urgent`].
unsafe fn push_urgent(color: NonNull<ColorCell>, node: NonNull<Node>) -> bool {
    // SAFETY: promised by the caller.
    let cell = unsafe { color.as_ref() };
    let shared = cell.shared();
    let here = context::index_in(shared);
    let (home, mut queue) = shared.lock_home(cell);
    if queue.closed {
        return false;
    }
    // SAFETY: we hold the home lock; a color that is `Running` here runs on this very thread.
    unsafe {
        match cell.state() {
            State::Held | State::Reading => return false,
            State::Running if here != Some(home) => {
                // Under the lock: the end of the turn, which takes it, is not to hand the color over in between.
                let notified = cell.push_inbox(node, true);
                drop(queue);
                if notified {
                    crate::post::afterwards::pass_on(shared, color);
                }
                return true;
            }
            State::Running | State::Idle | State::Queued => {
                cell.push_front(node);
                // Nobody reads a color that is in one of these states.
                let _none = enqueue(&mut queue, color);
            }
        }
    }
    drop(queue);
    if here != Some(home) {
        shared.kick(home);
    }
    true
}

/// Tells the nodes of a chain that their colors are held for them.
///
/// # Safety
/// They are, the chain is the caller's, and he holds no lock.
pub(crate) unsafe fn grant_all(chain: *mut Node) {
    let mut rest = chain;
    while let Some(node) = NonNull::new(rest) {
        // SAFETY: promised by the caller; who waits has a `grant`, which consumes the node.
        unsafe {
            rest = node.as_ref().next.replace(ptr::null_mut());
            trace::reached(node);
            if let Some(waits) = node.as_ref().vtable().waits {
                (waits.grant)(node);
            }
        }
    }
}

/// Posts from a thread that does not own the color's home.
///
/// # Safety
/// As [`place`].
unsafe fn place_in_inbox(color: NonNull<ColorCell>, node: NonNull<Node>) {
    // SAFETY: promised by the caller.
    let cell = unsafe { color.as_ref() };
    let shared = cell.shared();
    if !context::on_worker() {
        shared.check_process();
        // Relaxed: a number to show.
        shared.posts_outside.fetch_add(1, Relaxed);
    }
    let of_callback = |worker: &Worker| std::ptr::eq(&*worker.shared, shared) && !worker.dispatches.get();
    let outside = !context::with_worker(of_callback).unwrap_or(false);
    if cell.push_inbox(node, outside) && shared.link_remote(color) == Linked::Closed {
        // SAFETY: the home has stopped, and the notification is ours.
        unsafe { dispose::notified(color) };
    }
}
