//! A call at a point of time, for shared state: it does not depend on a poll.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use super::Sleep;
use super::thread::{self, Key};

/// The target of an alarm.
pub trait Ring: Send + Sync + 'static {
    /// The time has come. Runs on a thread of timers: it must be short.
    fn ring(self: Arc<Self>);
}

/// One point of time at which [`Ring::ring`] is called; setting it again moves it. It never rings
/// inside `set`, so it may be used under the lock which `ring` takes.
///
/// Callers of several runtimes share it, and it must outlive each. So it uses the thread of timers
/// also on Dapple, unless the clock stands still there.
pub struct Alarm {
    until: Option<Instant>,
    armed: Armed,
}

enum Armed {
    No,
    Thread(Key),
    /// Kept because dropping it would disarm it.
    Standing {
        _sleep: Sleep,
    },
}

/// No timer is available now: waiting tasks must be polled instead.
pub struct NoTimer;

struct Bell<R>(Weak<R>);

impl<R: Ring> Wake for Bell<R> {
    fn wake(self: Arc<Self>) {
        if let Some(ring) = self.0.upgrade() {
            ring.ring();
        }
    }
}

impl Alarm {
    #[allow(clippy::new_without_default, reason = "hidden: only our own crates use it")]
    pub fn new() -> Alarm {
        Alarm { until: None, armed: Armed::No }
    }

    /// Calls `ring` at this time, instead of at an earlier one set; `None` disarms it.
    pub fn set<R: Ring>(&mut self, until: Option<Instant>, ring: &Arc<R>) -> Result<(), NoTimer> {
        if self.until == until {
            return Ok(());
        }
        self.disarm();
        let Some(deadline) = until else { return Ok(()) };
        let waker = Waker::from(Arc::new(Bell(Arc::downgrade(ring))));
        if super::stands_still() {
            let mut sleep = Sleep::until(deadline);
            match sleep.poll_timer(&mut Context::from_waker(&waker)) {
                Some(Poll::Pending) => {}
                Some(Poll::Ready(())) | None => return Err(NoTimer),
            }
            self.armed = Armed::Standing { _sleep: sleep };
        } else {
            self.armed = Armed::Thread(thread::arm(deadline, waker).map_err(|_| NoTimer)?);
        }
        self.until = until;
        Ok(())
    }

    /// Whether it is set, or has rung without a call of [`Alarm::rang`].
    pub fn is_set(&self) -> bool {
        self.until.is_some()
    }

    /// Call this first when it has rung.
    pub fn rang(&mut self) {
        self.disarm();
    }

    fn disarm(&mut self) {
        if let Armed::Thread(key) = std::mem::replace(&mut self.armed, Armed::No) {
            thread::disarm(key);
        }
        self.until = None;
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.disarm();
    }
}
