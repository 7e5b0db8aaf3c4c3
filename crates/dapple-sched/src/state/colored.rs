//! State that belongs to a color: reachable only while the color is held.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use crate::color::cell::ColorCell;
use crate::color::node::Origin;
use crate::color::{Color, Priority};
use crate::hold;
use crate::hold::request::{self, Member};
use crate::hold::ticket::{Chance, Ticket};
use crate::runtime::context;
use crate::state::borrow::Borrows;
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicBool, Ordering::*};
use crate::task::budget::poll_budget;

/// A value that belongs to a color, and can be touched only while that color is held. No lock to forget, no data race
/// to chase: the compiler leaves no other way in.
///
/// Cloning makes another handle to the same value, like [`Arc`]. The value is dropped with the last handle, while its
/// color is held.
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
/// No reference gets out of the closure:
///
/// ```compile_fail
/// # async fn f(state: dapple_sched::Colored<String>) {
/// let leaked: &mut String = state.with(|text| text).await;
/// # }
/// ```
///
/// and nothing that is bound to a thread gets in:
///
/// ```compile_fail
/// let state = dapple_sched::Colored::new(std::rc::Rc::new(1));
/// ```
///
/// # What can go wrong, and who says so
///
/// | mistake | answer |
/// |---|---|
/// | touching the value outside of its color | does not compile: there is no other access |
/// | awaiting while it is held | does not compile: the closure is not `async` |
/// | asking for the same value inside its closure | [`TryWithError::Busy`], or a panic that says so |
/// | [`Colored::with_blocking`] on a worker, or while holding a color | a panic that says what to write instead |
/// | going on after a panic in a closure | a panic that says that the value is poisoned; [`Colored::clear_poison`] |
/// | needing two values at once | [`when`](crate::when()) holds them together; or take a copy from the first, or give both the same color |
// No bounds here and on `Inner` and `With`: the compiler erases lifetimes inside `async` blocks, and could then not
// prove `'static` for a `Colored<Vec<&'static str>>` that is held across an await. `with_color` demands them.
pub struct Colored<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    color: Color,
    /// The line that made it.
    made_from: Origin,
    /// `drop_in_color` for this `T`, which demands more of it than this struct does.
    drop_value: fn(&Color, T),
    /// A closure has panicked.
    poisoned: AtomicBool,
    /// The closures that are inside.
    borrows: Borrows,
    /// Touched while the color is held.
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: `T` is `Send`, and only whoever holds the color touches the value, one at a time (C1).
unsafe impl<T: Send> Send for Inner<T> {}
// SAFETY: as above. A `&T` is shared between threads only by those who hold the color for reading, which demands `Sync`.
unsafe impl<T: Send> Sync for Inner<T> {}

/// Why [`Colored::try_with`] did not run its closure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TryWithError {
    /// The color is held, or callbacks wait in it. Await [`Colored::with`], or [`Colored::post`].
    Busy,
    /// A closure panicked while it had the value, which may be half changed. See [`Colored::clear_poison`].
    Poisoned,
    /// The value is pinned to another thread, a worker, which this one is not. See [`crate::Pinned`].
    Elsewhere,
    /// The pinned value is not there: it has not been made yet, its maker panicked, or its worker is about to end.
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
            TryWithError::Absent => "the pinned state is not there: it has not been made yet, or its maker panicked",
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

    /// A value of a given color. Values of one color may be used in each other's closures.
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
                borrows: Borrows::none(),
                value: UnsafeCell::new(ManuallyDrop::new(value)),
            }),
        }
    }

    /// Runs a closure on the value, in the awaiting task's own poll, while the color is held: at once if the color is
    /// free and nothing waits in it, otherwise when the color reaches this request, which it accepts when the future
    /// is first polled. Lazy: nothing happens before that.
    ///
    /// The closure may borrow the task's locals. It cannot await, so a hold never waits for another. Inside a callback
    /// or task that holds the color already, it runs in line as a part of it (C2).
    ///
    /// Works from any executor. On a foreign one, a request whose turn has come holds the color until its future is
    /// polled or dropped: do not keep it unpolled in a `select!`.
    ///
    /// Cancel safety: dropping the future before it is ready cancels the request; the closure then never runs.
    ///
    /// # Order
    /// The closure runs after everything that the color accepted before the request, and before everything that it
    /// accepted later. In the order of the *task's* color the poll in which that happens has no place: it goes before what
    /// that color has accepted and not started yet, because the state is held until then. There are two ways to lose the
    /// place in the order of the state's color, and in both of them the color accepts the request anew, behind what it has
    /// accepted meanwhile:
    ///
    /// - The task is polled while it could run the closure, and does not poll this future, as in a `select!` whose other
    ///   branch was ready.
    /// - It is *outrun*: when its turn has come, the task's own color is held by somebody else (a
    ///   [`when`](crate::when()), a reader, a closure in line), who may wait for just this state. The request is then made
    ///   once more, for both colors as one set, and cannot be outrun again. While that set waits, nothing else runs in the
    ///   task's color once it has been reached there.
    ///
    /// # Panics
    /// When awaited: if the value is poisoned; if a closure is already inside this very value. A panic in the closure
    /// unwinds into the caller and poisons the value (C8).
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
        With { state: self, closure: Some(f), ticket: None, origin: Location::caller(), result: PhantomData }
    }

    /// Queues a closure to run on the value. Eager; yields no result. After shutdown it is dropped instead.
    ///
    /// A panic in the closure poisons the value and is reported like that of any callback (C8).
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
        // SAFETY: a callback of the color holds it.
        self.inner.color.post(move || unsafe { state.access(f) });
    }

    /// Runs a closure on the value now, if the color is free and nothing waits in it, or is held by the running
    /// callback already.
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
        let color = self.inner.color.cell();
        if context::holds(color) {
            // SAFETY: this thread holds the color.
            return unsafe {
                if self.borrows().any() {
                    Err(TryWithError::Busy)
                } else {
                    Ok(context::in_frame(color, false, |_| self.access(f)))
                }
            };
        }
        // SAFETY: our handle keeps the color alive; `try_hold` makes the hold ours.
        unsafe {
            if hold::try_hold(color, Location::caller()) {
                Ok(hold::holding(color, || self.access(f)))
            } else {
                Err(TryWithError::Busy)
            }
        }
    }

    /// As [`Colored::with`], for plain threads: blocks until the color reaches the request.
    ///
    /// # Panics
    /// On a worker, which must not block (C9); on a thread that holds a color, which could wait for itself; and as
    /// [`Colored::with`].
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
    ///
    /// # Safety
    /// The caller holds the color for itself.
    #[inline]
    unsafe fn access<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        struct Poison<'a, T: Send + 'static>(&'a Colored<T>, bool);
        impl<T: Send + 'static> Drop for Poison<'_, T> {
            #[inline]
            fn drop(&mut self) {
                // SAFETY: still inside `access`.
                unsafe { self.0.borrows().end_writing() };
                if self.1 {
                    // Release pairs with `is_poisoned`.
                    self.0.inner.poisoned.store(true, Release);
                }
            }
        }
        self.assert_sound();
        // SAFETY: promised by the caller; one closure at a time is inside, which the assertion keeps.
        unsafe {
            if self.borrows().any() {
                panic_borrowed(self.color());
            }
            self.borrows().enter_to_write();
            let mut poison = Poison(self, true);
            let value = self.inner.value.with_mut(|value| value);
            let result = context::in_state(self.inner.made_from, || f(&mut *value));
            poison.1 = false;
            result
        }
    }
}

impl<T> Colored<T> {
    #[inline]
    pub(super) fn assert_sound(&self) {
        if self.is_poisoned() {
            panic_poisoned(self.color());
        }
    }

    /// The value itself.
    ///
    /// # Safety
    /// The pointer is used while the caller holds the color for himself.
    pub(crate) unsafe fn value(&self) -> *mut T {
        self.inner.value.with_mut(|value| value).cast()
    }

    /// As [`Colored::value`]; the models take this for reading.
    ///
    /// # Safety
    /// The pointer is used while the caller holds the color, for reading or for himself.
    pub(super) unsafe fn value_to_read(&self) -> *const T {
        self.inner.value.with(|value| value).cast()
    }

    /// Where the value is: equal for handles to the same one only.
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

    /// The closures that are inside.
    pub(super) fn borrows(&self) -> &Borrows {
        &self.inner.borrows
    }

    /// The color of the value.
    pub fn color(&self) -> &Color {
        &self.inner.color
    }

    /// Whether a closure has panicked while it had the value.
    pub fn is_poisoned(&self) -> bool {
        // Acquire pairs with the release of whoever sets or clears it.
        self.inner.poisoned.load(Acquire)
    }

    /// Makes a poisoned value accessible again, once you know that it is sound, or in order to mend it.
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
        let value = self.value.with_mut(|value| unsafe { ManuallyDrop::take(&mut *value) });
        if std::mem::needs_drop::<T>() {
            // Dropping counts as running (C1).
            (self.drop_value)(&self.color, value);
        }
    }
}

/// Queues a wait for `color`; `outrun`: together with the color of the task that waits.
///
/// # Safety
/// `color` is alive for the call.
pub(crate) unsafe fn queue(
    color: NonNull<ColorCell>,
    reads: bool,
    outrun: bool,
    origin: Origin,
    waker: &Waker,
) -> Arc<Ticket> {
    // SAFETY: promised by the caller; the task that is polled keeps its color alive.
    unsafe {
        let shared = color.as_ref().shared;
        match context::current_task_color().filter(|own| outrun && ptr::eq(own.as_ref().shared, shared)) {
            Some(own) => {
                let member = |color, reads| Member::new(color, reads, Priority::NORMAL);
                request::wait_for_all(shared, [member(color, reads), member(own, false)], origin, waker)
            }
            None => Ticket::queue(color, reads, origin, waker),
        }
    }
}

#[cold]
pub(super) fn panic_poisoned(color: &Color) -> ! {
    panic!(
        "the state of color {color} is poisoned: a closure panicked while it had it; clear_poison() makes it accessible"
    )
}

#[cold]
pub(super) fn panic_borrowed(color: &Color) -> ! {
    panic!("a closure is already inside this state of color {color}: use what it was given")
}

/// Panics where blocking is forbidden.
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
    ticket: Option<Arc<Ticket>>,
    origin: Origin,
    result: PhantomData<fn() -> R>,
}

// The closure is never pinned: it is moved out when it is called.
impl<T, F, R> Unpin for With<'_, T, F, R> {}

impl<T: Send + 'static, F: FnOnce(&mut T) -> R, R> With<'_, T, F, R> {
    fn take_closure(&mut self) -> F {
        self.closure.take().expect("a `with` is not polled again after it was ready")
    }
}

impl<T: Send + 'static, F: FnOnce(&mut T) -> R, R> Future for With<'_, T, F, R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        if self.ticket.is_none() {
            ready!(poll_budget(cx));
        }
        let state = self.state;
        let color = state.inner.color.cell();
        let mut outrun = false;
        if let Some(ticket) = &self.ticket {
            let chance = ticket.poll(cx.waker());
            if chance == Chance::Wait {
                return Poll::Pending;
            }
            let ticket = self.ticket.take().expect("it was just polled");
            outrun = chance == Chance::Outrun;
            // SAFETY: our handle keeps the color alive; the chance says who holds it.
            unsafe {
                match chance {
                    Chance::InTurn => {
                        let closure = self.take_closure();
                        return Poll::Ready(ticket.with_turn(|| state.access(closure)));
                    }
                    Chance::Granted => {
                        let closure = self.take_closure();
                        return Poll::Ready(ticket.with_granted(|| state.access(closure)));
                    }
                    Chance::Missed | Chance::Outrun | Chance::Wait => {}
                }
            }
        }
        // SAFETY: our handle keeps the color alive; each branch holds the color as it says.
        unsafe {
            if context::holds(color) {
                let closure = self.take_closure();
                return Poll::Ready(context::in_frame(color, false, |_| state.access(closure)));
            }
            if hold::try_hold(color, self.origin) {
                let closure = self.take_closure();
                return Poll::Ready(hold::holding(color, || state.access(closure)));
            }
            self.ticket = Some(queue(color, false, outrun, self.origin, cx.waker()));
        }
        Poll::Pending
    }
}

impl<T, F, R> Drop for With<'_, T, F, R> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.give_up();
        }
    }
}

impl<T, F, R> fmt::Debug for With<'_, T, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("With").field("color", self.state.color()).field("queued", &self.ticket.is_some()).finish()
    }
}

impl Color {
    /// Drops a value while this color is held: here if this thread holds it, in a callback otherwise.
    pub(crate) fn drop_in_color<D: Send + 'static>(&self, value: D) {
        if context::holds(self.cell()) {
            context::in_frame(self.cell(), false, |_| drop(value));
        } else {
            self.post(move || drop(value));
        }
    }
}
