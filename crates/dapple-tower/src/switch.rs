//! The switch between std's locks and shuttle's: the models in `tests/shuttle` run the shipped code
//! with the latter.

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

/// Locks. State in the locks of this crate is consistent at any statement that can panic, so poison
/// is ignored.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification, at most this long; in models time does not pass.
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
