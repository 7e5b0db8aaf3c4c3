//! State that belongs to a color: reachable only while the color is held.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::color::Color;
use crate::color::node::Origin;
use crate::hold::held::Held;
use crate::runtime::context;
use crate::state::borrow::{Lent, Reader, Writer};
use crate::state::wait::{self, Wait};
use crate::sync::atomic::{AtomicBool, Ordering::*};

/// A value that belongs to a color, and that only a holder of the color can touch. It has no lock
/// to forget and no data race: the compiler allows no other access.
///
/// A clone is another handle to the same value, as with [`Arc`]. The value is dropped with the last
/// handle, while its color is held.
///
/// ```
/// use dapple_sched::{Colored, Runtime};
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// let _entered = runtime.enter();
/// let hits = Colored::new(0u64);
/// let tasks: Vec<_> = (0..10)
///     .map(|_| {
///         let hits = hits.clone();
///         dapple_sched::spawn(async move { hits.with(|n| *n += 1).await })
///     })
///     .collect();
/// runtime.block_on(async {
///     for task in tasks {
///         task.await.unwrap();
///     }
///     assert_eq!(hits.with(|n| *n).await, 10);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// No reference leaves the closure:
///
/// ```compile_fail
/// # async fn f(state: dapple_sched::Colored<String>) {
/// let leaked: &mut String = state.with(|text| text).await;
/// # }
/// ```
///
/// and no value that is bound to a thread enters it:
///
/// ```compile_fail
/// let state = dapple_sched::Colored::new(std::rc::Rc::new(1));
/// ```
///
/// # Mistakes, and how they show
///
/// | mistake | result |
/// |---|---|
/// | touching the value outside of its color | does not compile: there is no other access |
/// | an `await` while it is held | does not compile: the closure is not `async` |
/// | access to the same value inside its closure | [`TryWithError::Busy`], or a panic that says so |
/// | [`Colored::with_blocking`] on a worker, or while holding a color | a panic that says what to write instead |
/// | access after a panic in a closure | a panic that says that the value is poisoned; [`Colored::clear_poison`] |
/// | use of two values at once | [`when`](crate::when()) holds them together; or take a copy from the first, or give both the same color |
// No bounds here and on `Inner` and `With`: the compiler erases lifetimes inside `async` blocks,
// and could then not prove `'static` for a `Colored<Vec<&'static str>>` that is held across an
// await. `with_color` demands them.
pub struct Colored<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    color: Color,
    /// The line that made it.
    made_from: Origin,
    /// `drop_in_color` for this `T`, with bounds that this struct does not have.
    drop_value: fn(&Color, T),
    /// A closure has panicked.
    poisoned: AtomicBool,
    /// Touched while the color is held.
    value: Lent<T>,
}

// SAFETY: `T` is `Send`, and only a holder of the color touches the value, one at a time (C1).
unsafe impl<T: Send> Send for Inner<T> {}
// SAFETY: as above. Only holders of the color for reading share a `&T` between threads, which
// demands `Sync`.
unsafe impl<T: Send> Sync for Inner<T> {}

/// The reason why [`Colored::try_with`] did not run its closure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TryWithError {
    /// The color is held, or callbacks wait in it. Await [`Colored::with`], or [`Colored::post`].
    Busy,
    /// A closure panicked in this value, which may be half changed. See [`Colored::clear_poison`].
    Poisoned,
    /// The value is pinned to a worker, and this is another thread. See [`crate::Pinned`].
    Elsewhere,
    /// The pinned value is missing: it has not been made yet, its maker panicked, or its worker is
    /// about to end.
    Absent,
}

impl fmt::Display for TryWithError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryWithError::Busy => "the color is held or has callbacks waiting: await `with`, or use `post`",
            TryWithError::Poisoned => "the state is poisoned by a panic: inspect it after `clear_poison`",
            TryWithError::Elsewhere => {
                "the state is pinned to a worker, and this is not its thread: await `with`, or use `post`"
            }
            TryWithError::Absent => "the pinned state is missing: it has not been made yet, or its maker panicked",
        })
    }
}

impl std::error::Error for TryWithError {}

impl<T: Send + 'static> Colored<T> {
    /// A value with a color of its own.
    ///
    /// # Panics
    /// If no runtime is current; see [`crate::Handle::current`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Colored;
    ///
    /// let names = Colored::new(vec!["Ann"]);
    /// runtime.block_on(names.with(|names| names.push("Bob")));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn new(value: T) -> Colored<T> {
        Colored::with_color(value, &Color::new())
    }

    /// A value of a given color. Closures on one value may use the other values of its color.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Colored};
    ///
    /// let color = Color::new();
    /// let (from, to) = (Colored::with_color(10, &color), Colored::with_color(0, &color));
    /// // Who holds one holds both.
    /// runtime.block_on(from.with(|from| to.try_with(|to| std::mem::swap(from, to)))).unwrap();
    /// assert_eq!(runtime.block_on(to.with(|to| *to)), 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn with_color(value: T, color: &Color) -> Colored<T> {
        Colored {
            inner: Arc::new(Inner {
                color: color.resolved(),
                made_from: Location::caller(),
                drop_value: Color::drop_in_color::<T>,
                poisoned: AtomicBool::new(false),
                value: Lent::new(value),
            }),
        }
    }

    /// Runs a closure on the value, in the awaiting task's own poll, while the color is held: at
    /// once if the color is free and nothing waits in it, otherwise when the color reaches this
    /// request. The color accepts the request when the future is first polled; before that, nothing
    /// happens.
    ///
    /// The closure may borrow the task's locals. It cannot await, so no hold waits for another. In
    /// a callback or task that holds the color already, it runs in line as a part of that (C2).
    ///
    /// Works from any executor. On a foreign one, a request that has its turn holds the color until
    /// its future is polled or dropped: do not leave it unpolled in a `select!`.
    ///
    /// Cancel safety: dropping the future before it is ready cancels the request; the closure then
    /// never runs.
    ///
    /// # Order
    /// The closure runs after everything that the color accepted before the request, and before
    /// everything that it accepted later. The poll that runs it has no place in the order of the
    /// *task's* color: it goes before everything that this color has not started yet, because the
    /// state is held until then. A request can lose its place in the order of the state's color in
    /// two ways. Then the color accepts it again, after everything that it accepted meanwhile:
    ///
    /// - The task is polled while it could run the closure, and does not poll this future, as in a
    ///   `select!` with another branch ready.
    /// - The task is *outrun* if, when its turn comes, another holder has the task's own color (a
    ///   [`when`](crate::when()), a reader, a closure in line) and may itself wait for this state.
    ///   The request is then made once more, for both colors as one set, and cannot be outrun
    ///   again. After the set has reached the task's color, nothing else runs in that color until
    ///   the set's wait ends.
    ///
    /// # Panics
    /// When awaited: if the value is poisoned, or a closure is already inside it. A panic in the
    /// closure unwinds into the caller and poisons the value (C8).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Colored;
    ///
    /// runtime.block_on(async {
    ///     let ages = Colored::new(vec![36]);
    ///     let name = String::from("Ann"); // borrowed by the closure
    ///     let line = ages.with(|ages| format!("{name} is {}", ages[0])).await;
    ///     assert_eq!(line, "Ann is 36");
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn with<R, F: FnOnce(&mut T) -> R>(&self, f: F) -> With<'_, T, F, R> {
        With { state: self, closure: Some(f), wait: Wait::new(), result: PhantomData }
    }

    /// Queues a closure to run on the value. Eager; has no result. After shutdown it is dropped
    /// instead.
    ///
    /// A panic in the closure poisons the value and is reported as for any callback (C8).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Colored;
    ///
    /// let log = Colored::new(Vec::new());
    /// log.post(|log| log.push("first"));
    /// log.post(|log| log.push("second"));
    /// assert_eq!(runtime.block_on(log.with(|log| log.len())), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn post<F: FnOnce(&mut T) + Send + 'static>(&self, f: F) {
        let state = self.clone();
        self.inner.color.post(move || {
            let ran = Held::by_callback(state.color().alive(), |held| state.access(held, f));
            ran.expect("a callback of the color holds it");
        });
    }

    /// Runs a closure on the value now, if the color is free and nothing waits in it, or if the
    /// running callback already holds it.
    ///
    /// # Errors
    /// [`TryWithError`]; the closure has not run.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Colored, TryWithError};
    ///
    /// let state = Colored::new(1);
    /// assert_eq!(state.try_with(|n| *n + 1), Ok(2));
    /// // A closure is inside already.
    /// let nested = state.try_with(|_| state.try_with(|n| *n));
    /// assert_eq!(nested, Ok(Err(TryWithError::Busy)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn try_with<R, F: FnOnce(&mut T) -> R>(&self, f: F) -> Result<R, TryWithError> {
        if self.is_poisoned() {
            return Err(TryWithError::Poisoned);
        }
        let run = |held: Held<'_>| Ok(self.lend_to(self.write(held)?, f));
        wait::hold_now(self.color().alive(), false, Location::caller(), run).unwrap_or(Err(TryWithError::Busy))
    }

    /// As [`Colored::with`], for plain threads: blocks until the color reaches the request.
    ///
    /// # Panics
    /// On a worker, because workers must not block (C9), and on a thread that holds a color,
    /// because the thread could wait for itself. Also as [`Colored::with`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Colored;
    ///
    /// let total = Colored::new(0);
    /// let thread = std::thread::spawn({
    ///     let total = total.clone();
    ///     move || total.with_blocking(|total| *total += 1)
    /// });
    /// thread.join().unwrap();
    /// assert_eq!(total.with_blocking(|total| *total), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn with_blocking<R, F: FnOnce(&mut T) -> R>(&self, f: F) -> R {
        may_block();
        crate::block_on(self.with(f))
    }

    /// Runs the closure on the value.
    #[inline]
    fn access<R>(&self, held: Held<'_>, f: impl FnOnce(&mut T) -> R) -> R {
        match self.write(held) {
            Ok(writer) => self.lend_to(writer, f),
            Err(error) => panic_refused(self.color(), error),
        }
    }

    /// Runs the closure on the value, and poisons the value if it panics.
    #[inline]
    fn lend_to<R>(&self, mut writer: Writer<'_, T>, f: impl FnOnce(&mut T) -> R) -> R {
        struct Poison<'a, T>(&'a Colored<T>, bool);
        impl<T> Drop for Poison<'_, T> {
            #[inline]
            fn drop(&mut self) {
                if self.1 {
                    self.0.poison();
                }
            }
        }
        let mut poison = Poison(self, true);
        let result = context::in_state(self.made_from(), || f(&mut writer));
        poison.1 = false;
        result
    }
}

impl<T> Colored<T> {
    /// Lets a closure write the value.
    #[inline]
    pub(super) fn write<'x>(&'x self, held: Held<'x>) -> Result<Writer<'x, T>, TryWithError> {
        assert!(held.covers(self.color().alive(), false), "a state is written while its color is held");
        if self.is_poisoned() {
            return Err(TryWithError::Poisoned);
        }
        // SAFETY: the color is held for writing, as asserted, for longer than the writer lives.
        unsafe { self.inner.value.write() }.ok_or(TryWithError::Busy)
    }

    /// Lets a closure read the value.
    pub(super) fn view<'x>(&'x self, held: Held<'x>) -> Result<Reader<'x, T>, TryWithError> {
        let color = self.color().alive();
        assert!(held.covers(color, true), "a state is read while its color is held");
        if self.is_poisoned() {
            return Err(TryWithError::Poisoned);
        }
        // A thread that holds the color for writing could write inside of the closure; the count
        // prevents that.
        let counts = held.may_write(color);
        // SAFETY: the color is held, as asserted, for longer than the reader lives; for writing
        // only if the reader is counted.
        unsafe { self.inner.value.read(counts) }.ok_or(TryWithError::Busy)
    }

    /// The address of the value: equal only for handles to the same one.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    /// The line that made it.
    pub(crate) fn made_from(&self) -> Origin {
        self.inner.made_from
    }

    pub(super) fn poison(&self) {
        // Release pairs with `is_poisoned`.
        self.inner.poisoned.store(true, Release);
    }

    /// The color of the value.
    pub fn color(&self) -> &Color {
        &self.inner.color
    }

    /// Whether a closure has panicked in the value.
    pub fn is_poisoned(&self) -> bool {
        // Acquire pairs with the release of the thread that sets or clears it.
        self.inner.poisoned.load(Acquire)
    }

    /// Makes a poisoned value accessible again, once you know that it is consistent, or in order to
    /// repair it.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Colored, TryWithError};
    /// use std::panic::{AssertUnwindSafe, catch_unwind};
    ///
    /// let state = Colored::new(vec![1, 2]);
    /// let result = catch_unwind(AssertUnwindSafe(|| state.try_with(|_| panic!("in the middle"))));
    /// assert!(result.is_err());
    /// assert_eq!(state.try_with(|state| state.len()), Err(TryWithError::Poisoned));
    /// state.clear_poison();
    /// state.try_with(|state| state.clear()).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn clear_poison(&self) {
        // Release pairs with `is_poisoned`.
        self.inner.poisoned.store(false, Release);
    }
}

impl<T> Clone for Colored<T> {
    fn clone(&self) -> Self {
        Colored { inner: self.inner.clone() }
    }
}

impl<T> fmt::Debug for Colored<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Colored")
            .field("color", self.color())
            .field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here, with the last handle gone; the value is not used again.
        let value = unsafe { self.value.take() };
        if std::mem::needs_drop::<T>() {
            // Dropping counts as running (C1).
            (self.drop_value)(&self.color, value);
        }
    }
}

/// Panics because a closure cannot get a state.
#[cold]
pub(super) fn panic_refused(color: &Color, error: TryWithError) -> ! {
    if error == TryWithError::Poisoned {
        panic!(
            "the state of color {color} is poisoned: a closure panicked inside it; clear_poison() makes it accessible"
        )
    }
    panic!("a closure is already inside this state of color {color}: use what it was given")
}

/// Panics if blocking is forbidden.
pub(super) fn may_block() {
    assert!(
        !context::on_worker(),
        "with_blocking would block a worker: inside a task await `with`, inside a callback use `post` or `try_with`"
    );
    assert!(
        context::depth() == 0,
        "with_blocking inside a closure that holds another state can deadlock: name both states in one `when`, copy out \
         what you need first, or give both the same color"
    );
}

/// The future of [`Colored::with`].
#[must_use = "a `with` does nothing until it is awaited; `post` is the eager form"]
pub struct With<'a, T, F, R> {
    state: &'a Colored<T>,
    closure: Option<F>,
    wait: Wait,
    result: PhantomData<fn() -> R>,
}

// The closure is never pinned: the call moves it out.
impl<T, F, R> Unpin for With<'_, T, F, R> {}

impl<T: Send + 'static, F: FnOnce(&mut T) -> R, R> Future for With<'_, T, F, R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let With { state, closure, wait, .. } = &mut *self;
        let mut closure = || closure.take().expect("a `with` is not polled again after it was ready");
        wait.poll_one(state.color().alive(), false, cx, |held| state.access(held, closure()))
    }
}

impl<T, F, R> fmt::Debug for With<'_, T, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("With").field("color", self.state.color()).field("queued", &self.wait.is_queued()).finish()
    }
}

impl Color {
    /// Drops a value while this color is held: here if this thread holds it, otherwise in a
    /// callback.
    pub(crate) fn drop_in_color<D: Send + 'static>(&self, value: D) {
        if context::holds(self.cell()) {
            context::in_frame(self.cell(), |_| drop(value));
        } else {
            self.post(move || drop(value));
        }
    }
}
