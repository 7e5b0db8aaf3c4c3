//! Channels for one value: [`tokio::sync::oneshot`] with a [budget](dapple_sched::poll_budget).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
#[doc(no_inline)]
pub use tokio::sync::oneshot::{Sender, error};

use super::wrapped::{around_tokio, poll_hosted};

/// A channel for one value.
///
/// ```
/// use dapple_sync::sync::oneshot;
///
/// let (tx, rx) = oneshot::channel();
/// tx.send(7).expect("the receiver is there");
/// assert_eq!(dapple_sched::block_on(rx), Ok(7));
/// ```
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = oneshot::channel();
    (tx, Receiver(rx))
}

around_tokio! {
    /// Waits for the value: a future, which returns an error if the sender is dropped without one.
    /// For its other methods see [`tokio::sync::oneshot::Receiver`].
    ///
    /// Cancel safe: a `&mut Receiver` can be dropped and awaited again.
    #[must_use = "futures do nothing unless awaited"]
    Receiver[T] of oneshot::Receiver<T>
}

impl<T> Receiver<T> {
    /// As an await, for threads that are not workers.
    ///
    /// # Errors
    ///
    /// The sender was dropped.
    ///
    /// # Panics
    ///
    /// Inside a tokio runtime.
    pub fn blocking_recv(self) -> Result<T, error::RecvError> {
        self.0.blocking_recv()
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        poll_hosted(cx, |cx| Pin::new(&mut self.0).poll(cx))
    }
}
