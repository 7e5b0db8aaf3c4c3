//! What events can be sent to.

use std::io;
use std::task::{Context, Poll};

use dapple_sched::Callback;

use dapple_sync::sync::oneshot;

/// Where events go: a [`Queue`](super::Queue), a [`Callback`] with its color, a [`Sink`](super::Sink), or a type of your own (Gribble's
/// `UpcallHandlerIF`, section 5.1).
///
/// [`Queue::chain`](super::Queue::chain), [`Source::chain`](super::Source::chain) and
/// [`Listener::chain`](super::Listener::chain) send events to one. What is sent at once is what there is, at most 64 events.
///
/// - A `Callback<T>` is called for each event, a `Callback<Vec<T>>` for each batch. Nothing more is sent until it has run, so that
///   nothing piles up in front of a slow one. One that panics is called again for the next event.
/// - A `Queue<T>` does at its bound what its [`WhenFull`](super::WhenFull) says.
/// - A `Sink` writes them, and is waited for while it is full.
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
///     all.push_many(1..=5).await.expect("nobody closes it");
///     all.close();
///     assert_eq!(flow.await.expect("nothing panics").count, 5);
///     assert_eq!(some.try_pop_many(10), [1, 3, 5]);
/// });
/// # Ok::<(), io::Error>(())
/// ```
pub trait Handler<T>: Send + 'static {
    /// How many events it takes now, or waits until it takes one. The room is its sender's until the next
    /// [`give`](Self::give) or [`release_room`](Self::release_room).
    ///
    /// # Errors
    ///
    /// It takes none any more.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let _ = cx;
        Poll::Ready(Ok(usize::MAX))
    }

    /// The room that was asked for will not be used for now.
    fn release_room(&mut self) {}

    /// Takes events, in order, no more than it had room for. More come when the receipt has been dropped: keep it for as long as
    /// the events take.
    fn give(&mut self, events: Vec<T>, receipt: Receipt);
}

/// Tells the sender of events, when it is dropped, that more may come.
#[must_use = "dropping it lets the next events come"]
pub struct Receipt {
    /// Its drop is what the receiver waits for.
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

/// One that was chosen while the program runs.
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

/// Closes a queue or a sink when the last event has been sent, and also when the flow that feeds it is stopped, panics, or is
/// dropped at the runtime's shutdown: whoever waits at the other end learns that nothing will come.
///
/// Without it, others can go on feeding the same queue.
///
/// ```
/// use dapple_flow::flow::{CloseAtEnd, Queue};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let (first, second) = (Queue::new(4), Queue::new(4));
///     first.chain(CloseAtEnd(second.clone())).detach();
///     first.push("last").await.expect("nobody closes it");
///     first.close();
///     assert_eq!(second.pop().await, Some("last"));
///     assert_eq!(second.pop().await, None);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CloseAtEnd<H: Close>(pub H);

/// What can be closed by whoever feeds it: a [`Queue`](super::Queue) or a [`Sink`](super::Sink), or a type of your own.
pub trait Close {
    /// Takes no more. Does not wait.
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
