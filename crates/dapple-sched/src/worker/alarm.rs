//! The alarm that calls the monitor when a worker does not come round: a dead man's switch.
//!
//! A worker in a long callback cannot look around, and those that sleep must not tick. A thread that looks after them every
//! millisecond takes a processor from a worker as often, which costs a busy server a tenth of its processor time. So time runs
//! the other way: a timer of the kernel's calls the monitor unless the workers put it off, which they do where they look at the
//! kernel anyway. While they do, the monitor sleeps. When the alarm goes off, the monitor looks twice, shortly one after the
//! other: a worker that has ended no turn in between is in a long callback.
//!
//! | `put_off_at` | the timer | next |
//! |---|---|---|
//! | [`AT_REST`] | off; all workers sleep | set: the next worker that comes round, as it does when it wakes |
//! | a time | on, or the monitor is about to look | put off: when each worker that is awake has come round since. At rest: all sleep, and the last of them, or the monitor, sees to it |
//!
//! **Nobody is missed.** A worker that is stuck has not come round since the timer was put off for the last time but one, so
//! the timer goes off. Only rest could leave a worker without an alarm: who rests stores [`AT_REST`], turns the timer off, and
//! then counts the sleepers; who wakes counts itself awake, and then looks for [`AT_REST`] (all of it `SeqCst`). So either the
//! one sees that the other is awake, and sets the timer again, or the other sees that there is no alarm, and sets it. The timer
//! and the word change under one lock, so that the word never promises a timer that is not on.

use std::io;
use std::sync::{Arc, PoisonError};
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

#[cfg(dapple_loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(dapple_shuttle)]
use shuttle::sync::{Mutex, MutexGuard};

use crate::runtime::shared::Shared;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
pub(crate) use timer::Timer;

/// See the module's text.
pub(crate) struct Alarm {
    timer: Arc<Timer>,
    /// Held while the timer and the word change.
    changes: Mutex<Changes>,
    /// In nanoseconds since the runtime started.
    put_off_at: AtomicU64,
    /// Until then callbacks that do not end are looked for more often: there was one lately.
    wary_until: AtomicU64,
    /// It is far off, as there is no sleeper who could help.
    is_far: AtomicBool,
}

/// Who has this may change the alarm.
struct Changes {
    /// The runtime ends.
    is_over: bool,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Alarm> {
        let (put_off_at, is_far) = (AtomicU64::new(AT_REST), AtomicBool::new(false));
        Ok(Alarm {
            timer: Arc::new(Timer::new()?),
            changes: Mutex::new(Changes { is_over: false }),
            put_off_at,
            wary_until: AtomicU64::new(0),
            is_far,
        })
    }

    /// For the monitor, which waits for it without holding the runtime.
    pub(crate) fn timer(&self) -> Arc<Timer> {
        self.timer.clone()
    }

    /// Makes it go off now, for good: the runtime ends, and the monitor with it.
    pub(crate) fn ring(&self) {
        let mut changes = self.changes();
        changes.is_over = true;
        self.timer.set(Some(Duration::from_nanos(1)));
    }

    fn set(&self, shared: &Shared, after: Duration, is_far: bool) {
        let changes = self.changes();
        if changes.is_over {
            return;
        }
        self.timer.set(Some(after));
        self.is_far.store(is_far, SeqCst);
        self.put_off_at.store(shared.now_ns(), SeqCst);
    }

    fn is_wary(&self, now_ns: u64) -> bool {
        // Relaxed: a hint.
        now_ns < self.wary_until.load(Relaxed)
    }

    fn turn_off(&self) {
        let changes = self.changes();
        if changes.is_over {
            return;
        }
        // SeqCst, with `all_sleep`: see the module's text.
        self.put_off_at.store(AT_REST, SeqCst);
        self.timer.set(None);
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Nanoseconds since the runtime started; never [`AT_REST`].
    pub(super) fn now_ns(&self) -> u64 {
        // A model has no clock.
        if cfg!(any(dapple_loom, dapple_shuttle)) { 1 } else { (self.started.elapsed().as_nanos() as u64).max(1) }
    }

    /// The worker, which is the caller, has come round, or wakes. Returns the time, and whether the alarm was put off or set.
    pub(super) fn come_round(&self, worker: usize) -> (u64, bool) {
        // Relaxed here and below: a mark that is seen late puts the alarm off late.
        self.slots[worker].came_round.store(true, Relaxed);
        let now = self.now_ns();
        // SeqCst: see the module's text.
        let put_off_at = self.alarm.put_off_at.load(SeqCst);
        if put_off_at == AT_REST {
            self.set_alarm(false);
            return (now, true);
        }
        let helpers = self.sleepers() > 0;
        let every = match helpers {
            true if self.alarm.is_far.load(Relaxed) => 0,
            true if self.alarm.is_wary(now) => NEAR_EVERY_NS,
            true => CALM_EVERY_NS,
            false => FAR_EVERY_NS,
        };
        let is_due = now.saturating_sub(put_off_at) >= every || cfg!(any(dapple_loom, dapple_shuttle));
        if !is_due || !self.slots.iter().all(|slot| slot.is_asleep() || slot.came_round.load(Relaxed)) {
            return (now, false);
        }
        for slot in &self.slots {
            slot.came_round.store(false, Relaxed);
            slot.turns_then.store(slot.counters.turns(), Relaxed);
        }
        self.set_alarm(false);
        (now, true)
    }

    /// Sets the alarm: far off where nobody could help; or `soon`.
    pub(super) fn set_alarm(&self, soon: bool) {
        let can_be_helped = || self.slots.len() > 1 && self.any_sleeps();
        match (soon, can_be_helped()) {
            (true, _) => self.alarm.set(self, SOON, false),
            (false, true) => self.alarm.set(self, self.helped_after(), false),
            (false, false) => {
                self.alarm.set(self, FAR, true);
                // SeqCst, as in `bring_alarm_near`: whoever has fallen asleep meanwhile sees that it is far, or is seen here.
                if can_be_helped() {
                    self.alarm.set(self, self.helped_after(), false);
                }
            }
        }
    }

    /// When it goes off where a sleeper can help.
    fn helped_after(&self) -> Duration {
        if self.alarm.is_wary(self.now_ns()) { NEAR } else { CALM }
    }

    /// A callback took as long as others should not have to wait: for a while the alarm is a near one.
    #[cold]
    pub(super) fn be_wary(&self) {
        // Relaxed: a hint.
        self.alarm.wary_until.store(self.now_ns() + WARY_NS, Relaxed);
    }

    /// A worker has fallen asleep, and could help those that are awake: they may have no near alarm.
    pub(super) fn bring_alarm_near(&self) {
        if self.alarm.is_far.load(SeqCst) && self.slots.len() > 1 {
            self.set_alarm(false);
        }
    }

    /// All workers sleep: no alarm is needed, unless one of them wakes just now.
    pub(super) fn rest_alarm(&self) {
        self.alarm.turn_off();
        // After that: see the module's text.
        if !self.all_sleep() {
            self.set_alarm(false);
        }
    }
}

/// There is no alarm.
const AT_REST: u64 = 0;

/// How long after the workers came round it goes off, while some of them sleep and could help, and callbacks were long lately.
/// With the second look that is below the two milliseconds of C6.
///
/// To set a timer that goes off before the kernel's next tick takes a virtual machine out of itself: 20 us where this was measured, and
/// half a microsecond for one that goes off later. So it is a near one only where there is something to find.
const NEAR: Duration = Duration::from_micros(1_400);

/// The same where no callback was long lately: the first one is found a few milliseconds later than those that follow.
const CALM: Duration = Duration::from_millis(5);

/// The same while all are awake, or there is but one: then it is for reports of slow callbacks.
const FAR: Duration = Duration::from_millis(10);

/// For the second look: whether the worker still is where it was, and what became of the processor.
const SOON: Duration = Duration::from_micros(400);

/// It is put off about so often.
const NEAR_EVERY_NS: u64 = 1_100_000;
const CALM_EVERY_NS: u64 = 2_500_000;
const FAR_EVERY_NS: u64 = 5_000_000;

/// How long a long callback is remembered.
const WARY_NS: u64 = 2_000_000_000;

/// A callback that takes so long is a long one.
pub(super) const LONG_NS: u64 = 1_000_000;

/// A worker whose last sleep was longer turns the timer off when all sleep again; one that wakes more often puts it off instead.
pub(super) const SELDOM_NS: u64 = 4_000_000;

#[cfg(not(any(dapple_loom, dapple_shuttle)))]
mod timer {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };

    /// A timer that any thread sets, and one waits for.
    pub(crate) struct Timer(OwnedFd);

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            Ok(Timer(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?))
        }

        /// It goes off once so long after now; `None`: not at all. What was set before is void.
        pub(super) fn set(&self, after: Option<Duration>) {
            let nanos = after.map_or(0, |after| after.as_nanos() as i64);
            let value = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval: never, it_value: value };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &time).expect("a timer of our own takes any time");
        }

        /// Waits until it has gone off.
        pub(crate) fn wait(&self) {
            while rustix::io::read(&self.0, &mut [0; 8]) == Err(Errno::INTR) {}
        }
    }
}

/// Models have no time: what is set goes off as soon as the monitor waits, and others may set it again or turn it off before.
#[cfg(dapple_shuttle)]
mod timer {
    use std::io;
    use std::time::Duration;

    use shuttle::sync::{Condvar, Mutex};

    pub(crate) struct Timer(Mutex<bool>, Condvar);

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            Ok(Timer(Mutex::new(false), Condvar::new()))
        }

        /// One that is far off never goes off by itself, so that nothing can depend on it.
        pub(super) fn set(&self, after: Option<Duration>) {
            *self.0.lock().unwrap() = after.is_some_and(|after| after < super::FAR);
            self.1.notify_one();
        }

        pub(crate) fn wait(&self) {
            // Time passes while the others run.
            shuttle::thread::yield_now();
            let mut is_set = self.0.lock().unwrap();
            while !*is_set {
                is_set = self.1.wait(is_set).unwrap();
            }
            *is_set = false;
        }
    }
}

/// The monitor is in no model of loom.
#[cfg(dapple_loom)]
mod timer {
    use std::io;
    use std::time::Duration;

    pub(crate) struct Timer;

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            Ok(Timer)
        }

        pub(super) fn set(&self, _after: Option<Duration>) {}

        pub(crate) fn wait(&self) {}
    }
}
