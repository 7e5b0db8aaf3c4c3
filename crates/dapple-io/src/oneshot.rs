//! A channel for one value, sent once and awaited once: for answers of pool threads and posted
//! callbacks to tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_sched::foreign::KeptWaker;
use dapple_sched::poll_budgeted;

use crate::lock::Mutex;

/// Sends the value; if it is dropped without a value, the receiver learns that none will come.
pub(crate) struct Sender<T>(Arc<Mutex<State<T>>>);

/// Resolves to the value, or to `None` if the sender was dropped. Cancel safe: the value waits in
/// the channel.
pub(crate) struct Receiver<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    value: Option<T>,
    waker: Option<KeptWaker>,
    sender_gone: bool,
}

pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = Arc::new(Mutex::new(State { value: None, waker: None, sender_gone: false }));
    (Sender(state.clone()), Receiver(state))
}

impl<T> Sender<T> {
    /// Dropping `self` afterwards wakes the receiver.
    pub(crate) fn send(self, value: T) {
        self.0.lock().value = Some(value);
    }

    /// Whether the receiver was dropped.
    #[cfg(feature = "dns")]
    pub(crate) fn is_forsaken(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.lock();
            state.sender_gone = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        poll_budgeted(cx, |cx| self.0.poll(cx))
    }
}

impl<T> Mutex<State<T>> {
    fn poll(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let waker = KeptWaker::from(cx.waker());
        let mut state = self.lock();
        if let Some(value) = state.value.take() {
            return Poll::Ready(Some(value));
        }
        if state.sender_gone {
            return Poll::Ready(None);
        }
        let replaced = state.waker.replace(waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}
