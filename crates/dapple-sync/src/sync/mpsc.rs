//! Channels from many to one: [`tokio::sync::mpsc`] with a [budget](dapple_sched::poll_budget).
//!
//! Methods not documented here are tokio's, reached through `Deref`: `try_send`, `blocking_recv`,
//! `len`, `close` and others.

use std::task::{Context, Poll};

use tokio::sync::mpsc;
#[doc(no_inline)]
pub use tokio::sync::mpsc::{Permit, PermitIterator, UnboundedSender, WeakUnboundedSender, error};

use self::error::{SendError, TrySendError};
use super::wrapped::{around_tokio, hosted, poll_hosted};

/// A channel for up to `buffer` values; beyond that senders wait.
///
/// # Panics
///
/// If `buffer` is 0, or more than [`Semaphore::MAX_PERMITS`](super::Semaphore::MAX_PERMITS).
///
/// ```
/// use dapple_sync::sync::mpsc;
///
/// dapple_sched::block_on(async {
///     let (tx, mut rx) = mpsc::channel(2);
///     tx.send(7).await?;
///     assert_eq!(rx.recv().await, Some(7));
///     drop(tx);
///     assert_eq!(rx.recv().await, None);
///     Ok::<_, mpsc::error::SendError<i32>>(())
/// })?;
/// # Ok::<(), dapple_sync::sync::mpsc::error::SendError<i32>>(())
/// ```
#[track_caller]
pub fn channel<T>(buffer: usize) -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = mpsc::channel(buffer);
    (Sender(tx), Receiver(rx))
}

/// A channel that keeps any number of values. Nothing bounds its memory: prefer [`channel`].
///
/// ```
/// use dapple_sync::sync::mpsc;
///
/// let (tx, mut rx) = mpsc::unbounded_channel();
/// tx.send(7).expect("the receiver is there");
/// assert_eq!(dapple_sched::block_on(rx.recv()), Some(7));
/// ```
pub fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
    let (tx, rx) = mpsc::unbounded_channel();
    (tx, UnboundedReceiver(rx))
}

around_tokio! {
    /// The sending end of a [`channel`]; clones send to the same one.
    Sender[T] of mpsc::Sender<T>
}

impl<T> Sender<T> {
    /// Sends a value when there is room.
    ///
    /// Cancel safe, but the value is dropped with the future, and its position in the queue is
    /// lost: [`Sender::reserve`] keeps the value.
    ///
    /// # Errors
    ///
    /// The receiver was dropped, or was closed; the error has the value.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        match self.reserve().await {
            Ok(permit) => {
                permit.send(value);
                Ok(())
            }
            Err(SendError(())) => Err(SendError(value)),
        }
    }

    /// Waits for room for one value, and reserves it.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`].
    pub async fn reserve(&self) -> Result<Permit<'_, T>, SendError<()>> {
        hosted(self.0.reserve()).await
    }

    /// Waits for room for this many values, and reserves it.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`], and if there is never that much room.
    pub async fn reserve_many(&self, count: usize) -> Result<PermitIterator<'_, T>, SendError<()>> {
        hosted(self.0.reserve_many(count)).await
    }

    /// As [`Sender::reserve`]; the result owns the sender.
    ///
    /// Cancel safe: dropping it drops the sender.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`].
    pub async fn reserve_owned(self) -> Result<OwnedPermit<T>, SendError<()>> {
        hosted(self.0.reserve_owned()).await.map(OwnedPermit)
    }

    /// As [`Sender::reserve_owned`], if there is room now.
    ///
    /// # Errors
    ///
    /// There is no room, or the receiver was dropped; the error has the sender.
    pub fn try_reserve_owned(self) -> Result<OwnedPermit<T>, TrySendError<Self>> {
        self.0.try_reserve_owned().map(OwnedPermit).map_err(|error| match error {
            TrySendError::Full(sender) => TrySendError::Full(Sender(sender)),
            TrySendError::Closed(sender) => TrySendError::Closed(Sender(sender)),
        })
    }

    /// Waits until the receiver is dropped, or was closed.
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
    WeakSender[T] of mpsc::WeakSender<T>
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
    /// Room for one value, with its sender; dropping it gives the room back.
    OwnedPermit[T] of mpsc::OwnedPermit<T>
}

impl<T> OwnedPermit<T> {
    /// Sends a value, and returns the sender.
    pub fn send(self, value: T) -> Sender<T> {
        Sender(self.0.send(value))
    }

    /// Gives the room back, and returns the sender.
    pub fn release(self) -> Sender<T> {
        Sender(self.0.release())
    }
}

/// The waiting methods of both receivers.
macro_rules! receiver_methods {
    ($name:ident) => {
        impl<T> $name<T> {
            /// The next value; `None` if none is left and all senders were dropped or the channel
            /// was closed.
            ///
            /// Cancel safe: a value is taken in the poll that returns it.
            pub async fn recv(&mut self) -> Option<T> {
                hosted(self.0.recv()).await
            }

            /// Appends up to `limit` values, at least one, and returns their number; 0 where
            /// [`recv`](Self::recv) returns `None`, and for a limit of 0.
            ///
            /// Cancel safe: values are taken in the poll that returns them.
            pub async fn recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
                hosted(self.0.recv_many(buffer, limit)).await
            }

            /// As [`recv`](Self::recv), for hand-written futures.
            pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
                poll_hosted(cx, |cx| self.0.poll_recv(cx))
            }

            /// As [`recv_many`](Self::recv_many), for hand-written futures.
            pub fn poll_recv_many(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<T>, limit: usize) -> Poll<usize> {
                poll_hosted(cx, |cx| self.0.poll_recv_many(cx, buffer, limit))
            }
        }
    };
}

around_tokio! {
    /// The receiving end of a [`channel`].
    Receiver[T] of mpsc::Receiver<T>
}
receiver_methods!(Receiver);

around_tokio! {
    /// The receiving end of an [`unbounded_channel`].
    UnboundedReceiver[T] of mpsc::UnboundedReceiver<T>
}
receiver_methods!(UnboundedReceiver);
