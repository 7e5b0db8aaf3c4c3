//! Channels that send every value to every receiver: [`tokio::sync::broadcast`] with a
//! [budget](dapple_sched::poll_budget).
//!
//! Methods not documented here are tokio's, reached through `Deref`.

use tokio::sync::broadcast;
#[doc(no_inline)]
pub use tokio::sync::broadcast::error;

use super::wrapped::{around_tokio, hosted};

/// A channel that keeps the last `capacity` values for receivers that have not read them yet.
///
/// # Panics
///
/// If `capacity` is 0, or more than `usize::MAX / 2`.
///
/// ```
/// use dapple_sync::sync::broadcast;
///
/// let (tx, mut one) = broadcast::channel(4);
/// let mut other = tx.subscribe();
/// tx.send(7).expect("two receive");
/// assert_eq!(dapple_sched::block_on(one.recv()), Ok(7));
/// assert_eq!(dapple_sched::block_on(other.recv()), Ok(7));
/// ```
#[track_caller]
pub fn channel<T: Clone>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = broadcast::channel(capacity);
    (Sender(tx), Receiver(rx))
}

around_tokio! {
    /// The sending end of a [`channel`]; clones send to the same one.
    Sender[T] of broadcast::Sender<T>
}

impl<T> Sender<T> {
    /// As [`channel`], without a receiver yet.
    #[track_caller]
    pub fn new(capacity: usize) -> Sender<T> {
        Sender(broadcast::Sender::new(capacity))
    }

    /// A receiver of values sent from now on. Its [`recv`](Receiver::recv) is cancel safe.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver(self.0.subscribe())
    }

    /// Waits until there is no receiver.
    ///
    /// Cancel safe.
    pub async fn closed(&self) {
        hosted(self.0.closed()).await;
    }

    /// A handle that does not keep the channel open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(self.0.downgrade())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(self.0.clone())
    }
}

around_tokio! {
    /// A [`Sender`] that does not keep the channel open.
    WeakSender[T] of broadcast::WeakSender<T>
}

impl<T> WeakSender<T> {
    /// A sender, if one is left.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.0.upgrade().map(Sender)
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        WeakSender(self.0.clone())
    }
}

around_tokio! {
    /// The receiving end of a [`channel`].
    Receiver[T] of broadcast::Receiver<T>
}

impl<T: Clone> Receiver<T> {
    /// The next value.
    ///
    /// Cancel safe: a value is taken in the poll that returns it.
    ///
    /// # Errors
    ///
    /// This receiver was too slow and has missed values, or all senders were dropped.
    pub async fn recv(&mut self) -> Result<T, error::RecvError> {
        hosted(self.0.recv()).await
    }

    /// A receiver of values sent from now on. Its [`recv`](Receiver::recv) is cancel safe.
    pub fn resubscribe(&self) -> Receiver<T> {
        Receiver(self.0.resubscribe())
    }
}
