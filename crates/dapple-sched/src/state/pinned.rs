//! Colors that stay on one worker, and state and futures that are not `Send` and never leave its
//! thread.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::color::Color;
use crate::color::node::Origin;
use crate::hold;
use crate::runtime::Handle;
use crate::runtime::context;
use crate::state::colored::TryWithError;
use crate::state::wait;
use crate::sync::atomic::{AtomicBool, Ordering::*};
use crate::task::budget::poll_budget;
use crate::task::{self, JoinHandle, Start};
use crate::worker::Worker;
use crate::worker::local::{Found, Locals, Presence};

impl Color {
    /// A fresh color that stays on one worker, with an index below [`Handle::workers`]: its
    /// callbacks and the polls of its tasks run only on that worker's thread. For anything bound to
    /// a thread: [`Pinned`] state, [`Color::spawn_pinned`], libraries that want to be called from
    /// one thread.
    ///
    /// No worker steals it, even from an endless callback: pinned work waits for its worker while
    /// others sleep (the exception to C6). So pin only colors that need it.
    ///
    /// Callbacks of a pinned color are `Send` like any others, and another thread may *drop* them
    /// after a shutdown. A [`crate::Colored`] with a pinned color guards a `Send` value: a closure
    /// that finds the color free runs in line, on the calling thread.
    ///
    /// # Panics
    /// If there is no such worker; if no runtime is current.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Handle};
    ///
    /// let display = Color::pinned(1);
    /// let task = display.spawn(async { Handle::current().worker_index() });
    /// assert_eq!(runtime.block_on(task).unwrap(), Some(1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pinned(worker: usize) -> Color {
        Handle::current().pinned_color(worker)
    }

    /// The index of the color's worker; `None` if the color may move.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::Color;
    ///
    /// assert_eq!(Color::pinned(0).pinned_to(), Some(0));
    /// assert_eq!(Color::new().pinned_to(), None);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pinned_to(&self) -> Option<usize> {
        if self.is_default() {
            return None;
        }
        // SAFETY: a handle keeps its cell alive.
        let cell = unsafe { self.cell().as_ref() };
        // Relaxed: it never changes.
        cell.is_pinned().then(|| usize::from(cell.home.load(Relaxed)))
    }

    /// As [`Color::spawn`], for a future that is not `Send`: one that keeps an `Rc` or a `RefCell`
    /// across its awaits. Only the closure that makes it goes to the worker, and the output comes
    /// back. That worker's thread polls and drops it, even at shutdown.
    ///
    /// Cancel safety: dropping the handle detaches the task, which runs on; its output is dropped.
    ///
    /// Cost: two allocations more than [`Color::spawn`], and two look-ups for each poll.
    ///
    /// # Panics
    /// If the color is not pinned.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, yield_now};
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// let task = Color::pinned(1).spawn_pinned(|| async {
    ///     let count = Rc::new(Cell::new(1));
    ///     yield_now().await;
    ///     count.set(count.get() + 1);
    ///     count.get()
    /// });
    /// assert_eq!(runtime.block_on(task).unwrap(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_pinned<M, F>(&self, make: M) -> JoinHandle<F::Output>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let place = Place::of(self);
        let local = Local { place, make: Some(make), future: PhantomData::<fn() -> F> };
        task::spawn(Start::Colored(local.place.color.clone()), false, Location::caller(), local)
    }
}

/// A color's worker, and a key for a value on that worker.
struct Place {
    color: Color,
    worker: usize,
    key: u64,
}

impl Place {
    fn of(color: &Color) -> Place {
        let color = color.resolved();
        let worker =
            color.pinned_to().expect("only a pinned color keeps what is not `Send`: make it with Color::pinned");
        let key = color.shared().fresh_id();
        Place { color, worker, key }
    }

    /// Calls `f` on the worker's own thread; returns `None` on other threads.
    fn here<R>(&self, f: impl FnOnce(&Worker) -> R) -> Option<R> {
        context::with_worker(|worker| {
            let here = worker.index == self.worker && ptr::eq(&*worker.shared, self.color.shared());
            here.then(|| f(worker))
        })
        .flatten()
    }
}

/// A task's future for one that is not `Send`: the real future stays on its worker.
struct Local<M, F> {
    place: Place,
    /// `None` once the future was made.
    make: Option<M>,
    future: PhantomData<F>,
}

// Nothing in it is pinned: the real future has a separate box.
impl<M, F> Unpin for Local<M, fn() -> F> {}

impl<M: FnOnce() -> F, F: Future + 'static> Future for Local<M, fn() -> F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let make = self.make.take();
        let place = &self.place;
        let polled = place.here(|worker| {
            let mut future: Box<Pin<Box<F>>> = match make {
                Some(make) => Box::new(Box::pin(make())),
                None => {
                    let kept = worker.locals.remove_future(place.key).and_then(|kept| kept.downcast().ok());
                    kept.expect("a task that has not ended has its future on its worker")
                }
            };
            // During its poll only this thread has the future: a panic drops it here.
            let polled = future.as_mut().as_mut().poll(cx);
            if polled.is_pending() {
                worker.locals.add_future(place.key, place.color.clone(), future);
            }
            polled
        });
        polled.expect("a pinned color runs on its worker")
    }
}

impl<M, F> Drop for Local<M, F> {
    fn drop(&mut self) {
        // On another thread: its worker has stopped, and drops it.
        let future = self.place.here(|worker| worker.locals.remove_future(self.place.key));
        drop(future);
    }
}

/// State that stays on the thread of one worker, and so need not be `Send`: an `Rc`, a `RefCell`, a
/// handle of a library that is bound to a thread. The counterpart of [`crate::Colored`] for a
/// [pinned](Color::pinned) color.
///
/// A clone is another handle to the same value; handles are `Send`. The value is dropped with the
/// last handle, on its worker's thread while its color is held. At shutdown, values are dropped
/// after the tasks pinned to that worker, in the order of making.
///
/// ```
/// use dapple_sched::{Color, Pinned, Runtime};
/// use std::cell::Cell;
/// use std::rc::Rc;
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// let _entered = runtime.enter();
/// let hits = Pinned::new(&Color::pinned(1), || Rc::new(Cell::new(0)));
/// hits.post(|hits| hits.set(hits.get() + 1));
/// assert_eq!(runtime.block_on(hits.with(|hits| hits.get())), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Pinned<T> {
    inner: Arc<Inner>,
    /// Handles are `Send` and `Sync` for any `T`, because they contain no `T`.
    value: PhantomData<fn(T) -> T>,
}

struct Inner {
    place: Place,
    /// A closure, or the maker, has panicked.
    poisoned: AtomicBool,
}

impl<T: 'static> Pinned<T> {
    /// Makes a value on the worker of a pinned color: at once if this thread holds the color there,
    /// otherwise in a callback of it. Everything done with the handle comes after that.
    ///
    /// A maker that panics leaves no value: the state stays poisoned.
    ///
    /// # Panics
    /// If the color is not pinned.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Pinned};
    /// use std::cell::RefCell;
    /// use std::rc::Rc;
    ///
    /// let color = Color::pinned(0);
    /// let log = Pinned::new(&color, || Rc::new(RefCell::new(vec!["made"])));
    /// assert_eq!(runtime.block_on(log.with(|log| log.borrow().len())), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn new<M: FnOnce() -> T + Send + 'static>(color: &Color, make: M) -> Pinned<T> {
        let inner = Inner { place: Place::of(color), poisoned: AtomicBool::new(false) };
        let pinned = Pinned { inner: Arc::new(inner), value: PhantomData };
        if pinned.is_held_here() {
            pinned.make(make);
        } else {
            let this = pinned.clone();
            pinned.color().post(move || this.make(make));
        }
        pinned
    }

    /// Keeps a value that is here already, and so need not be `Send`, under the running callback's own color.
    ///
    /// # Panics
    /// Unless it is called while a [pinned](Color::pinned) color is held: by a callback of it, or a task's poll.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Pinned};
    /// use std::cell::Cell;
    /// use std::rc::Rc;
    ///
    /// let task = Color::pinned(1).spawn_pinned(|| async {
    ///     let mine = Rc::new(Cell::new(1));
    ///     let kept = Pinned::here(mine.clone());
    ///     kept.with(|kept| kept.set(kept.get() + 1)).await;
    ///     mine.get()
    /// });
    /// assert_eq!(runtime.block_on(task).unwrap(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn here(value: T) -> Pinned<T> {
        let inner = Inner { place: Place::of(&Color::current()), poisoned: AtomicBool::new(false) };
        let pinned = Pinned { inner: Arc::new(inner), value: PhantomData };
        pinned.make(|| value);
        pinned
    }

    fn make(&self, make: impl FnOnce() -> T) {
        let place = &self.inner.place;
        let poison = PoisonUnlessDone(&self.inner.poisoned);
        let value = make();
        std::mem::forget(poison);
        let made = place.here(|worker| worker.locals.add_value(place.key, place.color.clone(), Box::new(value)));
        made.expect("a pinned color runs on its worker");
    }

    /// Queues a closure to run on the value. Eager; has no result. After shutdown it is dropped
    /// instead.
    ///
    /// A panic in the closure poisons the value and is reported as for any callback (C8).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Pinned};
    /// use std::rc::Rc;
    ///
    /// let state = Pinned::new(&Color::pinned(0), || Rc::new(1));
    /// state.post(|state| *state = Rc::new(2));
    /// assert_eq!(runtime.block_on(state.with(|state| **state)), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn post<F: FnOnce(&mut T) + Send + 'static>(&self, f: F) {
        let this = self.clone();
        self.color().post(move || this.access(f));
    }

    /// Runs a closure on the value on its worker, and awaits its result. Lazy: nothing happens
    /// before the future is first polled. On that worker, if the color is free and nothing waits in
    /// it or if it is held already, the closure runs at once.
    ///
    /// Works from any thread and any executor.
    ///
    /// Cancel safety: dropping the future before it is ready cancels the request; the closure has
    /// ended by then, or never runs.
    ///
    /// # Panics
    /// When awaited: if the value is poisoned; if the runtime has shut down; if a closure is
    /// already inside the value. A panic in the closure goes on in the caller and poisons the value
    /// (C8).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Pinned, spawn};
    /// use std::rc::Rc;
    ///
    /// let name = Pinned::new(&Color::pinned(1), || Rc::<str>::from("Ann"));
    /// let task = spawn(async move { name.with(|name| name.to_string()).await });
    /// assert_eq!(runtime.block_on(task).unwrap(), "Ann");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn with<R, F>(&self, f: F) -> PinnedWith<T, F, R>
    where
        R: Send + 'static,
        F: FnOnce(&mut T) -> R + Send + 'static,
    {
        PinnedWith { state: self.clone(), closure: Some(f), task: None, origin: Location::caller() }
    }

    /// Runs a closure on the value now, on its worker only: if the color is free and nothing waits
    /// in it, or if the running callback already holds it. The closure and its result need not be
    /// `Send`.
    ///
    /// # Errors
    /// [`TryWithError`]; the closure has not run.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Pinned, TryWithError};
    /// use std::rc::Rc;
    ///
    /// let color = Color::pinned(0);
    /// let state = Pinned::new(&color, || Rc::new(5));
    /// assert_eq!(state.try_with(|state| **state), Err(TryWithError::Elsewhere));
    /// let task = color.spawn_pinned(move || async move {
    ///     let rc: Rc<i32> = state.try_with(|state| state.clone()).unwrap();
    ///     *rc
    /// });
    /// assert_eq!(runtime.block_on(task).unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn try_with<R, F: FnOnce(&mut T) -> R>(&self, f: F) -> Result<R, TryWithError> {
        let origin = Location::caller();
        let state = self.inner.place.here(|worker| match worker.locals.find(self.inner.place.key) {
            _ if self.is_poisoned() => Err(TryWithError::Poisoned),
            Presence::Absent => Err(TryWithError::Absent),
            Presence::InUse => Err(TryWithError::Busy),
            Presence::Free => Ok(()),
        });
        state.unwrap_or(Err(TryWithError::Elsewhere))?;
        wait::hold_now(self.color().alive(), false, origin, |_| self.access(f)).map_err(|_| TryWithError::Busy)
    }

    /// Whether this is the worker's thread, and it holds the color.
    fn is_held_here(&self) -> bool {
        context::holds(self.color().cell()) && self.inner.place.here(|_| ()).is_some()
    }

    /// Runs a closure on the value, on its worker, while the color is held.
    pub(crate) fn access<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let place = &self.inner.place;
        assert!(
            !self.is_poisoned(),
            "the state pinned to worker {} is poisoned: a closure, or its maker, panicked; clear_poison() makes a value \
             that is there accessible",
            place.worker
        );
        let result = place.here(|worker| match worker.locals.take_value(place.key) {
            Found::Free(value) => {
                let mut using = Using { locals: &worker.locals, key: place.key, value: Some(value) };
                let poison = PoisonUnlessDone(&self.inner.poisoned);
                let result = f(using.value());
                std::mem::forget(poison);
                result
            }
            Found::InUse => panic!(
                "a closure is already inside this state, pinned to worker {}: use what it was given",
                place.worker
            ),
            Found::Absent => panic!("the state pinned to worker {} is missing: its maker panicked", place.worker),
        });
        result.expect("a pinned color runs on its worker")
    }
}

impl<T> Pinned<T> {
    /// The color of the value, which is pinned.
    pub fn color(&self) -> &Color {
        &self.inner.place.color
    }

    /// Whether a closure has panicked in the value, or its maker has.
    pub fn is_poisoned(&self) -> bool {
        // Acquire pairs with the release of the thread that sets or clears it.
        self.inner.poisoned.load(Acquire)
    }

    /// Makes a poisoned value accessible again, once you know that it is consistent, or in order to
    /// repair it.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).panic_handler(|_| ()).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Pinned};
    ///
    /// let state = Pinned::new(&Color::pinned(0), || std::rc::Rc::new(1));
    /// state.post(|_| panic!("in the middle"));
    /// while !state.is_poisoned() {
    ///     std::thread::yield_now();
    /// }
    /// state.clear_poison();
    /// assert_eq!(runtime.block_on(state.with(|state| **state)), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn clear_poison(&self) {
        // Release pairs with `is_poisoned`.
        self.inner.poisoned.store(false, Release);
    }
}

/// Poisons the value when a panic drops this.
struct PoisonUnlessDone<'a>(&'a AtomicBool);

impl Drop for PoisonUnlessDone<'_> {
    fn drop(&mut self) {
        // Release pairs with `is_poisoned`.
        self.0.store(true, Release);
    }
}

/// A value that is taken out during its use, and goes back even if a closure panics.
struct Using<'a> {
    locals: &'a Locals,
    key: u64,
    value: Option<Box<dyn Any>>,
}

impl Using<'_> {
    fn value<T: 'static>(&mut self) -> &mut T {
        let value = self.value.as_mut().and_then(|value| value.downcast_mut());
        value.expect("a key belongs to one value, of the type of its handles")
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.locals.give_back(self.key, value);
        }
    }
}

impl<T> Clone for Pinned<T> {
    fn clone(&self) -> Self {
        Pinned { inner: self.inner.clone(), value: PhantomData }
    }
}

impl<T> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("color", self.color())
            .field("poisoned", &self.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Place { color, key, .. } = &self.place;
        let key = *key;
        let held = context::holds(color.cell());
        let here = self.place.here(|worker| held.then(|| worker.locals.remove_value(key)));
        if let Some(Some(value)) = here {
            return drop(value);
        }
        // Dropping counts as running (C1). A worker that has stopped drops the value itself.
        color.post(move || drop(context::with_worker(|worker| worker.locals.remove_value(key))));
    }
}

/// The future of [`Pinned::with`].
#[must_use = "a `with` does nothing until it is awaited; `post` is the eager form"]
pub struct PinnedWith<T, F, R> {
    state: Pinned<T>,
    closure: Option<F>,
    /// The closure as a callback of the color.
    task: Option<JoinHandle<R>>,
    origin: Origin,
}

// The closure is never pinned: the call moves it out.
impl<T, F, R> Unpin for PinnedWith<T, F, R> {}

impl<T, F, R> Future for PinnedWith<T, F, R>
where
    T: 'static,
    F: FnOnce(&mut T) -> R + Send + 'static,
    R: Send + 'static,
{
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        if self.closure.is_some() {
            ready!(poll_budget(cx));
        }
        if let Some(closure) = self.closure.take() {
            let state = self.state.clone();
            if state.is_held_here() {
                return Poll::Ready(context::in_frame(state.color().cell(), |_| state.access(closure)));
            }
            if let Some(hold) =
                state.inner.place.here(|_| hold::try_hold(state.color().alive(), false, self.origin)).flatten()
            {
                return Poll::Ready(hold::holding(hold, |_| state.access(closure)));
            }
            let own = state.clone();
            let run = async move { own.access(closure) };
            self.task = Some(task::spawn(Start::Colored(state.color().clone()), false, self.origin, run));
        }
        let task = self.task.as_mut().expect("a `with` is not polled again after it was ready");
        let Poll::Ready(result) = Pin::new(task).poll(cx) else { return Poll::Pending };
        self.task = None;
        match result {
            Ok(result) => Poll::Ready(result),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => panic!(
                "the state pinned to worker {} is gone: its runtime has shut down",
                self.state.inner.place.worker
            ),
        }
    }
}

impl<T, F, R> Drop for PinnedWith<T, F, R> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<T, F, R> fmt::Debug for PinnedWith<T, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedWith").field("color", self.state.color()).field("queued", &self.task.is_some()).finish()
    }
}
