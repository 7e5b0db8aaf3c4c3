//! A bounded queue between producers and handlers of events (Gribble, section 5.1).

mod error;
mod handle;
mod promise;
mod state;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

pub use error::{PopError, PushError};
pub(super) use promise::Promise;
use state::{Popper, Shared};

use super::wait::block_on_for;
use dapple_io::time::timeout;
use dapple_sync::sync::limit::Turn;

/// A bounded queue for any number of tasks of any color, callbacks and plain threads at either end.
///
/// Items come out in the order in which they went in. A consumer polls
/// ([`try_pop`](Self::try_pop)), awaits ([`pop`](Self::pop)), waits with a limit
/// ([`pop_timeout`](Self::pop_timeout), and [`pop_blocking`](Self::pop_blocking) on plain threads),
/// takes batches ([`pop_many`](Self::pop_many)), or forwards the items: see [`chain`](Self::chain).
/// [`WhenFull`], chosen when the queue is made, decides what happens at the bound. Tasks that wait
/// for room get it in the order of arrival.
///
/// A `Queue` is a handle; a clone is another one to the same queue. A handle is also a `Stream` of
/// the items, and a `Sink` for them. Dropping handles does not close the queue:
/// [`close`](Self::close) does.
///
/// Pushing and popping cost a lock of some dozen instructions, and a wake-up if a task waits.
///
/// ```
/// use std::time::Duration;
/// use dapple_flow::flow::{PopError, Queue};
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// let queue = Queue::new(2);
/// let producer = runtime.spawn({
///     let queue = queue.clone();
///     async move {
///         for n in 0..5 {
///             queue.push(n).await.expect("the queue stays open"); // waits while two are in it
///         }
///         queue.close();
///     }
/// });
/// runtime.block_on(async {
///     assert_eq!(queue.pop().await, Some(0));
///     assert_eq!(queue.pop_timeout(Duration::from_secs(10)).await, Ok(1));
///     let mut rest = Vec::new();
///     while let Some(n) = queue.pop().await {
///         rest.push(n);
///     }
///     assert_eq!(rest, [2, 3, 4]);
///     assert_eq!(queue.try_pop(), Err(PopError::Closed));
///     producer.await.expect("the task does not panic");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
    /// This handle's place in the line for items, while it is polled as a stream.
    stream_place: Option<u64>,
    /// Its place in the line for room, while it is polled as a sink.
    room_turn: Turn,
    /// Places that it took as a sink, and has not filled yet.
    room: usize,
}

/// The policy for a new item when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// Its producer waits in [`Queue::push`]. Meanwhile a source chained to the queue is not read,
    /// so the other side has to slow down, too. Producers that cannot wait are refused.
    #[default]
    Wait,
    /// It is refused, and counted. The producer learns it at once.
    Refuse,
    /// It replaces the oldest item, which is dropped and counted: for data of which only the latest
    /// matters.
    DropOldest,
}

impl<T> Queue<T> {
    /// A queue of at most `capacity` items, with producers that wait for room.
    ///
    /// # Panics
    ///
    /// If `capacity` is 0.
    pub fn new(capacity: usize) -> Self {
        Self::with(capacity, WhenFull::Wait)
    }

    /// A queue of at most `capacity` items, with this policy at the bound.
    ///
    /// ```
    /// use dapple_flow::flow::{PushError, Queue, WhenFull};
    ///
    /// let orders = Queue::with(1, WhenFull::Refuse);
    /// assert_eq!(orders.try_push("tea"), Ok(()));
    /// assert_eq!(orders.try_push("cake"), Err(PushError::Full("cake")));
    ///
    /// let positions = Queue::with(2, WhenFull::DropOldest);
    /// (1..=5).for_each(|position| positions.try_push(position).expect("the queue takes every item"));
    /// assert_eq!((positions.try_pop(), positions.dropped_count()), (Ok(4), 3));
    /// ```
    ///
    /// # Panics
    ///
    /// If `capacity` is 0.
    pub fn with(capacity: usize, when_full: WhenFull) -> Self {
        assert!(capacity > 0, "a queue needs a capacity of 1 or more");
        Self::handle(Arc::new(Shared::new(capacity, when_full)))
    }

    fn handle(shared: Arc<Shared<T>>) -> Self {
        Queue { shared, stream_place: None, room_turn: Turn::default(), room: 0 }
    }

    /// Adds an item, without waiting. If the queue is full and drops its oldest item, that item
    /// makes room.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] or [`PushError::Closed`], with the item.
    pub fn try_push(&self, item: T) -> Result<(), PushError<T>> {
        let result = self.shared.push_now(item);
        if self.shared.when_full == WhenFull::Refuse && matches!(result, Err(PushError::Full(_))) {
            self.shared.state.lock().refused += 1;
        }
        result
    }

    /// Adds an item; waits for room if the queue's policy is to wait. First come, first served.
    ///
    /// Cancel safe: a dropped future has added nothing, and drops its item.
    ///
    /// # Errors
    ///
    /// [`PushError::Closed`], also if the queue is closed during the wait; [`PushError::Full`] only
    /// if the policy is to refuse. The error has the item.
    pub async fn push(&self, item: T) -> Result<(), PushError<T>> {
        // Before the item is added, so that a loop that only fills a queue also yields.
        dapple_sched::consume_budget().await;
        let item = match self.try_push(item) {
            Err(PushError::Full(item)) if self.shared.when_full == WhenFull::Wait => item,
            result => return result,
        };
        // A separate handle, because several futures of one handle may wait at the same time.
        let mut waiting = self.clone();
        match poll_fn(|cx| waiting.poll_one_room(cx)).await {
            Ok(()) => waiting.push_into_room(item),
            Err(_) => Err(PushError::Closed(item)),
        }
    }

    /// As [`push`](Self::push), with a limit on how long it waits.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it has added nothing, and drops its item.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] after the limit, and as [`push`](Self::push).
    pub async fn push_timeout(&self, item: T, limit: Duration) -> Result<(), PushError<T>> {
        let mut waiting = self.clone();
        let room = timeout(limit, poll_fn(|cx| waiting.poll_push_room(cx))).await;
        self.push_after(waiting, room.ok(), item)
    }

    /// Adds all items, in order, waiting for room as necessary. Others may add theirs in between.
    ///
    /// Not cancel safe: the remaining items are dropped with the future.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push), with the item that was not taken; those after it are dropped.
    pub async fn push_many(&self, items: impl IntoIterator<Item = T>) -> Result<(), PushError<T>> {
        for item in items {
            self.push(item).await?;
        }
        Ok(())
    }

    /// [`push`](Self::push) for plain threads, waiting at most `limit`, or without a limit.
    ///
    /// # Errors
    ///
    /// [`PushError::Full`] after the limit, and as [`push`](Self::push).
    ///
    /// # Panics
    ///
    /// On a worker, which must not block (use [`push`](Self::push) there), and while the thread
    /// holds a color.
    pub fn push_blocking(&self, item: T, limit: Option<Duration>) -> Result<(), PushError<T>> {
        let mut waiting = self.clone();
        let room = block_on_for(limit, poll_fn(|cx| waiting.poll_push_room(cx)));
        self.push_after(waiting, room, item)
    }

    /// Takes the oldest item, without waiting: *polling*, in Gribble's words.
    ///
    /// # Errors
    ///
    /// [`PopError::Empty`], or [`PopError::Closed`] if nothing will come.
    pub fn try_pop(&self) -> Result<T, PopError> {
        self.shared.pop_now(|items| items.pop_front().expect("it is not empty"))
    }

    /// Takes up to `max` available items, the oldest first, without waiting. Empty if there is
    /// none, or `max` is 0.
    pub fn try_pop_many(&self, max: usize) -> Vec<T> {
        self.shared.pop_now(|items| take_front(items, max)).unwrap_or_default()
    }

    /// Takes the oldest item, waiting for one. `None` if the queue is closed and empty.
    ///
    /// Cancel safe: a dropped future has taken nothing.
    pub async fn pop(&self) -> Option<T> {
        let mut waiting = Waiting { queue: self, place: None };
        poll_fn(|cx| waiting.poll(cx, |items| items.pop_front().expect("it is not empty"))).await
    }

    /// Takes all available items, at most `max`, waiting for the first: *delivery in batches*.
    /// Empty only if the queue is closed and empty, or `max` is 0.
    ///
    /// Cancel safe: a dropped future has taken nothing.
    ///
    /// ```
    /// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// # runtime.block_on(async {
    /// let queue = dapple_flow::flow::Queue::new(10);
    /// queue.push_many(0..5).await.expect("the queue stays open");
    /// assert_eq!(queue.pop_many(3).await, [0, 1, 2]);
    /// assert_eq!(queue.pop_many(3).await, [3, 4]); // does not wait for a third
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn pop_many(&self, max: usize) -> Vec<T> {
        if max == 0 {
            return Vec::new();
        }
        let mut waiting = Waiting { queue: self, place: None };
        poll_fn(|cx| waiting.poll(cx, |items| take_front(items, max))).await.unwrap_or_default()
    }

    /// As [`pop`](Self::pop), with a limit on how long it waits. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`PopError::Empty`] after the limit, [`PopError::Closed`] if nothing will come any more.
    pub async fn pop_timeout(&self, limit: Duration) -> Result<T, PopError> {
        match timeout(limit, self.pop()).await {
            Ok(popped) => popped.ok_or(PopError::Closed),
            Err(_) => Err(PopError::Empty),
        }
    }

    /// [`pop`](Self::pop) for plain threads, waiting at most `limit`, or without a limit.
    ///
    /// # Errors
    ///
    /// As [`pop_timeout`](Self::pop_timeout).
    ///
    /// # Panics
    ///
    /// On a worker, which must not block (use [`pop`](Self::pop) there), and while the thread holds
    /// a color.
    ///
    /// ```
    /// use std::time::Duration;
    /// use dapple_flow::flow::{PopError, Queue};
    ///
    /// let queue = Queue::new(1);
    /// assert_eq!(queue.pop_blocking(Some(Duration::from_millis(1))), Err(PopError::Empty));
    /// queue.push_blocking("item", None).expect("the queue stays open");
    /// assert_eq!(queue.pop_blocking(None), Ok("item"));
    /// ```
    pub fn pop_blocking(&self, limit: Option<Duration>) -> Result<T, PopError> {
        match block_on_for(limit, self.pop()) {
            Some(popped) => popped.ok_or(PopError::Closed),
            None => Err(PopError::Empty),
        }
    }

    /// Takes no more items. Consumers still get the items in the queue and the completions promised
    /// to it; then they learn that it is closed. Producers waiting for room learn it now.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.shared.state.lock().is_closed
    }

    /// Waiting items.
    pub fn len(&self) -> usize {
        self.shared.state.lock().items.len()
    }

    /// Whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The limit of waiting items.
    pub fn capacity(&self) -> usize {
        self.shared.state.lock().gate.count_max()
    }

    /// The policy when the queue is full.
    pub fn when_full(&self) -> WhenFull {
        self.shared.when_full
    }

    /// Items dropped to make room ([`WhenFull::DropOldest`]), since the queue was made.
    pub fn dropped_count(&self) -> u64 {
        self.shared.state.lock().dropped
    }

    /// Items refused for lack of room ([`WhenFull::Refuse`]), and items of a flow that reached a
    /// closed queue, since the queue was made.
    pub fn refused_count(&self) -> u64 {
        self.shared.state.lock().refused
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self::handle(self.shared.clone())
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        self.shared.forget_popper(&mut self.stream_place, Popper::Stream);
        self.return_room();
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("Queue")
            .field("len", &state.items.len())
            .field("capacity", &state.gate.count_max())
            .field("when_full", &self.shared.when_full)
            .field("closed", &state.is_closed)
            .finish()
    }
}

/// A future's place in the line for items.
struct Waiting<'a, T> {
    queue: &'a Queue<T>,
    place: Option<u64>,
}

impl<T> Waiting<'_, T> {
    fn poll<R>(
        &mut self,
        cx: &mut std::task::Context<'_>,
        take: impl FnOnce(&mut std::collections::VecDeque<T>) -> R,
    ) -> std::task::Poll<Option<R>> {
        let pop = |cx: &mut std::task::Context<'_>| {
            self.queue.shared.poll_pop(&mut self.place, Popper::Future, cx, take).map(Result::ok)
        };
        dapple_sched::poll_budgeted(cx, pop)
    }
}

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        self.queue.shared.forget_popper(&mut self.place, Popper::Future);
    }
}

fn take_front<T>(items: &mut std::collections::VecDeque<T>, max: usize) -> Vec<T> {
    let count = items.len().min(max);
    items.drain(..count).collect()
}
