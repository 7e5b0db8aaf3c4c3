//! Holding a color in line, by any thread, and letting go of it; and the end of a color's life (in this file). Waiting for a
//! color (`ticket`), and for several (`request`).
//!
//! Imports everything from below: `sync`, `memory`, `color`, `runtime`, `observe`, `post`, `worker`. From above: tasks, which wait.
//! Begin with this file; then read the table in `ticket`, and that in `request`.

pub(crate) mod request;
pub(crate) mod ticket;

use std::cell::Cell;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::color::cell::{ColorCell, Kind, State};
use crate::color::holder::Holder;
use crate::color::node::Origin;
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

/// Takes hold of a color if it is free and nothing is queued in it; asked for at `origin`.
///
/// A worker waits for the lock of another worker for a moment only: its holder may have been preempted.
///
/// # Safety
/// The cell is alive for the call (a handle).
#[inline]
pub(crate) unsafe fn try_hold(color: NonNull<ColorCell>, origin: Origin) -> bool {
    // SAFETY: promised by the caller.
    unsafe {
        let held = context::with_worker(|worker| worker.is_home_of(color.as_ref()) && worker.hold_idle(color, origin));
        held == Some(true) || try_take(color, false, origin)
    }
}

impl Worker {
    /// Whether the color is at home here. A hint, unless this worker's lock is held.
    #[inline]
    fn is_home_of(&self, cell: &ColorCell) -> bool {
        // Relaxed: see above.
        ptr::eq(&*self.shared, cell.shared) && usize::from(cell.home.load(Relaxed)) == self.index
    }

    /// Holds a color in line that is at home here, if it is idle: what [`try_take`] does, in most cases.
    ///
    /// # Safety
    /// As [`try_hold`].
    #[inline]
    unsafe fn hold_idle(&self, color: NonNull<ColorCell>, origin: Origin) -> bool {
        // SAFETY: promised by the caller.
        let cell = unsafe { color.as_ref() };
        let queue = self.slot().lock();
        // SAFETY: its home lock is held, if it still is at home here, and then all that is touched is ours; the fifo of the
        // color whose turn it is belongs to this thread.
        unsafe {
            if !self.is_home_of(cell) || cell.inbox_waits() || cell.state() != State::Idle {
                return false;
            }
            cell.set_held(Holder::InLine(Some(self.index)), Some(origin));
            placement::note_hold_here(self, cell);
        }
        drop(queue);
        true
    }

    /// Lets go of a color that is at home here, if nothing came meanwhile. False: it is still held, and [`release`] is to be
    /// called.
    ///
    /// # Safety
    /// The color is `Held` by the caller, which gives up the hold if the answer is true.
    #[inline]
    unsafe fn let_go(&self, cell: &ColorCell) -> bool {
        let _queue = self.slot().lock();
        // SAFETY: as in `hold_idle`; what is held is alive.
        unsafe {
            // Relaxed: its handles go down to 0 under this lock only.
            let simple = self.is_home_of(cell) && !cell.inbox_waits() && cell.len() == 0 && cell.refs.load(Relaxed) > 0;
            if simple {
                cell.set_state(State::Idle);
            }
            simple
        }
    }
}

/// Takes part in holding a color for reading, if nothing is queued in it and nobody holds it for himself.
///
/// # Safety
/// As [`try_hold`].
pub(crate) unsafe fn try_read(color: NonNull<ColorCell>, origin: Origin) -> bool {
    // SAFETY: promised by the caller.
    unsafe { try_take(color, true, origin) }
}

/// # Safety
/// As [`try_hold`].
unsafe fn try_take(color: NonNull<ColorCell>, reads: bool, origin: Origin) -> bool {
    // SAFETY: promised by the caller.
    let cell = unsafe { color.as_ref() };
    let shared = cell.shared();
    // Relaxed: checked under the lock below.
    let home = usize::from(cell.home.load(Relaxed));
    let here = context::index_in(shared);
    if here.is_none() {
        shared.check_process();
    }
    let attempt = || {
        let queue = if context::on_worker() {
            shared.slots[home].try_lock_briefly().filter(|_| usize::from(cell.home.load(Relaxed)) == home)
        } else {
            Some(shared.lock_home(cell).1)
        };
        // SAFETY: we hold the home lock.
        queue.is_some_and(|_queue| unsafe {
            let free = is_free(cell, reads);
            if free {
                take(cell, reads, Holder::here(), origin);
                placement::note_hold(cell, home, here);
            }
            free
        })
    };
    if here.is_none_or(|here| here == home) {
        return attempt();
    }
    let held = worker::away(attempt);
    if !held {
        placement::note_attempt(home);
    }
    held
}

/// Whether a color can be held at once: nothing waits in it, and nobody has it, but readers where one reader more asks.
///
/// # Safety
/// The caller holds the home lock.
pub(crate) unsafe fn is_free(cell: &ColorCell, reads: bool) -> bool {
    // SAFETY: promised by the caller.
    !cell.inbox_waits() && unsafe { is_free_but_for_inbox(cell, reads) }
}

/// As [`is_free`], where what is in the inbox by now comes later.
///
/// # Safety
/// The caller holds the home lock.
pub(crate) unsafe fn is_free_but_for_inbox(cell: &ColorCell, reads: bool) -> bool {
    // SAFETY: promised by the caller; idle and read both mean that the home lock owns the fifo.
    unsafe {
        match cell.state() {
            State::Idle => cell.len() == 0,
            State::Reading => reads && cell.len() == 0,
            State::Queued | State::Running | State::Held => false,
        }
    }
}

/// Holds a color that is free.
///
/// # Safety
/// The caller holds the home lock, and [`is_free`] or [`is_free_but_for_inbox`] said so.
pub(crate) unsafe fn take(cell: &ColorCell, reads: bool, holder: Holder, origin: Origin) {
    // SAFETY: promised by the caller.
    unsafe {
        if reads {
            cell.links(|links| links.add_readers(1));
        } else {
            cell.set_held(holder, Some(origin));
        }
    }
}

/// One reader of a color goes; the last one lets in what came meanwhile.
///
/// # Safety
/// The caller is one of those for whom the color is `Reading`, and forgets it.
pub(crate) unsafe fn release_read(color: NonNull<ColorCell>) {
    // SAFETY: `Reading` keeps the cell alive.
    let cell = unsafe { color.as_ref() };
    let (home, queue) = cell.shared().lock_home(cell);
    // SAFETY: we hold the home lock; one of the readers is ours, and the last one is left with the hold for himself.
    unsafe {
        if leave_readers(cell) && release_locked(home, queue, color) {
            free(color);
        }
    }
}

/// Takes one reader off; the last one is left with the color `Held`.
///
/// # Safety
/// The caller holds the home lock, and is one of the readers.
pub(crate) unsafe fn leave_readers(cell: &ColorCell) -> bool {
    // SAFETY: promised by the caller.
    unsafe {
        cell.links(|links| {
            links.readers -= 1;
            let last = links.readers == 0;
            if last {
                links.set_held(Holder::here(), None);
            }
            last
        })
    }
}

/// Lets go of a held color: what came meanwhile is queued (or dropped, if its worker has stopped).
///
/// # Safety
/// The color is `Held` by the caller, who forgets it.
pub(crate) unsafe fn release(color: NonNull<ColorCell>) {
    // SAFETY: `Held` keeps the cell alive.
    let (home, queue) = unsafe { color.as_ref().shared().lock_home(color.as_ref()) };
    // SAFETY: promised by the caller.
    unsafe {
        if release_locked(home, queue, color) {
            free(color);
        }
    }
}

/// As [`release`]. True: the color is dead, and the caller's to [`free`]; not here, as that may be the end of the runtime,
/// whose lock is an argument.
///
/// # Safety
/// As [`release`]; `queue` is the color's home lock.
#[must_use]
unsafe fn release_locked(mut home: usize, mut queue: Guard<'_, RunQueue>, color: NonNull<ColorCell>) -> bool {
    // SAFETY: `Held` keeps the cell alive.
    let cell = unsafe { color.as_ref() };
    let shared = cell.shared();
    loop {
        // SAFETY: we hold the home lock; `Held` is ours.
        unsafe {
            cell.drain_inbox();
            if cell.len() == 0 {
                return settle(queue, color);
            }
            if !queue.closed {
                queue.push(color);
                drop(queue);
                shared.kick(home);
                return false;
            }
        }
        drop(queue);
        // SAFETY: the color is still `Held` by us.
        if !unsafe { drop_or_defer(color) } {
            return false;
        }
        // SAFETY: `drop_or_defer` left the color `Held` by us.
        (home, queue) = unsafe { color.as_ref().shared().lock_home(color.as_ref()) };
    }
}

/// Runs `f` while the color is held, and releases it, also if `f` unwinds.
///
/// # Safety
/// The color is `Held` by the caller, who gives it up.
#[inline]
pub(crate) unsafe fn holding<R>(color: NonNull<ColorCell>, f: impl FnOnce() -> R) -> R {
    struct Release(NonNull<ColorCell>);
    impl Drop for Release {
        #[inline]
        fn drop(&mut self) {
            // SAFETY: promised by the caller of `holding`.
            unsafe {
                let cell = self.0.as_ref();
                if context::with_worker(|worker| worker.is_home_of(cell) && worker.let_go(cell)) != Some(true) {
                    at_home_or_away(self.0, || release(self.0));
                }
            }
        }
    }
    let _release = Release(color);
    // SAFETY: held until `_release` is dropped.
    context::in_frame(color, false, |_| unsafe { trace::in_line(iter::once(color), f) })
}

/// Lets go of a color, which is traffic with other workers where it is at home elsewhere.
#[inline]
fn at_home_or_away(color: NonNull<ColorCell>, release: impl FnOnce()) {
    // SAFETY: what is held is alive.
    let cell = unsafe { color.as_ref() };
    // Relaxed: a hint.
    let home = usize::from(cell.home.load(Relaxed));
    if context::index_in(cell.shared()).is_none_or(|here| here == home) { release() } else { worker::away(release) }
}

/// Runs `f` as one of the readers of a color, and leaves them, also if `f` unwinds.
///
/// # Safety
/// The caller is one of those for whom the color is `Reading`, and gives that up.
pub(crate) unsafe fn reading<R>(color: NonNull<ColorCell>, f: impl FnOnce() -> R) -> R {
    struct Release(NonNull<ColorCell>);
    impl Drop for Release {
        fn drop(&mut self) {
            // SAFETY: promised by the caller of `reading`.
            at_home_or_away(self.0, || unsafe { release_read(self.0) });
        }
    }
    let _release = Release(color);
    // SAFETY: held until `_release` is dropped.
    context::in_read_frame(color, || unsafe { trace::in_line(iter::once(color), f) })
}

/// Makes a color idle that has nothing to do. True: nobody can reach it any more (no handle, no queue, no list, and a named
/// one has left the registry), and the caller must free it.
///
/// # Safety
/// `queue` is the home lock; the color is `Held` or `Running` by the caller, in no queue, its fifo empty.
unsafe fn settle(queue: Guard<'_, RunQueue>, color: NonNull<ColorCell>) -> bool {
    // SAFETY: promised by the caller.
    let dead = unsafe {
        color.as_ref().set_state(State::Idle);
        is_dead(color)
    };
    drop(queue);
    dead
}

/// Whether an idle color can be freed. If so it has left the registry, and the caller must free it.
///
/// # Safety
/// The caller holds the home lock.
pub(crate) unsafe fn is_dead(color: NonNull<ColorCell>) -> bool {
    // SAFETY: promised by the caller.
    unsafe {
        let cell = color.as_ref();
        // Acquire pairs with the decrements in `Color::drop`.
        cell.kind != Kind::Default
            && cell.refs.load(Acquire) == 0
            && cell.state() == State::Idle
            && cell.inbox_vacant()
            && (cell.kind != Kind::Named || cell.shared().registry.remove_unused(cell))
    }
}

/// Frees a color.
///
/// # Safety
/// [`is_dead`] said so, and the lock has been released.
pub(crate) unsafe fn free(color: NonNull<ColorCell>) {
    // SAFETY: the cell's own count on the runtime, taken in `Color::allocate`.
    let runtime = unsafe { Arc::from_raw(color.as_ref().shared) };
    #[cfg(any(dapple_loom, dapple_shuttle))]
    // SAFETY: promised by the caller.
    unsafe {
        ColorCell::bury(color);
    }
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    // SAFETY: put there by `Color::allocate`; nobody else can reach it.
    unsafe {
        runtime.pool.take_back(color);
    }
    drop(runtime);
}

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
thread_local! {
    /// Colors that wait until the drop further up this thread's stack is through, which owns the list; null where
    /// there is none. Has no destructor, so that it can be used while a thread ends.
    static DEFERRED: Cell<*mut Deferred> = const { Cell::new(ptr::null_mut()) };
}

#[cfg(any(dapple_loom, dapple_shuttle))]
thread_local! {
    static DEFERRED: Cell<*mut Deferred> = Cell::new(ptr::null_mut());
}

type Deferred = Vec<NonNull<ColorCell>>;

/// Drops the callbacks of a held color whose worker has stopped. A destructor may reach the next color and so on, as
/// long as a chain of tasks is: only the outermost call drops, inner ones leave their color to it. False: left.
///
/// # Safety
/// The color is `Held` by the caller, and stays so; if false is returned it is no longer the caller's.
unsafe fn drop_or_defer(color: NonNull<ColorCell>) -> bool {
    /// Ends the outermost call, also where it unwinds: the list must not be found once it is gone.
    struct Outermost;
    impl Drop for Outermost {
        fn drop(&mut self) {
            DEFERRED.with(|outermost| outermost.set(ptr::null_mut()));
        }
    }
    let outer = DEFERRED.with(Cell::get);
    if !outer.is_null() {
        // SAFETY: the list lives further up this thread's stack, in the call that has set the pointer and takes it
        // back before it returns or unwinds; no reference to it is kept while destructors run.
        unsafe { (*outer).push(color) };
        return false;
    }
    let mut deferred = Deferred::new();
    let list = &raw mut deferred;
    DEFERRED.with(|outermost| outermost.set(list));
    let _outermost = Outermost;
    // SAFETY: promised by the caller.
    let ours = unsafe { dispose::drop_callbacks(color) };
    // SAFETY: as above; this is the call that owns the list.
    while let Some(next) = unsafe { (*list).pop() } {
        // SAFETY: deferred colors are `Held`, and were left to us. If more came meanwhile, `release` defers it again.
        let release_next = || unsafe {
            if dispose::drop_callbacks(next) {
                release(next);
            }
        };
        // A panic must not leave the other colors `Held` for good. It was the destructor of a runtime that ends with its
        // last color, so there is none to report it to.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(release_next)) {
            panics::discard(payload);
        }
    }
    ours
}
