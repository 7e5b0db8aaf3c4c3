//! Several colors at once (C4): the public face of `request`.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::color::Priority;
use crate::color::node::Origin;
use crate::hold::held::Held;
use crate::hold::request::{self, Ask, Member};
use crate::hold::ticket::Ticket;
use crate::runtime::Handle;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::state::colored::{self, TryWithError};
use crate::state::set::{Owned, Set};
use crate::state::wait::Wait;
use crate::sync::atomic::Ordering::Relaxed;

/// Names several colors or states to hold together: a tuple of up to eight of `&Colored<T>`,
/// [`Colored::reading`](crate::Colored::reading), `&Color` and
/// [`Color::reading`](crate::Color::reading), or a reference to a slice, an array or a `Vec` of one
/// of these types.
///
/// All of them accept the closure in one step, and it starts when it holds them all. However sets
/// overlap and in whatever order they name colors, nothing deadlocks: the set accepted first goes
/// first, in all colors that two sets share. No paper built this; libasync-mp's authors wished for
/// such a callback (thesis, section 7.1).
///
/// Acceptance is **one step** for posts to single colors, too. Consider a post to one of the
/// colors, and a later post to another one by the same thread, or by a thread that learned of the
/// first. The set comes after both posts, before both, or between the first and the second; never
/// after the second and before the first. So a set that reads several states never sees an effect
/// without its cause.
///
/// Two states of the same color, or a color named twice, count as that color once, for writing if
/// one of them is. A set cannot name the same state twice, because it would need two `&mut` to it.
///
/// ```
/// use dapple_sched::{Colored, Runtime, when};
///
/// let runtime = Runtime::builder().workers(2).build()?;
/// let _entered = runtime.enter();
/// let (ann, bob) = (Colored::new(100), Colored::new(0));
/// runtime.block_on(async {
///     when((&ann, &bob))
///         .with(|(ann, bob)| {
///             *ann -= 30;
///             *bob += 30;
///         })
///         .await;
/// });
/// assert_eq!(bob.with_blocking(|bob| *bob), 30);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Panics
/// [`When::post`], [`When::with`] and their variants panic at once, before any color accepts
/// anything, if a set names the same state twice, or colors of different runtimes.
pub fn when<S: Set>(set: S) -> When<S> {
    When { set, priority: Priority::NORMAL }
}

/// Several colors to be held together; see [`when()`].
#[must_use = "nothing is held until `post` or `with`"]
pub struct When<S> {
    set: S,
    priority: Priority,
}

impl<S: Set> When<S> {
    /// Sets the priority of the closure; see [`Color::post_with`](crate::Color::post_with).
    pub fn priority(mut self, priority: Priority) -> When<S> {
        self.priority = priority;
        self
    }

    /// Queues a closure that runs once while all the colors are held. Eager; all colors accept it
    /// at once. For a bare color the closure gets `()`.
    ///
    /// After shutdown the closure is dropped instead, while the colors are held. Never refused,
    /// whatever a color's capacity. A panic in the closure poisons the states that it held for
    /// writing, and is reported as for any callback (C8).
    ///
    /// Cost: if all colors are free and at home on the posting worker, about that of two callbacks;
    /// otherwise the locks of all their homes, and a turn in each color that was not free.
    ///
    /// # Panics
    /// As [`when()`]; also if colors are pinned to different workers, because no worker could hold
    /// them all.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Color, Colored, when};
    /// use std::sync::mpsc;
    ///
    /// let (tx, rx) = mpsc::channel();
    /// let (log, device) = (Colored::new(Vec::new()), Color::new());
    /// when((&log, &device)).post(move |(log, ())| {
    ///     log.push("device reset");
    ///     tx.send(log.len()).unwrap();
    /// });
    /// assert_eq!(rx.recv().unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn post<F>(self, f: F)
    where
        F: for<'x> FnOnce(<S::Owned as Owned>::Access<'x>) + Send + 'static,
    {
        let owned = self.own();
        let origin = Location::caller();
        let members = self.set.members(&owned, self.ask(origin));
        let check = |members: &mut [Member]| {
            let pinned = settle_pins(members);
            (runtime_of(members), pinned)
        };
        // SAFETY: the set has handles to its colors, and `runtime_of` checks their runtime.
        unsafe { request::submit_closure(members, origin, move |held| access(&owned, held, f), check) };
    }

    /// Runs a closure while all the colors are held, in the awaiting task's own poll: at once if
    /// they are all free, otherwise when all have reached this request. They accept it in one step
    /// when the future is first polled. Lazy; may borrow the task's locals; works from any
    /// executor, as [`Colored::with`](crate::Colored::with).
    ///
    /// If the task's own color is one of them, the request takes its place in the order of that
    /// color too, and the task is polled once it holds them all. Otherwise the task is polled
    /// before everything that its own color has accepted; and the request may be outrun, and is
    /// then made again for the colors and the task's own, as
    /// [`Colored::with`](crate::Colored::with) says under "Order".
    ///
    /// Cancel safety: dropping the future before it is ready cancels the request; the closure then
    /// never runs. Colors that it already holds are released at once.
    ///
    /// # Panics
    /// When called, as [`when()`]. When awaited: if a state is poisoned, or a closure is already
    /// inside it. A panic in the closure unwinds into the caller and poisons the states that it
    /// held for writing (C8).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Colored, when};
    ///
    /// let shards: Vec<_> = (1..=3).map(Colored::new).collect();
    /// // A slice of one type: the closure is given one reference for each.
    /// let sum = runtime.block_on(when(&shards).with(|shards| shards.iter().map(|shard| **shard).sum::<i32>()));
    /// assert_eq!(sum, 6);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn with<R, F>(self, f: F) -> WithAll<S, F, R>
    where
        F: for<'x> FnOnce(<S::Owned as Owned>::Access<'x>) -> R,
    {
        let owned = self.own();
        runtime_of(self.set.members(&owned, self.ask(Location::caller())).as_ref());
        WithAll { when: self, owned, closure: Some(f), wait: Wait::new(), result: PhantomData }
    }

    /// Runs a closure now, if all the colors are free or the running callback already holds them.
    ///
    /// # Errors
    /// [`TryWithError`]; the closure has not run.
    ///
    /// # Panics
    /// As [`when()`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Colored, TryWithError, when};
    ///
    /// let (a, b) = (Colored::new(1), Colored::new(2));
    /// assert_eq!(when((&a, &b)).try_with(|(a, b)| *a + *b), Ok(3));
    /// let busy = a.try_with(|_| when((&a, &b)).try_with(|_| ()));
    /// assert_eq!(busy, Ok(Err(TryWithError::Busy)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn try_with<R, F>(self, f: F) -> Result<R, TryWithError>
    where
        F: for<'x> FnOnce(<S::Owned as Owned>::Access<'x>) -> R,
    {
        let origin = Location::caller();
        let owned = self.own();
        let run = |held: Held<'_>| {
            let lent = owned.lend(held).map_err(|(_, error)| error)?;
            Ok(lend_to(&owned, lent, f))
        };
        self.try_now(&owned, origin, run).unwrap_or(Err(TryWithError::Busy))
    }

    /// As [`When::with`], for plain threads: blocks until the colors have reached the request.
    ///
    /// # Panics
    /// As [`Colored::with_blocking`](crate::Colored::with_blocking) and [`When::with`].
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// use dapple_sched::{Colored, when};
    ///
    /// let (a, b) = (Colored::new(1), Colored::new(2));
    /// when((&a, &b)).with_blocking(|(a, b)| std::mem::swap(a, b));
    /// assert_eq!(a.with_blocking(|a| *a), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn with_blocking<R, F>(self, f: F) -> R
    where
        F: for<'x> FnOnce(<S::Owned as Owned>::Access<'x>) -> R,
    {
        colored::may_block();
        crate::block_on(self.with(f))
    }

    fn ask(&self, origin: Origin) -> Ask {
        Ask { priority: self.priority, origin }
    }

    /// The states, each named once.
    fn own(&self) -> S::Owned {
        let owned = self.set.own();
        assert_all_different(&owned);
        owned
    }

    /// Calls `f` while all colors are held, if they are free or held by this thread.
    fn try_now<R, F: FnOnce(Held<'_>) -> R>(&self, owned: &S::Owned, origin: Origin, f: F) -> Result<R, F> {
        let mut members = self.set.members(owned, self.ask(origin));
        let shared = runtime_of(members.as_ref());
        let members = members.as_mut();
        // Colors that this thread has already go to the end.
        let mut wanted = members.len();
        let mut at = 0;
        while at < wanted {
            let (color, reads) = (members[at].color(), members[at].reads());
            if if reads { context::reads(color.ptr()) } else { context::holds(color.ptr()) } {
                wanted -= 1;
                members.swap(at, wanted);
            } else {
                at += 1;
            }
        }
        // SAFETY: the set has handles to its colors.
        unsafe { request::try_hold_all(shared, members, wanted, origin, f) }
    }
}

impl<S: fmt::Debug> fmt::Debug for When<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("When").field("set", &self.set).field("priority", &self.priority).finish()
    }
}

/// Panics if the set names a state twice.
fn assert_all_different(owned: &impl Owned) {
    // As many as a tuple has; those need no allocation.
    let mut few = [0; 8];
    let mut many = Vec::new();
    let mut len = 0;
    owned.each_state(&mut |state| {
        let twice = if len < few.len() { few[..len].contains(&state) } else { false };
        assert!(!twice, "{NAMED_TWICE}");
        if len < few.len() {
            few[len] = state;
        } else {
            many.push(state);
        }
        len += 1;
    });
    if !many.is_empty() {
        many.extend(few);
        many.sort_unstable();
        assert!(many.windows(2).all(|pair| pair[0] != pair[1]), "{NAMED_TWICE}");
    }
}

const NAMED_TWICE: &str =
    "a `when` names the same state twice, and cannot lend it out twice: name it once, or use two states of one color";

/// The runtime of the colors.
#[inline]
fn runtime_of(members: &[Member]) -> *const Shared {
    let Some(first) = members.first() else {
        // A set without colors; the closure only needs a color to run in.
        return Arc::as_ptr(Handle::current().shared());
    };
    let shared = |member: &Member| member.color().shared;
    assert!(
        members.iter().all(|member| ptr::eq(shared(member), shared(first))),
        "a `when` names colors of different runtimes, which cannot be held at once"
    );
    shared(first)
}

/// Panics if colors are pinned to different workers. Marks a pinned one as held for writing,
/// because the closure runs in its turn. Returns whether there is one.
#[inline]
fn settle_pins(members: &mut [Member]) -> bool {
    let mut pinned_to = None;
    for member in members {
        if member.color().is_pinned() {
            // Relaxed: it never changes.
            let home = member.color().home.load(Relaxed);
            let first = *pinned_to.get_or_insert(home);
            assert!(
                first == home,
                "a `when` names colors pinned to the workers {first} and {home}: no callback could run on both; post \
                 to one of them what the other needs"
            );
            member.set_reads(false);
        }
    }
    pinned_to.is_some()
}

/// Runs a closure on the states of a set.
fn access<O: Owned, R>(owned: &O, held: Held<'_>, f: impl for<'x> FnOnce(O::Access<'x>) -> R) -> R {
    match owned.lend(held) {
        Ok(lent) => lend_to(owned, lent, f),
        Err((color, error)) => colored::panic_refused(color, error),
    }
}

/// Runs a closure on the states of a set, and poisons them if it panics.
fn lend_to<O: Owned, R>(owned: &O, mut lent: O::Lent<'_>, f: impl for<'x> FnOnce(O::Access<'x>) -> R) -> R {
    struct Poison<'a, O: Owned>(&'a O, bool);
    impl<O: Owned> Drop for Poison<'_, O> {
        fn drop(&mut self) {
            if self.1 {
                self.0.poison();
            }
        }
    }
    let mut poison = Poison(owned, true);
    let result = f(O::access(&mut lent));
    poison.1 = false;
    result
}

/// The future of [`When::with`].
#[must_use = "a `with` does nothing until it is awaited; `post` is the eager form"]
pub struct WithAll<S: Set, F, R> {
    when: When<S>,
    owned: S::Owned,
    closure: Option<F>,
    wait: Wait,
    result: PhantomData<fn() -> R>,
}

// Nothing is pinned: the call moves the closure out.
impl<S: Set, F, R> Unpin for WithAll<S, F, R> {}

impl<S, F, R> Future for WithAll<S, F, R>
where
    S: Set,
    F: for<'x> FnOnce(<S::Owned as Owned>::Access<'x>) -> R,
{
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let WithAll { when, owned, closure, wait, .. } = &mut *self;
        let (when, owned) = (&*when, &*owned);
        let mut closure = || closure.take().expect("a `with` is not polled again after it was ready");
        let now = |run, origin| when.try_now(owned, origin, run);
        let queue = |outrun, origin, waker: &Waker| when.submit(owned, outrun, origin, waker);
        wait.poll(cx, |held: Held<'_>| access(owned, held, closure()), now, queue)
    }
}

impl<S: Set> When<S> {
    /// Makes all colors accept a request of the polling task; if `outrun`, the request includes
    /// the task's own color.
    fn submit(&self, owned: &S::Owned, outrun: bool, origin: Origin, waker: &Waker) -> Arc<Ticket> {
        let mut members = self.set.members(owned, self.ask(origin));
        let shared = runtime_of(members.as_ref());
        // The poll of a task holds its color; a request to read that color would wait for itself.
        context::with_task_color(|own| {
            let mut has_own = false;
            for member in members.as_mut() {
                if Some(member.color()) == own {
                    member.set_reads(false);
                    has_own = true;
                }
            }
            let own = own.filter(|own| outrun && !has_own && ptr::eq(own.shared, shared));
            let copy = |member: &Member| Member::new(member.color(), member.reads(), self.ask(origin));
            let with_own = own.map(|own| {
                let own = Member::new(own, false, self.ask(origin));
                members.as_ref().iter().map(copy).chain([own]).collect::<Vec<Member>>()
            });
            // SAFETY: the set has handles to its colors, and all are of this runtime.
            unsafe {
                match with_own {
                    Some(all) => request::wait_for_all(shared, all, origin, waker),
                    None => request::wait_for_all(shared, members, origin, waker),
                }
            }
        })
    }
}

impl<S: Set + fmt::Debug, F, R> fmt::Debug for WithAll<S, F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithAll").field("when", &self.when).field("queued", &self.wait.is_queued()).finish()
    }
}
