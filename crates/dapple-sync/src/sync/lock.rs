//! Locks and semaphores.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::{AcquireError, MutexGuard, RwLockReadGuard, RwLockWriteGuard, SemaphorePermit, TryAcquireError};

use super::wrapped::{around_tokio, hosted, poll_hosted};

around_tokio! {
    /// A lock that may stay locked across an `.await`: [`tokio::sync::Mutex`] with its other
    /// methods, and with a [budget](dapple_sched::poll_budget).
    ///
    /// ```
    /// use dapple_sync::sync::Mutex;
    ///
    /// dapple_sched::block_on(async {
    ///     let names = Mutex::new(vec!["Ann"]);
    ///     names.lock().await.push("Bob");
    ///     assert_eq!(names.into_inner().len(), 2);
    /// });
    /// ```
    Mutex[T: ?Sized] of tokio::sync::Mutex<T>
}

impl<T> Mutex<T> {
    /// A lock around a value.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(tokio::sync::Mutex::new(value))
    }

    /// As [`Mutex::new`], for a `static`.
    pub const fn const_new(value: T) -> Mutex<T> {
        Mutex(tokio::sync::Mutex::const_new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks it, after all earlier callers have unlocked it.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        hosted(self.0.lock()).await
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

around_tokio! {
    /// A lock with many readers or one writer, also across an `.await`: [`tokio::sync::RwLock`]
    /// with its other methods, and with a [budget](dapple_sched::poll_budget).
    ///
    /// ```
    /// use dapple_sync::sync::RwLock;
    ///
    /// dapple_sched::block_on(async {
    ///     let names = RwLock::new(vec!["Ann"]);
    ///     names.write().await.push("Bob");
    ///     assert_eq!(names.read().await.len(), 2);
    /// });
    /// ```
    RwLock[T: ?Sized] of tokio::sync::RwLock<T>
}

impl<T> RwLock<T> {
    /// A lock around a value.
    pub fn new(value: T) -> RwLock<T> {
        RwLock(tokio::sync::RwLock::new(value))
    }

    /// As [`RwLock::new`], for a `static`.
    pub const fn const_new(value: T) -> RwLock<T> {
        RwLock(tokio::sync::RwLock::const_new(value))
    }

    /// A lock with at most this many readers at once.
    ///
    /// # Panics
    ///
    /// If `readers_max` is more than `u32::MAX >> 3`.
    pub fn with_max_readers(value: T, readers_max: u32) -> RwLock<T> {
        RwLock(tokio::sync::RwLock::with_max_readers(value, readers_max))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks it for reading, after all earlier writers have unlocked it.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        hosted(self.0.read()).await
    }

    /// Locks it for writing, after all earlier callers have unlocked it.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        hosted(self.0.write()).await
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        RwLock::new(T::default())
    }
}

around_tokio! {
    /// Admits this many at a time: [`tokio::sync::Semaphore`] with its other methods, and with a
    /// [budget](dapple_sched::poll_budget).
    ///
    /// ```
    /// use dapple_sync::sync::Semaphore;
    ///
    /// dapple_sched::block_on(async {
    ///     let two = Semaphore::new(2);
    ///     let _one = two.acquire().await?;
    ///     assert_eq!(two.available_permits(), 1);
    ///     Ok::<_, dapple_sync::sync::AcquireError>(())
    /// })?;
    /// # Ok::<(), dapple_sync::sync::AcquireError>(())
    /// ```
    Semaphore[] of tokio::sync::Semaphore
}

impl Semaphore {
    /// The largest possible number of permits.
    pub const MAX_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// Cancel safe: if a notification was for this waiter alone, the next waiter gets it.
    ///
    /// # Panics
    ///
    /// If `permits` is more than [`Semaphore::MAX_PERMITS`].
    pub fn new(permits: usize) -> Semaphore {
        Semaphore(tokio::sync::Semaphore::new(permits))
    }

    /// As [`Semaphore::new`], for a `static`.
    pub const fn const_new(permits: usize) -> Semaphore {
        Semaphore(tokio::sync::Semaphore::const_new(permits))
    }

    /// Takes a permit, after all earlier callers have got theirs. Dropping it gives it back.
    ///
    /// Cancel safe: dropping the future gives up its position in the queue.
    ///
    /// # Errors
    ///
    /// The semaphore is closed.
    pub async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        hosted(self.0.acquire()).await
    }

    /// Takes several permits at once.
    ///
    /// Cancel safe: dropping it gives up its position in the queue.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    pub async fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        hosted(self.0.acquire_many(permits)).await
    }

    /// As [`Semaphore::acquire`]; the permit keeps the semaphore alive.
    ///
    /// Cancel safe: dropping the future gives up its position in the queue.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire_many_owned(1).await
    }

    /// As [`Semaphore::acquire_many`]; the permits keep the semaphore alive.
    ///
    /// Cancel safe: dropping the future gives up its position in the queue.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    pub async fn acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire_many(permits).await?.forget();
        Ok(OwnedSemaphorePermit { semaphore: self, permits: permits as usize })
    }

    /// Takes an available permit, which keeps the semaphore alive.
    ///
    /// # Errors
    ///
    /// None is available, or the semaphore is closed.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many_owned(1)
    }

    /// Takes several available permits, which keep the semaphore alive.
    ///
    /// # Errors
    ///
    /// Fewer are available, or the semaphore is closed.
    pub fn try_acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many(permits)?.forget();
        Ok(OwnedSemaphorePermit { semaphore: self, permits: permits as usize })
    }
}

/// Permits of a semaphore, which they keep alive; dropping them gives them back.
#[must_use = "dropped permits are given back at once"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl OwnedSemaphorePermit {
    /// Permanently removes these permits from the semaphore.
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// Takes over the permits of `other`.
    ///
    /// # Panics
    ///
    /// If they belong to different semaphores.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(Arc::ptr_eq(&self.semaphore, &other.semaphore), "permits of different semaphores cannot be merged");
        self.permits += std::mem::take(&mut other.permits);
    }

    /// Splits off this many permits; `None` if there are fewer.
    pub fn split(&mut self, permits: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(permits)?;
        Some(OwnedSemaphorePermit { semaphore: self.semaphore.clone(), permits })
    }

    /// The semaphore.
    pub fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    /// The number of permits.
    pub fn num_permits(&self) -> usize {
        self.permits
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        if self.permits > 0 {
            self.semaphore.add_permits(self.permits);
        }
    }
}

around_tokio! {
    /// Notifies one or all waiters: [`tokio::sync::Notify`] with its other methods, and with a
    /// [budget](dapple_sched::poll_budget).
    ///
    /// ```
    /// use dapple_sync::sync::Notify;
    ///
    /// dapple_sched::block_on(async {
    ///     let news = Notify::new();
    ///     news.notify_one(); // stored until a task waits
    ///     news.notified().await;
    /// });
    /// ```
    Notify[] of tokio::sync::Notify
}

impl Notify {
    /// A notify without a stored notification.
    pub fn new() -> Notify {
        Notify::const_new()
    }

    /// As [`Notify::new`], for a `static`.
    pub const fn const_new() -> Notify {
        Notify(tokio::sync::Notify::const_new())
    }

    /// Waits for a notification. It receives those of
    /// [`notify_waiters`](tokio::sync::Notify::notify_waiters) from this call on, and those of
    /// [`notify_one`](tokio::sync::Notify::notify_one) in order from its first poll, or
    /// [`Notified::enable`], on.
    ///
    /// Cancel safe: a notification for this waiter alone goes to the next one.
    pub fn notified(&self) -> Notified<'_> {
        Notified { inner: self.0.notified() }
    }
}

impl Default for Notify {
    fn default() -> Self {
        Notify::new()
    }
}

pin_project! {
    /// The future of [`Notify::notified`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Notified<'a> {
        #[pin]
        inner: tokio::sync::futures::Notified<'a>,
    }
}

impl Notified<'_> {
    /// Enters the line without an await. Returns true if it has already been notified.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.project().inner.enable()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        poll_hosted(cx, |cx| self.project().inner.poll(cx))
    }
}
