//! The members of a group: their starts, ends and joins.
//!
//! Three parties know a member. Its task knows the [`Member`] as the waker of its joiner. The
//! group's `running` has the same `Member`, to abort it. When the task ends it wakes the `Member`,
//! which moves its join handle, still with the result, to the group's `ended`, until it is joined.
//! So the task carries nothing but its future, and a panic that is never joined reaches the
//! runtime's panic handler, as with any dropped join handle.
//!
//! The futures of the public functions borrow nothing. If a scope's body held one that borrows
//! across an `.await`, rustc could not tell that the scope is `Send`.
//!
//! No lock is held while a foreign future, result or waker is touched: starting, aborting or
//! dropping a task can run its destructor at once if the runtime has stopped.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::{AbortHandle, Color, Handle, JoinError, JoinHandle, consume_budget, foreign, unconstrained};
use slab::Slab;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::nested::{Nest, inside};
use crate::switch::{Mutex, MutexGuard, step};

/// A handle of a [`Group`](super::Group), for its scope and its members: cheap to clone and to move
/// anywhere. It keeps nothing alive. A group that is over takes no new members.
///
/// ```
/// use dapple_sync::task::Group;
///
/// let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
/// runtime.block_on(async {
///     let sum = Group::scope(|group| async move {
///         let inside = group.clone();
///         group.spawn(async move {
///             inside.spawn(async { 2 }).await; // a member starts another
///             1
///         }).await;
///         let mut sum = 0;
///         while let Some(member) = group.join_next().await {
///             sum += member.expect("no member panics");
///         }
///         sum
///     });
///     assert_eq!(sum.await, 3);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Members<T: Send + 'static> {
    pub(crate) shared: Arc<Shared<T>>,
}

/// The state that the handles of a group share.
pub(crate) struct Shared<T: Send + 'static> {
    runtime: Handle,
    /// Free places; `None` for no limit.
    places: Option<Arc<Semaphore>>,
    /// Notified when a member has ended, when none is left, and when the group is over.
    changed: Arc<Notify>,
    token: CancellationToken,
    /// The enclosing group, and this one's number there.
    outer: Option<(Arc<dyn Nest>, usize)>,
    state: Mutex<State<T>>,
}

struct State<T: Send + 'static> {
    /// Members that have started and not ended.
    running: Slab<Arc<Member<T>>>,
    /// Members not yet joined, in the order of their ends.
    ended: VecDeque<JoinHandle<T>>,
    /// Members that are starting or running, in this group and nested ones.
    live: usize,
    /// Nested groups.
    inner: Slab<Weak<dyn Nest>>,
    /// No new members are taken.
    over: bool,
    /// No more joins are possible.
    forgotten: bool,
}

/// A running member, and the waker of its task's joiner.
struct Member<T: Send + 'static> {
    group: Arc<Shared<T>>,
    key: usize,
    abort: AbortHandle,
    /// `None` after its end.
    handle: Mutex<Option<JoinHandle<T>>>,
}

/// Why [`Members::try_spawn`] started nothing. Contains the future.
#[derive(PartialEq, Eq)]
#[non_exhaustive]
pub enum TrySpawnError<F> {
    /// The limit of members alive is reached.
    Full(F),
    /// The group is over.
    Over(F),
}

impl<T: Send + 'static> Members<T> {
    pub(crate) fn new(limit: Option<usize>) -> Members<T> {
        Members { shared: Shared::new(limit) }
    }

    /// Starts a member with a new color.
    ///
    /// It starts at once, before the returned future is polled, unless the group has a
    /// [limit](super::Group::limited): then the future waits for a place, first come, first served.
    /// If the group is over before there is a place, the member is dropped without running.
    ///
    /// Cancel safe: dropping the returned future while it waits drops the member.
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let group = Group::limited(1);
    ///     group.spawn(async { 1 }).await;
    ///     group.spawn(async { 2 }).await; // after the first has ended
    ///     let ended = group.join_all().await;
    ///     assert_eq!(ended.into_iter().map(|member| member.unwrap()).collect::<Vec<_>>(), [1, 2]);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[must_use = "in a group with a limit, a member may start only when this is awaited"]
    pub fn spawn<F>(&self, future: F) -> impl Future<Output = ()> + Send + use<T, F>
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.spawn_in(&self.shared.runtime.new_color(), future)
    }

    /// As [`Members::spawn`], with a color: members of the same color run one at a time.
    ///
    /// Cancel safe, as [`Members::spawn`].
    ///
    /// ```
    /// use dapple_sched::Color;
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// runtime.block_on(async {
    ///     let (group, color) = (Group::new(), Color::new());
    ///     for _ in 0..2 {
    ///         group.spawn_in(&color, async { Color::current().id() }).await;
    ///     }
    ///     for member in group.join_all().await {
    ///         assert_eq!(member.unwrap(), color.id());
    ///     }
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[must_use = "in a group with a limit, a member may start only when this is awaited"]
    pub fn spawn_in<F>(&self, color: &Color, future: F) -> impl Future<Output = ()> + Send + use<T, F>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let waits = match self.try_spawn_in(color, future) {
            Err(TrySpawnError::Full(future)) => Some((color.clone(), future)),
            // Dropped here, if the group is over.
            Ok(()) | Err(TrySpawnError::Over(_)) => None,
        };
        let shared = self.shared.clone();
        async move {
            let (Some((color, future)), Some(places)) = (waits, shared.places.clone()) else { return };
            // An error: the group was over before there was a place.
            if let Ok(place) = contained(places.acquire_owned()).await
                && shared.begin()
            {
                place.forget();
                shared.start(&color, future);
            }
        }
    }

    /// Starts a member if that needs no wait; also for callbacks.
    ///
    /// # Errors
    ///
    /// If the group is full or over. The error has the future.
    ///
    /// ```
    /// use dapple_sync::task::{Group, TrySpawnError};
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// let _entered = runtime.enter();
    /// let group = Group::limited(1);
    /// assert!(group.try_spawn(std::future::pending::<()>()).is_ok());
    /// assert!(matches!(group.try_spawn(std::future::pending()), Err(TrySpawnError::Full(_))));
    /// group.cancel();
    /// assert!(matches!(group.try_spawn(std::future::pending()), Err(TrySpawnError::Over(_))));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<(), TrySpawnError<F>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        self.try_spawn_in(&self.shared.runtime.new_color(), future)
    }

    #[track_caller]
    fn try_spawn_in<F>(&self, color: &Color, future: F) -> Result<(), TrySpawnError<F>>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let place = match self.shared.places.as_ref().map(|places| places.try_acquire()) {
            None => None,
            Some(Ok(place)) => Some(place),
            Some(Err(_)) if self.is_over() => return Err(TrySpawnError::Over(future)),
            Some(Err(_)) => return Err(TrySpawnError::Full(future)),
        };
        if !self.shared.begin() {
            return Err(TrySpawnError::Over(future));
        }
        if let Some(place) = place {
            place.forget();
        }
        self.shared.start(color, future);
        Ok(())
    }

    /// The result of the next member to end, or of an earlier one not yet joined; `None` if no
    /// member is left, also in nested groups. A panic of a member is an error that contains it.
    ///
    /// Cancel safe: no result is lost. Several callers may join at a time; each gets another
    /// member.
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let group = Group::new();
    ///     group.spawn(async { panic!("on purpose") }).await;
    ///     let member: Result<(), _> = group.join_next().await.expect("a member is left");
    ///     assert!(member.unwrap_err().is_panic());
    ///     assert!(group.join_next().await.is_none());
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_next(&self) -> impl Future<Output = Option<Result<T, JoinError>>> + Send + use<T> {
        let shared = self.shared.clone();
        async move {
            consume_budget().await;
            loop {
                // Before the look, so that no change is missed.
                let changed = shared.changed.clone().notified_owned();
                let (ended, live) = {
                    let mut state = shared.state();
                    (state.ended.pop_front(), state.live)
                };
                match ended {
                    Some(ended) => return Some(result(ended)),
                    None if live == 0 => return None,
                    None => contained(changed).await,
                }
            }
        }
    }

    /// The results of all members not yet joined, in the order of their ends; waits until none is
    /// left.
    ///
    /// **Not** cancel safe: the results gathered so far are dropped with it. Members that have not
    /// ended are not affected.
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(2).build()?;
    /// runtime.block_on(async {
    ///     let group = Group::new();
    ///     for n in 1..=3 {
    ///         group.spawn(async move { n }).await;
    ///     }
    ///     assert_eq!(group.join_all().await.into_iter().map(|member| member.unwrap()).sum::<i32>(), 6);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn join_all(&self) -> impl Future<Output = Vec<Result<T, JoinError>>> + Send + use<T> {
        let members = self.clone();
        async move {
            let mut results = Vec::new();
            while let Some(result) = members.join_next().await {
                results.push(result);
            }
            results
        }
    }

    /// Waits until no member is left, also in nested groups. The results stay for later joins.
    ///
    /// Cancel safe.
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let group = Group::new();
    ///     group.spawn(async { 7 }).await;
    ///     group.all_ended().await;
    ///     assert!(group.is_empty());
    ///     assert_eq!(group.join_next().await.unwrap().unwrap(), 7);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn all_ended(&self) -> impl Future<Output = ()> + Send + use<T> {
        let shared = self.shared.clone();
        async move {
            loop {
                let changed = shared.changed.clone().notified_owned();
                if shared.state().live == 0 {
                    return;
                }
                contained(changed).await;
            }
        }
    }

    /// Ends the group: every member, also of nested groups, is aborted (its future is dropped at
    /// the next turn of its color), the token is canceled, and no new members are taken. Results of
    /// ended members can still be joined.
    ///
    /// Cost: a post for each member.
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let group = Group::new();
    ///     group.spawn(std::future::pending::<()>()).await;
    ///     group.cancel();
    ///     assert!(group.join_next().await.unwrap().unwrap_err().is_aborted());
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.shared.end_all();
    }

    /// Whether the group was canceled or its scope has ended.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// # let _entered = runtime.enter();
    /// let group = dapple_sync::task::Group::<()>::new();
    /// assert!(!group.is_over());
    /// group.cancel();
    /// assert!(group.is_over());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    /// Members that have started and not ended.
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let group = dapple_sync::task::Group::new();
    ///     group.spawn(std::future::pending::<()>()).await;
    ///     assert_eq!((group.len(), group.is_empty()), (1, false));
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn len(&self) -> usize {
        self.shared.state().running.len()
    }

    /// Whether there is no such member; see [`Members::len`] for an example.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A token that is canceled with the group, for work that a member has started elsewhere.
    /// Canceling it asks its users to end, and aborts no member.
    ///
    /// ```
    /// use dapple_sync::task::Group;
    ///
    /// let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// let _entered = runtime.enter();
    /// let group = Group::<()>::new();
    /// let helper = std::thread::spawn({
    ///     let token = group.token().clone();
    ///     move || dapple_sched::block_on(token.cancelled())
    /// });
    /// drop(group);
    /// helper.join().expect("the task does not panic");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn token(&self) -> &CancellationToken {
        &self.shared.token
    }

    /// The first panic among ended members that were not joined; drops the other results.
    pub(crate) fn take_panic(&self) -> Option<JoinError> {
        let ended = std::mem::take(&mut self.shared.state().ended);
        // A later panic goes to the runtime's handler, with its handle.
        ended.into_iter().find_map(|ended| result(ended).err().filter(JoinError::is_panic))
    }

    /// No more joins follow.
    pub(crate) fn forget(&self) {
        let ended = {
            let mut state = self.shared.state();
            state.forgotten = true;
            std::mem::take(&mut state.ended)
        };
        drop(ended);
    }
}

impl<T: Send + 'static> Shared<T> {
    fn new(limit: Option<usize>) -> Arc<Shared<T>> {
        let runtime = Handle::current();
        let mut over = false;
        let shared = Arc::new_cyclic(|this: &Weak<Shared<T>>| {
            let outer = super::nested::current().and_then(|outer| {
                let number = outer.adopt(this.clone());
                over = number.is_none();
                // The adopted group does not exist yet, so nothing can end it.
                step();
                number.map(|number| (outer, number))
            });
            Shared {
                runtime,
                places: limit.map(|limit| Arc::new(Semaphore::new(limit.clamp(1, Semaphore::MAX_PERMITS)))),
                changed: Arc::new(Notify::new()),
                token: CancellationToken::new(),
                outer,
                state: Mutex::new(State {
                    running: Slab::new(),
                    ended: VecDeque::new(),
                    live: 0,
                    inner: Slab::new(),
                    over,
                    forgotten: false,
                }),
            }
        });
        // The outer group may have ended before there was anything to end.
        if over || shared.outer.as_ref().is_some_and(|(outer, _)| outer.is_over()) {
            shared.end_all();
        }
        shared
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    /// Starts a counted member.
    #[track_caller]
    fn start<F>(self: &Arc<Self>, color: &Color, future: F)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let handle = color.spawn(inside(self.clone(), future));
        let abort = handle.abort_handle();
        let (member, over) = {
            let mut state = self.state();
            let place = state.running.vacant_entry();
            let key = place.key();
            let handle = Mutex::new(Some(handle));
            let member = Arc::new(Member { group: self.clone(), key, abort, handle });
            place.insert(member.clone());
            (member, state.over)
        };
        if over {
            member.abort.abort();
        }
        member.look();
    }

    /// Records the end of a member.
    fn ended(&self, key: usize, handle: JoinHandle<T>) {
        let forgotten = {
            let mut state = self.state();
            drop(state.running.remove(key));
            if state.forgotten {
                Some(handle)
            } else {
                state.ended.push_back(handle);
                None
            }
        };
        // The rest must happen even if a dropped result or an invoked waker panics.
        foreign::contain(|| drop(forgotten));
        if let Some(places) = &self.places {
            foreign::contain(|| places.add_permits(1));
        }
        foreign::contain(|| self.changed.notify_waiters());
        self.end();
    }
}

impl<T: Send + 'static> Nest for Shared<T> {
    fn adopt(&self, inner: Weak<dyn Nest>) -> Option<usize> {
        let mut state = self.state();
        (!state.over).then(|| state.inner.insert(inner))
    }

    fn release(&self, inner: usize) {
        drop(self.state().inner.remove(inner));
    }

    fn is_over(&self) -> bool {
        self.state().over
    }

    fn begin(&self) -> bool {
        if self.outer.as_ref().is_some_and(|(outer, _)| !outer.begin()) {
            return false;
        }
        let begun = {
            let mut state = self.state();
            state.live += usize::from(!state.over);
            !state.over
        };
        if let (false, Some((outer, _))) = (begun, &self.outer) {
            outer.end();
        }
        begun
    }

    fn end(&self) {
        let live = {
            let mut state = self.state();
            state.live -= 1;
            state.live
        };
        if live == 0 {
            foreign::contain(|| self.changed.notify_waiters());
        }
        if let Some((outer, _)) = &self.outer {
            outer.end();
        }
    }

    fn end_all(&self) {
        let (members, inner): (Vec<_>, Vec<_>) = {
            let mut state = self.state();
            state.over = true;
            let members = state.running.iter().map(|(_, member)| member.abort.clone()).collect();
            (members, state.inner.iter().map(|(_, inner)| inner.clone()).collect())
        };
        foreign::contain(|| self.token.cancel());
        if let Some(places) = &self.places {
            foreign::contain(|| places.close());
        }
        members.iter().for_each(AbortHandle::abort);
        inner.iter().filter_map(Weak::upgrade).for_each(|inner| inner.end_all());
    }
}

impl<T: Send + 'static> Drop for Shared<T> {
    fn drop(&mut self) {
        if let Some((outer, number)) = &self.outer {
            outer.release(*number);
        }
    }
}

impl<T: Send + 'static> Member<T> {
    /// Checks whether the task has ended, and registers for its end.
    fn look(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        self.look_with(&mut Context::from_waker(&waker));
    }

    fn look_with(&self, cx: &mut Context<'_>) {
        let ended = {
            let mut handle = lock(&self.handle);
            match &*handle {
                Some(running) if running.poll_finished(cx).is_ready() => handle.take(),
                _ => None,
            }
        };
        if let Some(handle) = ended {
            self.group.ended(self.key, handle);
        }
    }
}

impl<T: Send + 'static> Wake for Member<T> {
    /// The task has ended: this is its only reason to wake its joiner.
    fn wake(self: Arc<Self>) {
        self.look();
    }
}

/// Awaits a future that is woken together with others; a panic of its waker must not affect those.
async fn contained<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| foreign::with_contained(cx, |cx| future.as_mut().poll(cx))).await
}

/// The result of an ended task.
fn result<T: Send + 'static>(mut ended: JoinHandle<T>) -> Result<T, JoinError> {
    match Pin::new(&mut unconstrained(&mut ended)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a member is in `ended` when its task is done"),
    }
}

/// No foreign code runs under these locks, so poison is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T: Send + 'static> Clone for Members<T> {
    fn clone(&self) -> Members<T> {
        Members { shared: self.shared.clone() }
    }
}

impl<T: Send + 'static> fmt::Debug for Members<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members").field("len", &self.len()).field("is_over", &self.is_over()).finish()
    }
}

impl<F> fmt::Debug for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySpawnError::Full(_) => "Full(..)",
            TrySpawnError::Over(_) => "Over(..)",
        })
    }
}

impl<F> fmt::Display for TrySpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySpawnError::Full(_) => "the limit of the group's members is reached",
            TrySpawnError::Over(_) => "the group is over",
        })
    }
}

impl<F> std::error::Error for TrySpawnError<F> {}
