//! The timers outside of Dapple runtimes: one thread for the process, started by the first timer.
//!
//! A timer is an entry of an ordered map, which its future removes on drop, so there are never more
//! timers than waiting futures. The thread sleeps until the first one is due, or without limit if
//! there is none; it only invokes wakers.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use dapple_sched::foreign::KeptWaker;

/// A deadline, and a number that distinguishes equal ones.
pub(super) type Key = (Instant, u64);

/// The thread could not be started; the next timer tries again.
pub(super) struct NoThread;

struct Timers {
    waiting: BTreeMap<Key, KeptWaker>,
    next_number: u64,
    is_running: bool,
}

/// Adds a timer.
pub(super) fn arm(deadline: Instant, waker: Waker) -> Result<Key, NoThread> {
    let waker = KeptWaker::from(waker);
    let mut timers = timers();
    if !timers.is_running {
        let thread = std::thread::Builder::new().name("dapple-timers".to_owned());
        if let Err(error) = thread.spawn(run) {
            tracing::warn!("no thread for timers could be started, so waiting tasks poll instead: {error}");
            return Err(NoThread);
        }
        timers.is_running = true;
    }
    let key = (deadline, timers.next_number);
    timers.next_number += 1;
    let is_first = timers.waiting.first_key_value().is_none_or(|(first, _)| key < *first);
    timers.waiting.insert(key, waker);
    drop(timers);
    if is_first {
        CHANGED.notify_one();
    }
    Ok(key)
}

/// Replaces the waker; false if the timer has fired.
pub(super) fn rewire(key: Key, waker: &Waker) -> bool {
    // Clone and drop it outside of the lock, because it is foreign code.
    let new = KeptWaker::from(waker);
    let old = match timers().waiting.get_mut(&key) {
        Some(old) => std::mem::replace(old, new),
        None => return false,
    };
    drop(old);
    true
}

/// Removes a timer.
pub(super) fn disarm(key: Key) {
    let waker = timers().waiting.remove(&key);
    drop(waker);
}

/// The number of timers.
#[cfg(test)]
pub(super) fn len() -> usize {
    timers().waiting.len()
}

fn run() {
    let mut due = Vec::new();
    let mut timers = timers();
    loop {
        // REAL: this thread sleeps.
        let now = Instant::now();
        while let Some(entry) = timers.waiting.first_entry().filter(|entry| entry.key().0 <= now) {
            due.push(entry.remove());
        }
        if !due.is_empty() {
            drop(timers);
            due.drain(..).for_each(KeptWaker::wake);
            timers = self::timers();
            continue;
        }
        let first = timers.waiting.first_key_value().map(|(key, _)| key.0.saturating_duration_since(now));
        timers = match first {
            Some(rest) => CHANGED.wait_timeout(timers, rest).unwrap_or_else(PoisonError::into_inner).0,
            None => CHANGED.wait(timers).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

fn timers() -> MutexGuard<'static, Timers> {
    TIMERS.lock().unwrap_or_else(PoisonError::into_inner)
}

static TIMERS: Mutex<Timers> = Mutex::new(Timers { waiting: BTreeMap::new(), next_number: 0, is_running: false });
/// The first timer has changed.
static CHANGED: Condvar = Condvar::new();
