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
use crate::time::{Instant, next_after};

/// Calls the callback once, after `delay` (the papers' `delaycb`). Never early; its turn in the
/// color comes at most a tick of 0.52 ms late.
///
/// # Errors
///
/// There is no runtime here.
pub fn after(delay: Duration, callback: Callback<()>) -> io::Result<Registration> {
    Alarm::start(Timer::after(delay), None, callback)
}

/// Calls the callback once, at `deadline`; a time in the past is due at once. Never early; its turn
/// in the color comes at most a tick of 0.52 ms late.
///
/// ```
/// use std::sync::mpsc;
/// use std::time::{Duration, Instant};
///
/// use dapple_sched::Color;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let _entered = runtime.enter();
/// let deadline = Instant::now() + Duration::from_millis(2);
/// let (sender, receiver) = mpsc::channel();
/// let _alarm = dapple_io::event::at(deadline, Color::new().wrap(move |()| sender.send(Instant::now()).unwrap()))?;
/// assert!(receiver.recv().unwrap() >= deadline);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// There is no runtime here.
pub fn at(deadline: impl Into<Instant>, callback: Callback<()>) -> io::Result<Registration> {
    Alarm::start(Timer::at(deadline.into().into_std()), None, callback)
}

/// Calls the callback every `period`, first after one period. If the callback or its color is slow,
/// runs that became due meanwhile are skipped, and the pattern stays.
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
    Alarm::start(Timer::after(period), Some(period), callback)
}

/// One callback and its next deadline.
struct Alarm {
    period: Option<Duration>,
    /// Checked when a posted run starts.
    canceled: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    /// `None` after a cancel.
    timer: Option<Timer>,
    /// `None` after a cancel or the last call.
    callback: Option<Callback<()>>,
}

impl Alarm {
    fn start(timer: Timer, period: Option<Duration>, callback: Callback<()>) -> io::Result<Registration> {
        let alarm = Arc::new(Alarm {
            period,
            canceled: Arc::default(),
            state: Mutex::new(State { timer: Some(timer), callback: Some(callback) }),
        });
        if alarm.is_due()? {
            alarm.ring();
        }
        Ok(Registration::new(alarm))
    }

    /// Whether it is due; otherwise arms the timer, unless it was canceled.
    fn is_due(self: &Arc<Self>) -> io::Result<bool> {
        let waker = Waker::from(self.clone());
        let mut state = self.state.lock();
        match &mut state.timer {
            Some(timer) => timer.poll(&waker).map(|poll| poll.is_ready()),
            None => Ok(false),
        }
    }

    /// Calls the callback; without a runtime, it ends.
    fn ring_or_end(self: &Arc<Self>) {
        match self.is_due() {
            Ok(true) => self.ring(),
            Ok(false) => {}
            Err(_) => self.cancel(),
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
                if let Some(timer) = &mut alarm.state.lock().timer {
                    timer.reset(next_after(timer.deadline().into(), period).into_std());
                }
                alarm.ring_or_end();
            });
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.ring_or_end();
    }
}

impl Cancel for Alarm {
    fn cancel(&self) {
        // Release pairs with the look in `Callback::call_unless`.
        self.canceled.store(true, Ordering::Release);
        let (timer, callback) = {
            let mut state = self.state.lock();
            (state.timer.take(), state.callback.take())
        };
        drop((timer, callback));
    }
}
