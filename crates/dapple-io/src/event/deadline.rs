//! Callbacks for deadlines.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use dapple_sched::Callback;

use super::{Cancel, Registration};
use crate::driver::Timer;
use crate::lock::Mutex;
use crate::time::{Instant, far_from_now, next_after};

/// Calls the callback once, when `delay` has passed (the papers' `delaycb`). Never early; late by at most a tick of 0.52 ms
/// before the color's turn comes.
///
/// # Errors
///
/// There is no runtime here.
pub fn after(delay: Duration, callback: Callback<()>) -> io::Result<Registration> {
    Alarm::start(far_from_now(delay), None, callback)
}

/// Calls the callback every `period`, the first time after one period. When the callback or its color is slow, runs that were
/// due in the meantime are skipped; the pattern is kept.
///
/// # Errors
///
/// There is no runtime here.
///
/// # Panics
///
/// If `period` is zero.
pub fn every(period: Duration, callback: Callback<()>) -> io::Result<Registration> {
    assert!(!period.is_zero(), "the period of a timer is not zero");
    Alarm::start(far_from_now(period), Some(period), callback)
}

/// One callback and its next deadline.
struct Alarm {
    period: Option<Duration>,
    /// Looked at when a posted run has its turn.
    canceled: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    deadline: Instant,
    timer: Timer,
    /// `None` once cancelled, or called for the last time.
    callback: Option<Callback<()>>,
}

impl Alarm {
    fn start(deadline: Instant, period: Option<Duration>, callback: Callback<()>) -> io::Result<Registration> {
        let alarm = Arc::new(Alarm {
            period,
            canceled: Arc::default(),
            state: Mutex::new(State { deadline, timer: Timer::default(), callback: Some(callback) }),
        });
        alarm.arm()?;
        Ok(Registration::new(alarm))
    }

    fn arm(self: &Arc<Self>) -> io::Result<()> {
        let waker = Waker::from(self.clone());
        let mut state = self.state.lock();
        if state.callback.is_none() {
            return Ok(());
        }
        let deadline = state.deadline;
        state.timer.arm(deadline.into_std(), &waker)
    }

    /// Where there is no runtime any more, nothing will call.
    fn arm_or_end(self: &Arc<Self>) {
        if self.arm().is_err() {
            self.cancel();
        }
    }

    fn ring(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let callback = match self.period {
            None => state.callback.take(),
            Some(_) => state.callback.clone(),
        };
        drop(state);
        let Some(callback) = callback else { return };
        callback.call_unless(&self.canceled, ());
        if let Some(period) = self.period {
            let alarm = self.clone();
            // A color keeps its order, so this runs after the callback.
            callback.color().post(move || {
                let mut state = alarm.state.lock();
                state.deadline = next_after(state.deadline, period);
                drop(state);
                alarm.arm_or_end();
            });
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        // A deadline that is days away is reached in several steps.
        let is_due = Instant::now() >= self.state.lock().deadline;
        if is_due {
            self.ring();
        } else {
            self.arm_or_end();
        }
    }
}

impl Cancel for Alarm {
    fn cancel(&self) {
        // Release pairs with the look in `Callback::call_unless`.
        self.canceled.store(true, Ordering::Release);
        let (timer, callback) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.timer), state.callback.take())
        };
        drop((timer, callback));
    }
}
