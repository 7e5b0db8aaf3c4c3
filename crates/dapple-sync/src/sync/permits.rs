//! The switch of a slot's semaphores and lock between tokio's and std's, and shuttle's: the model
//! in `tests/shuttle.rs` runs the shipped code of slots with the latter.

#[cfg(not(dapple_shuttle))]
pub(crate) use {
    std::sync::{Mutex, MutexGuard},
    tokio::sync::{Semaphore, SemaphorePermit},
};

#[cfg(dapple_shuttle)]
pub(crate) use {
    model::{Semaphore, SemaphorePermit},
    shuttle::sync::{Mutex, MutexGuard},
};

#[cfg(dapple_shuttle)]
mod model {
    use shuttle::future::batch_semaphore::{AcquireError, BatchSemaphore, Fairness, TryAcquireError};

    /// The parts of tokio's semaphore that a slot uses.
    pub(crate) struct Semaphore(BatchSemaphore);

    /// As tokio's.
    pub(crate) struct SemaphorePermit<'semaphore>(&'semaphore Semaphore);

    impl Semaphore {
        pub(crate) fn new(permits: usize) -> Semaphore {
            Semaphore::const_new(permits)
        }

        pub(crate) const fn const_new(permits: usize) -> Semaphore {
            Semaphore(BatchSemaphore::const_new(permits, Fairness::StrictlyFair))
        }

        pub(crate) async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
            self.0.acquire(1).await.map(|()| SemaphorePermit(self))
        }

        pub(crate) fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
            self.0.try_acquire(1).map(|()| SemaphorePermit(self))
        }

        pub(crate) fn add_permits(&self, permits: usize) {
            self.0.release(permits);
        }
    }

    impl SemaphorePermit<'_> {
        pub(crate) fn forget(self) {
            std::mem::forget(self);
        }
    }

    impl Drop for SemaphorePermit<'_> {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }
}
