//! Callbacks that outlive one posting: wrapped ones, and cancelable ones.

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::color::node::Origin;
use crate::color::{Color, Priority};
use crate::state::pinned::Pinned;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU8, Ordering::*};

/// A closure with a color, for any number of calls from anywhere, by code that need not know the
/// color.
///
/// Clones are cheap. When the last clone is dropped and no call is queued, the closure is dropped
/// while its color is held.
///
/// ```
/// use dapple_sched::{Callback, Color, Runtime};
/// # use std::sync::mpsc;
///
/// // Knows nothing of colors.
/// fn announce(news: &Callback<&'static str>) {
///     news.call("first");
///     news.call("second");
/// }
///
/// let runtime = Runtime::builder().workers(1).build()?;
/// let _entered = runtime.enter();
/// # let (tx, rx) = mpsc::channel();
/// let mut seen = Vec::new();
/// announce(&Color::named(7).wrap(move |news| {
///     seen.push(news); // one call at a time: no lock
/// #   tx.send(seen.len()).unwrap();
/// }));
/// # assert_eq!(rx.iter().collect::<Vec<_>>(), [1, 2]);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Source
///
/// The papers' `cwrap`: the thesis, Table 3.1.
pub struct Callback<A> {
    inner: Arc<dyn Run<A>>,
}

trait Run<A>: Send + Sync {
    fn call(self: Arc<Self>, origin: Option<Origin>, arg: A, canceled: Option<Arc<AtomicBool>>);
    fn color(&self) -> &Color;
}

struct Wrapped<F: Send + 'static> {
    color: Color,
    priority: Priority,
    /// The line that wrapped it.
    origin: Origin,
    /// Only callbacks of the color call and drop it.
    closure: UnsafeCell<ManuallyDrop<F>>,
}

// SAFETY: `F` is `Send`, and only callbacks of one color touch it, one at a time (C1).
unsafe impl<F: Send + 'static> Send for Wrapped<F> {}
// SAFETY: as above.
unsafe impl<F: Send + 'static> Sync for Wrapped<F> {}

impl<A: Send + 'static, F: FnMut(A) + Send + 'static> Run<A> for Wrapped<F> {
    fn call(self: Arc<Self>, origin: Option<Origin>, arg: A, canceled: Option<Arc<AtomicBool>>) {
        let this = self.clone();
        self.color.accept_closure(origin.unwrap_or(self.origin), self.priority, move || {
            // Acquire pairs with the release of the event source that sets it: everything before
            // the cancel is visible to this color afterwards.
            if canceled.is_some_and(|canceled| canceled.load(Acquire)) {
                return;
            }
            // SAFETY: this is a callback of the color, and `call` always posts, so it is never
            // nested in another.
            this.closure.with_mut(|closure| unsafe { (*closure)(arg) });
        });
    }

    fn color(&self) -> &Color {
        &self.color
    }
}

impl<F: Send + 'static> Drop for Wrapped<F> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here; the closure is not used again.
        let closure = self.closure.with_mut(|closure| unsafe { ManuallyDrop::take(&mut *closure) });
        if std::mem::needs_drop::<F>() {
            // Dropping counts as running (C1).
            self.color.drop_in_color(closure);
        }
    }
}

impl<A: Send + 'static> Callback<A> {
    /// Wraps a closure that is not `Send`, such as one with an `Rc` in it, for the running callback's own color, which is pinned.
    ///
    /// A program of callbacks that was written for one thread runs unchanged with it: post its
    /// beginning to a [pinned](Color::pinned) color, and wrap its callbacks with this. They run,
    /// and are dropped, on that color's worker, one at a time. The closure is dropped with the last
    /// clone of the callback, or when the runtime ends.
    ///
    /// Cost: one more allocation than [`Color::wrap`], and a look-up for each call. A panic in the
    /// closure ends that call; later calls panic, too, as the closure is poisoned (C8).
    ///
    /// # Panics
    /// Unless it is called while a pinned color is held: by a callback of it, or a task's poll.
    ///
    /// ```
    /// use dapple_sched::{Callback, Color, Runtime};
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    /// # use std::sync::mpsc;
    ///
    /// let runtime = Runtime::builder().workers(2).build()?;
    /// let _entered = runtime.enter();
    /// let (tx, rx) = mpsc::channel();
    /// Color::pinned(0).post(move || {
    ///     let sum = Rc::new(Cell::new(0));
    ///     let add = Callback::here({
    ///         let sum = sum.clone();
    ///         move |n| sum.set(sum.get() + n)
    ///     });
    ///     let tell = Callback::here(move |()| tx.send(sum.get()).unwrap());
    ///     add.call(40);
    ///     add.call(2);
    ///     tell.call(());
    /// });
    /// assert_eq!(rx.recv(), Ok(42));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn here<F: FnMut(A) + 'static>(closure: F) -> Callback<A> {
        let kept = Pinned::here(closure);
        kept.color().clone().wrap(move |arg| kept.access(|closure| closure(arg)))
    }

    pub(crate) fn new<F>(color: Color, priority: Priority, origin: Origin, closure: F) -> Callback<A>
    where
        F: FnMut(A) + Send + 'static,
    {
        let closure = UnsafeCell::new(ManuallyDrop::new(closure));
        Callback { inner: Arc::new(Wrapped { color, priority, origin, closure }) }
    }

    /// Posts a run of the closure with `arg` to the color. It never runs in line.
    #[track_caller]
    pub fn call(&self, arg: A) {
        self.inner.clone().call(Some(Location::caller()), arg, None);
    }

    /// As [`Callback::call`], but skips the run (and drops `arg`, in the color) if `canceled` is
    /// set when its turn comes. If a callback of this color sets it, no run comes after that
    /// callback.
    ///
    /// For sources of events: the run counts as posted from the line that wrapped the closure, not
    /// from here.
    pub fn call_unless(&self, canceled: &Arc<AtomicBool>, arg: A) {
        self.inner.clone().call(None, arg, Some(canceled.clone()));
    }

    /// The color in which the closure runs.
    pub fn color(&self) -> &Color {
        self.inner.color()
    }
}

impl<A> Clone for Callback<A> {
    fn clone(&self) -> Self {
        Callback { inner: self.inner.clone() }
    }
}

impl<A: Send + 'static> fmt::Debug for Callback<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").field("color", self.color()).finish()
    }
}

/// A handle to a posted callback that can cancel it. Dropping it leaves the callback queued.
#[derive(Clone, Debug)]
pub struct Posted {
    state: Arc<AtomicU8>,
}

impl Posted {
    pub(crate) fn new<F: FnOnce() + Send + 'static>(f: F) -> (Posted, impl FnOnce() + Send + 'static) {
        let state = Arc::new(AtomicU8::new(QUEUED));
        let posted = Posted { state: state.clone() };
        let closure = move || {
            // AcqRel pairs with the exchange in `cancel`: one of the two wins. Failure is Relaxed:
            // in that case nothing is read.
            if state.compare_exchange(QUEUED, STARTED, AcqRel, Relaxed).is_ok() {
                f();
            }
        };
        (posted, closure)
    }

    /// Cancels the callback. True if it will not run; its closure is dropped when its turn comes.
    /// False if it has started, or was canceled before.
    pub fn cancel(&self) -> bool {
        // AcqRel pairs with the exchange in `new`. Failure is Relaxed: it does not tell whether the
        // callback has run.
        self.state.compare_exchange(QUEUED, CANCELED, AcqRel, Relaxed).is_ok()
    }
}

const QUEUED: u8 = 0;
const STARTED: u8 = 1;
const CANCELED: u8 = 2;
