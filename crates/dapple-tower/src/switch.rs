//! The one place that knows whether locks are std's, or shuttle's for the models in `tests/shuttle`, which so run the shipped
//! code.

#[cfg(dapple_shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(dapple_shuttle)]
pub use shuttle::thread::JoinHandle;
#[cfg(not(dapple_shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(dapple_shuttle))]
pub use std::thread::JoinHandle;

use std::io;
use std::sync::PoisonError;
use std::time::Duration;

/// Locks. What is kept behind the locks of this crate is whole between any two statements that can panic, so poison means
/// nothing.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until there is news, at most for so long; in models time does not pass.
pub fn wait_for<'lock, T>(
    changed: &Condvar,
    guard: MutexGuard<'lock, T>,
    limit: Option<Duration>,
) -> MutexGuard<'lock, T> {
    match limit {
        #[cfg(not(dapple_shuttle))]
        Some(limit) => changed.wait_timeout(guard, limit).unwrap_or_else(PoisonError::into_inner).0,
        _ => changed.wait(guard).unwrap_or_else(PoisonError::into_inner),
    }
}

/// Starts a thread.
#[cfg(not(dapple_shuttle))]
pub fn spawn_thread(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(work)
}

/// Starts a thread of the model.
#[cfg(dapple_shuttle)]
pub fn spawn_thread(_name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Ok(shuttle::thread::spawn(work))
}

/// The calling thread.
#[cfg(not(dapple_shuttle))]
pub fn this_thread() -> std::thread::ThreadId {
    std::thread::current().id()
}

/// The calling thread.
#[cfg(dapple_shuttle)]
pub fn this_thread() -> shuttle::thread::ThreadId {
    shuttle::thread::current().id()
}
