//! Channels that send the latest value to every receiver, with the methods of tokio's.
//!
//! Not a wrapper of tokio's, which spreads its receivers over eight lists by random numbers where tokio's runtime is built as well: a
//! [simulation](dapple_sched::environment) cannot decide then which receiver wakes first. Here they wake in the order in which they
//! began to wait.

use std::fmt;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::Notify;

use super::wrapped::hosted;
use crate::switch::{AtomicUsize, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The errors of a [`channel`].
pub mod error {
    #[doc(no_inline)]
    pub use tokio::sync::watch::error::SendError;

    /// All senders were dropped.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct RecvError(pub(super) ());

    impl std::fmt::Display for RecvError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the channel is closed: all its senders were dropped")
        }
    }

    impl std::error::Error for RecvError {}
}

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
    let tx = Sender::new(value);
    let rx = tx.subscribe();
    (tx, rx)
}

/// The part that the two ends share. The version changes under the lock of the value, and before the receivers are woken; a receiver
/// that waits has registered before it looks at the version. So it misses no change.
struct Shared<T> {
    value: RwLock<T>,
    /// [`CHANGE`] times the number of changes, and [`CLOSED`].
    version: AtomicUsize,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// The value has changed, or there is no sender left.
    changed: Notify,
    /// There is no receiver left.
    abandoned: Notify,
}

/// No sender is left.
const CLOSED: usize = 1;
const CHANGE: usize = 2;

impl<T> Shared<T> {
    // A panic of a closure leaves the value as the closure left it.
    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.value.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, if it has changed or is the first, and `f` accepts it. It counts as seen then.
    fn accepted(&self, seen: &mut usize, is_first: bool, f: impl FnOnce(&T) -> bool) -> Option<Ref<'_, T>> {
        let value = self.read();
        // Under the lock, so that it is the version of this value.
        let version = self.version().0;
        let has_changed = version != std::mem::replace(seen, version);
        if !is_first && !has_changed {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| f(&value))) {
            Ok(is_accepted) => is_accepted.then_some(Ref { value, has_changed }),
            Err(panic) => {
                // The lock is not held while it unwinds.
                drop(value);
                resume_unwind(panic)
            }
        }
    }

    /// The number of the value, and whether all senders are gone.
    fn version(&self) -> (usize, bool) {
        // Acquire, with the release of `send_if_modified` and of the last sender's drop.
        let version = self.version.load(Ordering::Acquire);
        (version & !CLOSED, version & CLOSED != 0)
    }
}

/// The end of a [`channel`] that changes the value; clones change the same one.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// As [`channel`], without a receiver yet.
    pub fn new(value: T) -> Sender<T> {
        let shared = Shared {
            value: RwLock::new(value),
            version: AtomicUsize::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(0),
            changed: Notify::new(),
            abandoned: Notify::new(),
        };
        Sender { shared: Arc::new(shared) }
    }

    /// Replaces the value, and wakes all receivers.
    ///
    /// # Errors
    ///
    /// There is no receiver; the error has the new value, and the old one stays.
    pub fn send(&self, value: T) -> Result<(), error::SendError<T>> {
        if self.is_closed() {
            return Err(error::SendError(value));
        }
        self.send_replace(value);
        Ok(())
    }

    /// Replaces the value, also without a receiver; returns the old one.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|old| std::mem::swap(old, &mut value));
        value
    }

    /// Changes the value in place, also without a receiver, and wakes all receivers.
    ///
    /// The value is locked while the closure runs: it must not use the channel. If it panics, no receiver is woken.
    pub fn send_modify(&self, f: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            f(value);
            true
        });
    }

    /// As [`send_modify`](Sender::send_modify), but wakes the receivers only if the closure returns true; returns what it returned.
    pub fn send_if_modified(&self, f: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut value = self.shared.write();
            if !f(&mut value) {
                return false;
            }
            self.shared.version.fetch_add(CHANGE, Ordering::Release);
        }
        self.shared.changed.notify_waiters();
        true
    }

    /// The value, locked for reading: senders wait until this is dropped.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref { value: self.shared.read(), has_changed: false }
    }

    /// A receiver that has seen the current value. Its [`changed`](Receiver::changed) is cancel
    /// safe.
    pub fn subscribe(&self) -> Receiver<T> {
        // Relaxed: a count of owners, as that of an `Arc`.
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver { shared: self.shared.clone(), seen: self.shared.version().0 }
    }

    /// Whether there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// Waits until there is no receiver.
    ///
    /// Cancel safe.
    pub async fn closed(&self) {
        hosted(async {
            loop {
                let abandoned = self.shared.abandoned.notified();
                if self.is_closed() {
                    return;
                }
                abandoned.await;
            }
        })
        .await;
    }

    /// The number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.shared.receivers.load(Ordering::Acquire)
    }

    /// The number of senders.
    pub fn sender_count(&self) -> usize {
        self.shared.senders.load(Ordering::Acquire)
    }

    /// Whether both change the same value.
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.version.fetch_or(CLOSED, Ordering::Release);
            self.shared.changed.notify_waiters();
        }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Sender::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("value", &self.shared.value).finish_non_exhaustive()
    }
}

/// The end of a [`channel`] that sees the value change; each clone tracks it independently.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The version that it has seen.
    seen: usize,
}

impl<T> Receiver<T> {
    /// The value, locked for reading: senders wait until this is dropped. Not marked as seen.
    pub fn borrow(&self) -> Ref<'_, T> {
        let value = self.shared.read();
        let has_changed = self.shared.version().0 != self.seen;
        Ref { value, has_changed }
    }

    /// As [`borrow`](Receiver::borrow), and marks the value as seen.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.read();
        let version = self.shared.version().0;
        let has_changed = version != std::mem::replace(&mut self.seen, version);
        Ref { value, has_changed }
    }

    /// Whether there is a value that this receiver has not seen.
    ///
    /// # Errors
    ///
    /// All senders were dropped.
    pub fn has_changed(&self) -> Result<bool, error::RecvError> {
        match self.shared.version() {
            (_, true) => Err(error::RecvError(())),
            (version, false) => Ok(version != self.seen),
        }
    }

    /// Takes the value for one that was not seen.
    pub fn mark_changed(&mut self) {
        self.seen = self.seen.wrapping_sub(CHANGE);
    }

    /// Takes the value for one that was seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.version().0;
    }

    /// Waits until there is a value that this receiver has not seen, and marks it as seen.
    ///
    /// Cancel safe: no value is marked before the poll that is ready.
    ///
    /// # Errors
    ///
    /// All senders were dropped.
    pub async fn changed(&mut self) -> Result<(), error::RecvError> {
        let (shared, seen) = (&self.shared, &mut self.seen);
        hosted(async move {
            loop {
                let changed = shared.changed.notified();
                match shared.version() {
                    (version, _) if version != *seen => {
                        *seen = version;
                        return Ok(());
                    }
                    (_, true) => return Err(error::RecvError(())),
                    (_, false) => changed.await,
                }
            }
        })
        .await
    }

    /// Waits until the closure accepts a value. The value is locked while the closure runs.
    ///
    /// Cancel safe: the last value that the closure has seen is marked as seen.
    ///
    /// # Errors
    ///
    /// All senders were dropped, and the closure rejects the last value.
    pub async fn wait_for(&mut self, mut f: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, error::RecvError> {
        let (shared, seen) = (&self.shared, &mut self.seen);
        hosted(async move {
            let mut is_first = true;
            loop {
                let changed = shared.changed.notified();
                // Before the value, so that the last one is looked at.
                let is_closed = shared.version().1;
                if let Some(value) = shared.accepted(seen, is_first, &mut f) {
                    return Ok(value);
                }
                if is_closed {
                    return Err(error::RecvError(()));
                }
                is_first = false;
                changed.await;
            }
        })
        .await
    }

    /// Whether both see the same value.
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver { shared: self.shared.clone(), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.shared.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.abandoned.notify_waiters();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("value", &self.shared.value).finish_non_exhaustive()
    }
}

/// The value of a [`channel`], locked for reading.
#[derive(Debug)]
pub struct Ref<'a, T> {
    value: RwLockReadGuard<'a, T>,
    has_changed: bool,
}

impl<T> Ref<'_, T> {
    /// Whether the receiver had not seen this value before. Always false for one of a sender.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll, Wake, Waker};

    use super::{channel, error::RecvError};

    struct Notes(usize, Arc<Mutex<Vec<usize>>>);

    impl Wake for Notes {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    #[test]
    fn receivers_wake_in_the_order_in_which_they_began_to_wait() {
        let (tx, rx) = channel(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut waiting: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::new();
        for number in 0..40 {
            let mut rx = rx.clone();
            let mut changed = Box::pin(async move { rx.changed().await });
            let waker = Waker::from(Arc::new(Notes(number, woken.clone())));
            assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            waiting.push(changed);
        }
        tx.send(1).unwrap();
        assert_eq!(*woken.lock().unwrap(), (0..40).collect::<Vec<_>>());
        for mut changed in waiting {
            assert_eq!(changed.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())));
        }
    }

    #[test]
    fn the_last_value_is_seen_after_the_sender_is_gone() {
        fn is_send(_: &impl Send) {}
        let (tx, mut rx) = channel(0);
        let mut other = rx.clone();
        is_send(&rx.clone().wait_for(|_| true));
        tx.send(7).unwrap();
        drop(tx);
        assert_eq!(rx.has_changed(), Err(RecvError(())));
        dapple_sched::block_on(async {
            assert_eq!(rx.changed().await, Ok(()));
            assert_eq!(rx.changed().await, Err(RecvError(())));
            assert_eq!(
                other.wait_for(|value| *value == 7).await.map(|value| (*value, value.has_changed())),
                Ok((7, true))
            );
            let mut asked = 0;
            let refused = other.wait_for(|_| {
                asked += 1;
                false
            });
            assert!(refused.await.is_err());
            assert_eq!(asked, 1, "the value has not changed");
        });
    }

    #[test]
    fn what_is_marked_counts_as_seen_or_not() {
        let (tx, mut rx) = channel(0);
        rx.mark_changed();
        assert!(rx.borrow().has_changed() && rx.borrow_and_update().has_changed() && !rx.borrow().has_changed());
        assert!(!tx.send_if_modified(|value| std::mem::replace(value, 1) > 1));
        assert_eq!((rx.has_changed(), *rx.borrow()), (Ok(false), 1));
        assert_eq!(tx.send_replace(2), 1);
        assert_eq!(rx.has_changed(), Ok(true));
        rx.mark_unchanged();
        assert_eq!(rx.has_changed(), Ok(false));
        drop(rx);
        assert_eq!(tx.send(3).unwrap_err().0, 3);
        assert_eq!(*tx.borrow(), 2);
    }

    #[test]
    fn a_panic_of_a_closure_closes_nothing() {
        let (tx, rx) = channel(0);
        let panics = |f: &dyn Fn()| assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err());
        panics(&|| tx.send_modify(|_| panic!("on purpose")));
        panics(&|| drop(dapple_sched::block_on(rx.clone().wait_for(|_| panic!("on purpose")))));
        tx.send(4).unwrap();
        assert_eq!(*rx.borrow(), 4);
    }
}
