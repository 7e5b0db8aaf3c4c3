//! Holding a color in line, by any thread, releasing it, and the end of a color's life (in this
//! file); waiting for a color (`ticket`), and for several (`request`).
//!
//! Imports everything from below: `sync`, `memory`, `color`, `runtime`, `observe`, `post`,
//! `worker`. From above: tasks, which wait. Begin with this file; then read the table in `ticket`,
//! and that in `request`.

pub(crate) mod held;
pub(crate) mod request;
pub(crate) mod ticket;

use std::cell::Cell;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use crate::color::cell::{ColorCell, State};
use crate::color::holder::Holder;
use crate::color::node::Origin;
use crate::color::rights::{ColorRef, Dead, Hold, HomeGuard, OwnsLink};
use crate::hold::held::Held;
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
use crate::memory::pool::Pool;
use crate::observe::trace;
use crate::post::dispose;
use crate::runtime::context;
use crate::runtime::panics;
use crate::sync::atomic::Ordering::*;
use crate::sync::lock::Guard;
use crate::sync::thread_local;
use crate::worker::placement;
use crate::worker::run_queue::RunQueue;
use crate::worker::{self, Worker};

/// Holds a color if it is free and nothing is queued in it; `origin` is the line of the caller. If
/// the hold `reads`, others may read the color, too.
///
/// A worker waits only briefly for the lock of another worker: that lock's holder may have been
/// preempted.
#[inline]
pub(crate) fn try_hold(color: ColorRef<'_>, reads: bool, origin: Origin) -> Option<Hold> {
    let here = || context::with_worker(|worker| worker.hold_idle(color, origin)).flatten();
    if reads { None } else { here() }.or_else(|| try_take(color, reads, origin))
}

impl Worker {
    /// Whether the color is at home here. A hint.
    #[inline]
    fn may_be_home_of(&self, cell: &ColorCell) -> bool {
        // Relaxed: a hint.
        usize::from(cell.home.load(Relaxed)) == self.index && ptr::eq(&*self.shared, cell.shared)
    }

    /// Holds an idle color that is at home here: the usual case of [`try_take`].
    #[inline]
    fn hold_idle(&self, color: ColorRef<'_>, origin: Origin) -> Option<Hold> {
        if !self.may_be_home_of(&color) {
            return None;
        }
        let mut home = HomeGuard::of(self.slot().lock(), color)?;
        if color.inbox_waits() || home.state() != State::Idle {
            return None;
        }
        let hold = home.hold(false, Holder::InLine(Some(self.index)), Some(origin));
        placement::note_hold_here(self, &mut home);
        Some(hold)
    }

    /// Ends the hold of a color that is at home here, if nothing arrived meanwhile. Otherwise the
    /// caller [`release`]s what this returns.
    #[inline]
    fn let_go(&self, hold: Hold) -> Option<Hold> {
        hold.with_color(|color, hold| {
            if !self.may_be_home_of(&color) {
                return Some(hold);
            }
            let Some(mut home) = HomeGuard::of(self.slot().lock(), color) else { return Some(hold) };
            // Relaxed: the number of handles reaches 0 only under this lock.
            if color.inbox_waits() || color.len() > 0 || color.refs.load(Relaxed) == 0 {
                return Some(hold);
            }
            home.make_idle(hold);
            None
        })
    }
}

/// Ends the hold of a color under the lock of its home, unless nothing can reach the color any
/// more. A color that this returns is still held.
#[inline]
pub(crate) fn release_simply(mut home: HomeGuard<'_, &mut RunQueue>, hold: Hold) -> Option<Hold> {
    let color = home.color();
    if color.inbox_waits() {
        home.fifo().into_iter().for_each(|mut fifo| fifo.drain_inbox());
    }
    if color.len() > 0 {
        home.queue_held(hold);
    } else if color.refs.load(Relaxed) > 0 {
        // Relaxed: the number of handles reaches 0 only under this lock.
        home.make_idle(hold);
    } else {
        return Some(hold);
    }
    None
}

fn try_take(color: ColorRef<'_>, reads: bool, origin: Origin) -> Option<Hold> {
    let shared = color.runtime();
    // Relaxed: checked under the lock below.
    let home = usize::from(color.home.load(Relaxed));
    let here = context::index_in(shared);
    if here.is_none() {
        shared.check_process();
    }
    let attempt = || {
        let mut home = if context::on_worker() {
            HomeGuard::of(shared.slots[home].try_lock_briefly()?, color)?
        } else {
            color.lock_home()
        };
        if !home.is_free(reads) {
            return None;
        }
        let hold = home.hold(reads, Holder::here(), Some(origin));
        placement::note_hold(&mut home, here);
        Some(hold)
    };
    if here.is_none_or(|here| here == home) {
        return attempt();
    }
    let held = worker::away(attempt);
    if held.is_none() {
        placement::note_attempt(home);
    }
    held
}

/// Ends a hold. Nodes that arrived meanwhile are queued, or dropped if the color's worker has
/// stopped. Of several readers, the last one does that.
pub(crate) fn release(hold: Hold) {
    let dead = hold.with_color(|color, hold| release_at(color.lock_home(), hold));
    if let Some(dead) = dead {
        // SAFETY: no lock is held any more.
        unsafe { free(dead) };
    }
}

/// As [`release`]. The caller [`free`]s the color that this returns: freeing may end the runtime,
/// and an argument of this function is a lock of that runtime.
fn release_at<'c>(mut home: HomeGuard<'c, Guard<'c, RunQueue>>, mut hold: Hold) -> Option<Dead> {
    let color = home.color();
    let shared = color.runtime();
    loop {
        let index = home.index();
        let closed = home.is_closed();
        match home.end_hold(hold) {
            Ended::Readers => return None,
            Ended::Idle(dead) => return dead,
            Ended::Waits(held) if !closed => {
                home.queue_held(held);
                drop(home);
                shared.kick(index);
                return None;
            }
            Ended::Waits(held) => hold = held,
        }
        drop(home);
        hold = drop_or_defer(hold)?;
        home = color.lock_home();
    }
}

/// The outcome of the end of a hold.
pub(crate) enum Ended {
    /// Others still read the color.
    Readers,
    /// Nothing waits in the color; it may have to be freed.
    Idle(Option<Dead>),
    /// The color has a node to run, and is still held.
    Waits(Hold),
}

/// Runs `f` while the color is held, and releases it, even if `f` unwinds.
#[inline]
pub(crate) fn holding<R>(hold: Hold, f: impl FnOnce(Held<'_>) -> R) -> R {
    struct Release(Option<Hold>);
    impl Drop for Release {
        #[inline]
        fn drop(&mut self) {
            let Some(hold) = self.0.take() else { return };
            let left = context::with_own_worker(|worker| match worker {
                Some(worker) => worker.let_go(hold),
                None => Some(hold),
            });
            if let Some(hold) = left {
                at_home_or_away(hold);
            }
        }
    }
    let release = Release(Some(hold));
    let Some(hold) = &release.0 else { unreachable!("it was just put there") };
    let color = hold.color();
    let run = |_: &_| trace::in_line(iter::once(color), || f(Held::by_hold(hold)));
    context::in_frame(color.ptr(), run)
}

/// As [`holding`], as one of the readers of the color.
pub(crate) fn reading<R>(hold: Hold, f: impl FnOnce(Held<'_>) -> R) -> R {
    struct Release(Option<Hold>);
    impl Drop for Release {
        fn drop(&mut self) {
            self.0.take().into_iter().for_each(at_home_or_away);
        }
    }
    let release = Release(Some(hold));
    let Some(hold) = &release.0 else { unreachable!("it was just put there") };
    let color = hold.color();
    context::in_read_frame(color.ptr(), || trace::reading(color, || f(Held::by_hold(hold))))
}

/// Releases a color; if it is at home elsewhere, that counts as traffic with another worker.
#[inline]
fn at_home_or_away(hold: Hold) {
    let color = hold.color();
    // Relaxed: a hint.
    let home = usize::from(color.home.load(Relaxed));
    let here = context::index_in(color.runtime()).is_none_or(|here| here == home);
    if here { release(hold) } else { worker::away(|| release(hold)) }
}

/// Frees a color.
///
/// # Safety
/// This thread holds no lock of the color's runtime, and does not use the color afterwards.
pub(crate) unsafe fn free(dead: Dead) {
    let color = dead.into_raw();
    // SAFETY: the cell's own count on the runtime, taken in `Color::allocate`.
    let runtime = unsafe { Arc::from_raw(color.as_ref().shared) };
    #[cfg(any(dapple_loom, dapple_shuttle))]
    // SAFETY: the color is dead.
    unsafe {
        ColorCell::bury(color);
    }
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    // SAFETY: put there by `Color::allocate`; no other thread can reach it.
    unsafe {
        Pool::take_back(&runtime, color);
    }
    drop(runtime);
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
thread_local! {
    /// The colors that a drop further up this thread's stack will empty. That drop owns the list;
    /// null if there is none. Has no destructor, so that a thread can use it while it ends.
    static DEFERRED: Cell<*mut Deferred> = const { Cell::new(ptr::null_mut()) };
}

#[cfg(any(dapple_loom, dapple_shuttle))]
thread_local! {
    static DEFERRED: Cell<*mut Deferred> = Cell::new(ptr::null_mut());
}

type Deferred = Vec<Hold>;

/// Drops the callbacks of a held color with a stopped worker. A destructor may reach the next
/// color, and so on along a chain of tasks. To bound the recursion, only the outermost call drops;
/// inner ones leave their color to it and return `None`.
fn drop_or_defer(hold: Hold) -> Option<Hold> {
    /// Ends the outermost call, even if it unwinds: no thread may use the list after that call.
    struct Outermost;
    impl Drop for Outermost {
        fn drop(&mut self) {
            DEFERRED.with(|outermost| outermost.set(ptr::null_mut()));
        }
    }
    let outer = DEFERRED.with(Cell::get);
    if !outer.is_null() {
        // SAFETY: the list lives further up this thread's stack, in the call that set the pointer
        // and that takes it back before it returns or unwinds; no reference to the list exists
        // while destructors run.
        unsafe { (*outer).push(hold) };
        return None;
    }
    let mut deferred = Deferred::new();
    let list = &raw mut deferred;
    DEFERRED.with(|outermost| outermost.set(list));
    let _outermost = Outermost;
    let ours = dispose::drop_callbacks(hold);
    // SAFETY: as above; this call owns the list.
    while let Some(next) = unsafe { (*list).pop() } {
        // If more arrived meanwhile, `release` defers the color again.
        let release_next = || dispose::drop_callbacks(next).into_iter().for_each(release);
        // If more nodes arrived meanwhile, `release` defers the color again. The panic came from
        // the destructor of a runtime that ends with its last color, so there is no runtime that
        // could get a report of it.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(release_next)) {
            panics::discard(payload);
        }
    }
    ours
}
