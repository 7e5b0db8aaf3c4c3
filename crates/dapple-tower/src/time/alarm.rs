//! A call at a point of time, for what many share: nobody's poll has to come for it.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use super::Sleep;
use super::thread::{self, Key};

/// What an alarm calls.
pub trait Ring: Send + Sync + 'static {
    /// It is time. Runs on a thread of timers: it must be short.
    fn ring(self: Arc<Self>);
}

/// One point of time at which [`Ring::ring`] is called; setting it again moves it. It never rings inside of `set`, so that it may stand
/// behind the lock which `ring` takes.
///
/// It is shared by callers of several runtimes, and must outlive each: so it uses the thread of timers also on Dapple, unless the
/// clock stands still there.
pub struct Alarm {
    until: Option<Instant>,
    armed: Armed,
}

enum Armed {
    No,
    Thread(Key),
    /// Kept, as to drop it would disarm it.
    Standing {
        _sleep: Sleep,
    },
}

/// No timer can be had at this moment: who waits has to be polled instead.
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

    /// Has `ring` called at this time, instead of at another; at `None` not at all.
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

    /// Whether it is to ring, or has rung and [`Alarm::rang`] was not called yet.
    pub fn is_set(&self) -> bool {
        self.until.is_some()
    }

    /// To be called first when it has rung.
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
