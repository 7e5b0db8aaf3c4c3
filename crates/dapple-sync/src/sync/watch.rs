//! Channels that send the latest value to every receiver: [`tokio::sync::watch`] with a
//! [budget](dapple_sched::poll_budget).
//!
//! Methods not documented here are tokio's, reached through `Deref`: `send`, `borrow`,
//! `borrow_and_update` and others.

use tokio::sync::watch;
#[doc(no_inline)]
pub use tokio::sync::watch::{Ref, error};

use super::wrapped::{around_tokio, hosted};

/// A channel with a value that changes.
///
/// ```
/// use dapple_sync::sync::watch;
///
/// dapple_sched::block_on(async {
///     let (tx, mut rx) = watch::channel(0);
///     tx.send(1)?;
///     tx.send(2)?;
///     rx.changed().await.expect("the sender exists");
///     assert_eq!(*rx.borrow(), 2);
///     Ok::<_, watch::error::SendError<i32>>(())
/// })?;
/// # Ok::<(), dapple_sync::sync::watch::error::SendError<i32>>(())
/// ```
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = watch::channel(value);
    (Sender(tx), Receiver(rx))
}

around_tokio! {
    /// The end of a [`channel`] that changes the value; clones change the same one.
    Sender[T] of watch::Sender<T>
}

impl<T> Sender<T> {
    /// As [`channel`], without a receiver yet.
    pub fn new(value: T) -> Sender<T> {
        Sender(watch::Sender::new(value))
    }

    /// A receiver that has seen the current value. Its [`changed`](Receiver::changed) is cancel
    /// safe.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver(self.0.subscribe())
    }

    /// Waits until there is no receiver.
    ///
    /// Cancel safe.
    pub async fn closed(&self) {
        hosted(self.0.closed()).await;
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(self.0.clone())
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Sender::new(T::default())
    }
}

around_tokio! {
    /// The end of a [`channel`] that sees the value change; each clone tracks it independently.
    Receiver[T] of watch::Receiver<T>
}

impl<T> Receiver<T> {
    /// Waits until there is a value that this receiver has not seen, and marks it as seen.
    ///
    /// Cancel safe: no value is marked before the poll that is ready.
    ///
    /// # Errors
    ///
    /// All senders were dropped.
    pub async fn changed(&mut self) -> Result<(), error::RecvError> {
        hosted(self.0.changed()).await
    }

    /// Waits until the closure accepts a value.
    ///
    /// Cancel safe: the last value that the closure has seen is marked as seen.
    ///
    /// # Errors
    ///
    /// All senders were dropped, and the closure rejects the last value.
    pub async fn wait_for(&mut self, f: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, error::RecvError> {
        hosted(self.0.wait_for(f)).await
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver(self.0.clone())
    }
}
