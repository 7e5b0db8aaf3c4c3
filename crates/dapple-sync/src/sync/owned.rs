//! Locks with guards that keep them alive: tokio's methods on an `Arc`.
//!
//! The only unsafe code of this crate. Tokio's guards own an `Arc` of tokio's lock. The only way to
//! such an `Arc` without another allocation is to reinterpret the `Arc` of the wrapper.

#![allow(unsafe_code)]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, TryLockError};

use super::wrapped::{hosted, poll_hosted};
use super::{Mutex, Notify, RwLock};

/// An `Arc` of the inner type, which shares allocation and count.
macro_rules! inside {
    ($this:expr, $outer:ty => $inner:ty) => {{
        let outer: Arc<$outer> = $this;
        // SAFETY: the outer type is `repr(transparent)` around the inner one (`around_tokio`) and
        // has no `Drop` of its own. So size, alignment and the effect of the last `Arc`'s drop are
        // the same through either type.
        unsafe { Arc::from_raw(Arc::into_raw(outer) as *const $inner) }
    }};
}

impl<T: ?Sized> Mutex<T> {
    /// As [`Mutex::lock`]; the guard keeps the lock alive.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    pub async fn lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        hosted(inside!(self, Mutex<T> => tokio::sync::Mutex<T>).lock_owned()).await
    }

    /// Locks it if it is free; the guard keeps the lock alive.
    ///
    /// # Errors
    ///
    /// It is locked.
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        inside!(self, Mutex<T> => tokio::sync::Mutex<T>).try_lock_owned()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// As [`RwLock::read`]; the guard keeps the lock alive.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    pub async fn read_owned(self: Arc<Self>) -> OwnedRwLockReadGuard<T> {
        hosted(inside!(self, RwLock<T> => tokio::sync::RwLock<T>).read_owned()).await
    }

    /// As [`RwLock::write`]; the guard keeps the lock alive.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    pub async fn write_owned(self: Arc<Self>) -> OwnedRwLockWriteGuard<T> {
        hosted(inside!(self, RwLock<T> => tokio::sync::RwLock<T>).write_owned()).await
    }

    /// Locks it for reading if it is not locked for writing; the guard keeps the lock alive.
    ///
    /// # Errors
    ///
    /// It is locked for writing.
    pub fn try_read_owned(self: Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, TryLockError> {
        inside!(self, RwLock<T> => tokio::sync::RwLock<T>).try_read_owned()
    }

    /// Locks it for writing if it is free; the guard keeps the lock alive.
    ///
    /// # Errors
    ///
    /// It is locked.
    pub fn try_write_owned(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, TryLockError> {
        inside!(self, RwLock<T> => tokio::sync::RwLock<T>).try_write_owned()
    }
}

impl Notify {
    /// As [`Notify::notified`]; the future keeps the notify alive.
    ///
    /// Cancel safe: a notification for this waiter alone goes to the next one.
    pub fn notified_owned(self: Arc<Self>) -> OwnedNotified {
        OwnedNotified { inner: inside!(self, Notify => tokio::sync::Notify).notified_owned() }
    }
}

pin_project! {
    /// The future of [`Notify::notified_owned`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct OwnedNotified {
        #[pin]
        inner: tokio::sync::futures::OwnedNotified,
    }
}

impl OwnedNotified {
    /// Enters the line without an await. Returns true if it has already been notified.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.project().inner.enable()
    }
}

impl Future for OwnedNotified {
    type Output = ();

    /// Cancel safe: a notification for this waiter alone goes to the next one.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        poll_hosted(cx, |cx| self.project().inner.poll(cx))
    }
}
