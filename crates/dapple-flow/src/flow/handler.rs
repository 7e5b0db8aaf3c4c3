//! Handlers: destinations of events.

use std::io;
use std::task::{Context, Poll};

use dapple_sched::Callback;

use dapple_sync::sync::oneshot;

/// A destination of events: a [`Queue`](super::Queue), a [`Callback`] with its color, a
/// [`Sink`](super::Sink), or a type of your own (Gribble's `UpcallHandlerIF`, section 5.1).
///
/// [`Queue::chain`](super::Queue::chain), [`Source::chain`](super::Source::chain) and
/// [`Listener::chain`](super::Listener::chain) send events to one: all available ones, at most 64
/// at once.
///
/// - A `Callback<T>` runs for each event, a `Callback<Vec<T>>` for each batch. The next events come
///   after it has run, so that none wait before a slow callback. After a panic it runs again for
///   the next event.
/// - A `Queue<T>` acts at its bound as its [`WhenFull`](super::WhenFull) says.
/// - A `Sink` writes them, and the flow waits while it is full.
///
/// ```
/// use std::io;
/// use dapple_flow::flow::{Handler, Queue, Receipt};
///
/// /// Passes on every other event.
/// struct EveryOther(Queue<u32>, bool);
///
/// impl Handler<u32> for EveryOther {
///     fn give(&mut self, events: Vec<u32>, _: Receipt) {
///         for event in events {
///             self.1 = !self.1;
///             if self.1 {
///                 let _ = self.0.try_push(event);
///             }
///         }
///     }
/// }
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let (all, some) = (Queue::new(10), Queue::new(10));
///     let flow = all.chain(EveryOther(some.clone(), false));
///     all.push_many(1..=5).await.expect("the queue stays open");
///     all.close();
///     assert_eq!(flow.await.expect("nothing panics").count, 5);
///     assert_eq!(some.try_pop_many(10), [1, 3, 5]);
/// });
/// # Ok::<(), io::Error>(())
/// ```
pub trait Handler<T>: Send + 'static {
    /// The number of events that it takes now; waits until it takes one. The sender owns this room
    /// until the next [`give`](Self::give) or [`release_room`](Self::release_room).
    ///
    /// # Errors
    ///
    /// It takes no more events.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let _ = cx;
        Poll::Ready(Ok(usize::MAX))
    }

    /// Releases the granted room, which will not be used now.
    fn release_room(&mut self) {}

    /// Takes events, in order, no more than it had room for. More events come when the receipt has
    /// been dropped: keep it while you handle the events.
    fn give(&mut self, events: Vec<T>, receipt: Receipt);
}

/// Lets the sender send more events when it is dropped.
#[must_use = "dropping it lets the next events come"]
pub struct Receipt {
    /// The receiver waits for its drop.
    _sender: oneshot::Sender<()>,
}

impl Receipt {
    pub(super) fn new() -> (Receipt, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Receipt { _sender: sender }, receiver)
    }
}

impl<T: Send + 'static> Handler<T> for Callback<T> {
    fn give(&mut self, events: Vec<T>, receipt: Receipt) {
        for event in events {
            self.call(event);
        }
        // A color keeps its order, so this is dropped after the calls, or with them.
        self.color().post(move || drop(receipt));
    }
}

impl<T: Send + 'static> Handler<T> for Callback<Vec<T>> {
    fn give(&mut self, events: Vec<T>, receipt: Receipt) {
        self.call(events);
        self.color().post(move || drop(receipt));
    }
}

/// A handler chosen at run time.
impl<T: 'static> Handler<T> for Box<dyn Handler<T>> {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        (**self).poll_room(cx)
    }

    fn release_room(&mut self) {
        (**self).release_room();
    }

    fn give(&mut self, events: Vec<T>, receipt: Receipt) {
        (**self).give(events, receipt);
    }
}

/// Closes a queue or a sink after the last event, and also when its flow is stopped, panics, or is
/// dropped at the runtime's shutdown: consumers at the other end learn that nothing more will come.
///
/// Without it, other flows can still feed the same queue.
///
/// ```
/// use dapple_flow::flow::{CloseAtEnd, Queue};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let (first, second) = (Queue::new(4), Queue::new(4));
///     first.chain(CloseAtEnd(second.clone())).detach();
///     first.push("last").await.expect("the queue stays open");
///     first.close();
///     assert_eq!(second.pop().await, Some("last"));
///     assert_eq!(second.pop().await, None);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CloseAtEnd<H: Close>(pub H);

/// A type that its feeder can close: a [`Queue`](super::Queue) or a [`Sink`](super::Sink), or your
/// own.
pub trait Close {
    /// Takes no more events. Does not wait.
    fn close_now(&mut self);
}

impl<T: 'static, H: Handler<T> + Close> Handler<T> for CloseAtEnd<H> {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.0.poll_room(cx)
    }

    fn release_room(&mut self) {
        self.0.release_room();
    }

    fn give(&mut self, events: Vec<T>, receipt: Receipt) {
        self.0.give(events, receipt);
    }
}

impl<H: Close> Drop for CloseAtEnd<H> {
    fn drop(&mut self) {
        self.0.close_now();
    }
}
