//! Locks and semaphores.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::sync::{AcquireError, MutexGuard, RwLockReadGuard, RwLockWriteGuard, SemaphorePermit, TryAcquireError};

use super::wrapped::{around_tokio, hosted, poll_hosted};

around_tokio! {
    /// A lock that may stay locked across an `.await`: [`tokio::sync::Mutex`], whose other methods it has, with a
    /// [budget](dapple_sched::poll_budget).
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
    /// Locks it, once all who came before have unlocked it.
    ///
    /// Cancel safe: if it is dropped, it loses its place in the line.
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
    /// A lock that many may have for reading, also across an `.await`: [`tokio::sync::RwLock`], whose other methods it has, with
    /// a [budget](dapple_sched::poll_budget).
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

    /// A lock that so many may have for reading at once.
    ///
    /// # Panics
    ///
    /// If that is more than `u32::MAX >> 3`.
    pub fn with_max_readers(value: T, readers_max: u32) -> RwLock<T> {
        RwLock(tokio::sync::RwLock::with_max_readers(value, readers_max))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks it for reading, once all who came before to write have done so.
    ///
    /// Cancel safe: if it is dropped, it loses its place in the line.
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        hosted(self.0.read()).await
    }

    /// Locks it for writing, once all who came before have unlocked it.
    ///
    /// Cancel safe: if it is dropped, it loses its place in the line.
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
    /// Lets so many in at a time: [`tokio::sync::Semaphore`], whose other methods it has, with a
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
    /// The most permits that there can be.
    pub const MAX_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// One with so many permits.
    ///
    /// # Panics
    ///
    /// If those are more than [`Semaphore::MAX_PERMITS`].
    pub fn new(permits: usize) -> Semaphore {
        Semaphore(tokio::sync::Semaphore::new(permits))
    }

    /// As [`Semaphore::new`], for a `static`.
    pub const fn const_new(permits: usize) -> Semaphore {
        Semaphore(tokio::sync::Semaphore::const_new(permits))
    }

    /// Takes a permit, once all who came before have had theirs. Dropping it gives it back.
    ///
    /// Cancel safe: if it is dropped, it loses its place in the line.
    ///
    /// # Errors
    ///
    /// The semaphore is closed.
    pub async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        hosted(self.0.acquire()).await
    }

    /// Takes several permits at once.
    ///
    /// Cancel safe: if it is dropped, it loses its place in the line.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    pub async fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        hosted(self.0.acquire_many(permits)).await
    }

    /// As [`Semaphore::acquire`]; the permit keeps the semaphore alive.
    ///
    /// Cancel safe: if it is dropped, it loses its place in the line.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire_many_owned(1).await
    }

    /// As [`Semaphore::acquire_many`]; the permits keep the semaphore alive.
    ///
    /// Cancel safe: if it is dropped, it loses its place in the line.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::acquire`].
    pub async fn acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire_many(permits).await?.forget();
        Ok(OwnedSemaphorePermit { semaphore: self, permits: permits as usize })
    }

    /// Takes a permit that is there, and that keeps the semaphore alive.
    ///
    /// # Errors
    ///
    /// None is there, or the semaphore is closed.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many_owned(1)
    }

    /// Takes several permits that are there, and that keep the semaphore alive.
    ///
    /// # Errors
    ///
    /// Fewer are there, or the semaphore is closed.
    pub fn try_acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many(permits)?.forget();
        Ok(OwnedSemaphorePermit { semaphore: self, permits: permits as usize })
    }
}

/// Permits of a semaphore that they keep alive; dropping them gives them back.
#[must_use = "permits that are dropped are given back at once"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl OwnedSemaphorePermit {
    /// The semaphore has so many permits less from now on.
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// Takes the permits of another one over.
    ///
    /// # Panics
    ///
    /// If they are of different semaphores.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(Arc::ptr_eq(&self.semaphore, &other.semaphore), "permits of different semaphores cannot be merged");
        self.permits += std::mem::take(&mut other.permits);
    }

    /// So many of the permits; `None` if there are fewer.
    pub fn split(&mut self, permits: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(permits)?;
        Some(OwnedSemaphorePermit { semaphore: self.semaphore.clone(), permits })
    }

    /// The semaphore.
    pub fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    /// How many there are.
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
    /// Tells one or all who wait that something has happened: [`tokio::sync::Notify`], whose other methods it has, with a
    /// [budget](dapple_sched::poll_budget).
    ///
    /// ```
    /// use dapple_sync::sync::Notify;
    ///
    /// dapple_sched::block_on(async {
    ///     let news = Notify::new();
    ///     news.notify_one(); // kept until a task waits
    ///     news.notified().await;
    /// });
    /// ```
    Notify[] of tokio::sync::Notify
}

impl Notify {
    /// Of nothing yet.
    pub fn new() -> Notify {
        Notify::const_new()
    }

    /// As [`Notify::new`], for a `static`.
    pub const fn const_new() -> Notify {
        Notify(tokio::sync::Notify::const_new())
    }

    /// Waits for a notification. It receives those of [`notify_waiters`](tokio::sync::Notify::notify_waiters) from this call on, and stands
    /// in the line for [`notify_one`](tokio::sync::Notify::notify_one) from its first poll, or [`Notified::enable`], on.
    ///
    /// Cancel safe: what it was told alone goes to the next in line.
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
    /// Takes its place in the line without being awaited. True: it was told already.
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
