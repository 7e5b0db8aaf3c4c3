//! The alarm that calls the monitor when a worker does not come round: a dead man's switch.
//!
//! A worker in a long callback cannot look around, and those that sleep must not tick. A thread that looks after them every
//! millisecond takes a processor from a worker as often, which costs a busy server a tenth of its processor time. So time runs
//! the other way: a timer of the kernel's calls the monitor unless the workers put it off, which they do where they look at the
//! kernel anyway. While they do, the monitor sleeps. When the alarm goes off, the monitor looks twice, shortly one after the
//! other: a worker that has ended no turn in between is in a long callback.
//!
//! One word, the *pulse*, has the number of workers that sleep, of these the number of those that rest (`rest`) and so cannot help, and two
//! bits about the timer:
//!
//! | bits | the timer | next |
//! |---|---|---|
//! | none | on, at a distance at which a sleeper can help in time; or the monitor is about to look | put off: when each worker that is awake has come round. `AT_REST`: all sleep, and the last of them, or the monitor, sees to it |
//! | `FAR` | on, and far off, as none sleeps who could help | none: the first worker that falls asleep; or as above |
//! | `AT_REST` | off | none: the first worker that wakes |
//!
//! **No worker is missed.** One that is stuck has not come round since the timer was put off for the last time but one, so the timer
//! goes off. `AT_REST` is set only while all sleep, and `FAR` only while none does, by an exchange of the whole word; a worker that
//! wakes or falls asleep changes the number in the same word, and so learns in the same step whether it has to see to
//! the timer. The timer and the bits change under one lock, so that the bits never promise a timer that is not on.
//!
//! Orderings: all that changes the pulse is an `AcqRel` read-modify-write. The timer is under the lock; all else is a hint.

use std::io;
use std::sync::{Arc, PoisonError};
#[cfg(not(any(dapple_loom, dapple_shuttle)))]
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

#[cfg(dapple_loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(dapple_shuttle)]
use shuttle::sync::{Mutex, MutexGuard};

use crate::environment;
use crate::runtime::shared::Shared;
use crate::sync::atomic::{AtomicU64, Ordering::*};
pub(crate) use timer::Timer;

/// See the module's text.
pub(crate) struct Alarm {
    timer: Arc<Timer>,
    /// Held while the timer and the word change.
    changes: Mutex<Changes>,
    /// When the timer was set, in nanoseconds since the runtime started. A hint, as is the next.
    put_off_at: AtomicU64,
    /// Until then callbacks that do not end are looked for more often: there was one lately.
    wary_until: AtomicU64,
}

/// The right to change the alarm.
struct Changes {
    /// The runtime ends.
    is_over: bool,
}

impl Alarm {
    /// `is_silent`: there is no monitor that it could call.
    pub(crate) fn new(is_silent: bool) -> io::Result<Alarm> {
        Ok(Alarm {
            timer: Arc::new(if is_silent { Timer::silent() } else { Timer::new()? }),
            changes: Mutex::new(Changes { is_over: false }),
            put_off_at: AtomicU64::new(0),
            wary_until: AtomicU64::new(0),
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

    fn is_wary(&self, now_ns: u64) -> bool {
        // Relaxed: a hint.
        now_ns < self.wary_until.load(Relaxed)
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Nanoseconds since the runtime started.
    pub(crate) fn now_ns(&self) -> u64 {
        // A model has no clock.
        if cfg!(any(dapple_loom, dapple_shuttle)) {
            0
        } else {
            (environment::measured_now() - self.started).as_nanos() as u64
        }
    }

    /// A worker counts as asleep from now on.
    pub(super) fn fell_asleep(&self, wakes_seldom: bool, rests: bool) {
        let old = self.pulse.fetch_add(sleeper(rests), AcqRel);
        if old & FAR != 0 && self.slots.len() > 1 && !rests {
            // It could help those that are awake.
            self.set_alarm(false);
        } else if wakes_seldom && (old & SLEEPERS) as usize + 1 == self.slots.len() {
            // It would only go off for nothing.
            self.rest_alarm();
        }
    }

    pub(super) fn woke_up(&self, rested: bool) {
        self.pulse.fetch_sub(sleeper(rested), AcqRel);
    }

    /// The worker, which is the caller, has come round, though it does not see to the alarm.
    pub(super) fn mark_round(&self, worker: usize) {
        if cfg!(not(dapple_loom)) {
            // Relaxed here and below: a mark that is seen late puts the alarm off late.
            self.slots[worker].came_round.store(true, Relaxed);
        }
    }

    /// The worker, which is the caller, has come round, or has just woken. Returns the time, and whether the alarm was put off or set.
    pub(super) fn come_round(&self, worker: usize) -> (u64, bool) {
        // The monitor is in no model of loom, and its alarm would multiply what there is to search.
        if cfg!(dapple_loom) {
            return (0, false);
        }
        self.mark_round(worker);
        let now = self.now_ns();
        // Relaxed: the bit is not set while this worker is awake, and its own exchange has seen what came before.
        let pulse = self.pulse.load(Relaxed);
        if pulse & AT_REST != 0 {
            self.begin_round();
            return (now, true);
        }
        let every = match helpers(pulse) > 0 {
            true if self.alarm.is_wary(now) => NEAR_EVERY_NS,
            true => CALM_EVERY_NS,
            false => FAR_EVERY_NS,
        };
        let since = now.saturating_sub(self.alarm.put_off_at.load(Relaxed));
        let is_due = since >= every || cfg!(any(dapple_loom, dapple_shuttle));
        if !is_due || !self.slots.iter().all(|slot| slot.is_asleep() || slot.came_round.load(Relaxed)) {
            return (now, false);
        }
        self.begin_round();
        (now, true)
    }

    /// Sets the alarm, which each worker that is awake has to put off from now on.
    fn begin_round(&self) {
        for slot in &self.slots {
            slot.came_round.store(false, Relaxed);
            slot.turns_then.store(slot.counters.turns(), Relaxed);
        }
        // The monitor is also to look how many processors there are.
        self.set_alarm(self.cpus.as_ref().is_some_and(|cpus| cpus.is_due(self.now_ns())));
    }

    /// Sets the alarm: far off where no worker could help; or `soon`.
    pub(super) fn set_alarm(&self, soon: bool) {
        let changes = self.alarm.changes();
        if changes.is_over {
            return;
        }
        // Relaxed: a hint.
        self.alarm.put_off_at.store(self.now_ns(), Relaxed);
        if !soon && self.set_far() {
            return;
        }
        self.alarm.timer.set(Some(if soon { SOON } else { self.helped_after() }));
        self.pulse.fetch_and(!(FAR | AT_REST), AcqRel);
    }

    /// Sets the alarm far off; false where a worker sleeps that could help. The caller may change the alarm.
    fn set_far(&self) -> bool {
        let can_be_helped = |pulse| self.slots.len() > 1 && helpers(pulse) > 0;
        // Relaxed: the exchange decides.
        let pulse = self.pulse.load(Relaxed);
        if can_be_helped(pulse) {
            return false;
        }
        self.alarm.timer.set(Some(FAR_AFTER));
        let far = |pulse: u32| (!can_be_helped(pulse)).then_some(pulse & !AT_REST | FAR);
        self.pulse.fetch_update(AcqRel, Relaxed, far).is_ok()
    }

    /// Turns the alarm off; false where a worker is awake.
    pub(super) fn rest_alarm(&self) -> bool {
        if cfg!(dapple_loom) {
            return true;
        }
        let changes = self.alarm.changes();
        let rest = |pulse: u32| ((pulse & SLEEPERS) as usize == self.slots.len()).then_some(pulse & !FAR | AT_REST);
        let rests = self.pulse.fetch_update(AcqRel, Relaxed, rest).is_ok();
        if rests && !changes.is_over {
            self.alarm.timer.set(None);
        }
        rests
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
}

/// Workers that sleep and do not rest.
pub(crate) fn helpers(pulse: u32) -> u32 {
    (pulse & SLEEPERS) - (pulse >> RESTING_SHIFT & RESTING_MAX)
}

/// What a worker that sleeps adds to the pulse.
fn sleeper(rests: bool) -> u32 {
    1 + (u32::from(rests) << RESTING_SHIFT)
}

/// Bits of the pulse that count workers which sleep.
const SLEEPERS: u32 = 0xffff;

/// Above these are the bits that count those of them which rest: of 1,024 workers one does not.
const RESTING_SHIFT: u32 = 16;
const RESTING_MAX: u32 = 0x3ff;

/// See the module's table.
const FAR: u32 = 1 << 30;
pub(crate) const AT_REST: u32 = 1 << 31;

/// How long after the workers came round it goes off, while some of them sleep and could help, and callbacks were long lately.
/// With the second look that is below the two milliseconds of C6.
///
/// To set a timer that goes off before the kernel's next tick takes a virtual machine out of itself: 20 us where this was measured, and
/// half a microsecond for one that goes off later. So it is a near one only where there is something to find.
const NEAR: Duration = Duration::from_micros(1_400);

/// The same where no callback was long lately: the first one is found a few milliseconds later than those that follow.
const CALM: Duration = Duration::from_millis(5);

/// The same while all are awake, or there is but one: then it is for reports of slow callbacks.
const FAR_AFTER: Duration = Duration::from_millis(10);

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

/// A worker that slept longer than this the last time turns the timer off when all sleep again; one that wakes more often puts it off instead.
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

    /// A timer that any thread sets, and one waits for; or none.
    pub(crate) struct Timer(Option<OwnedFd>);

    impl Timer {
        pub(super) fn new() -> io::Result<Timer> {
            Ok(Timer(Some(timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?)))
        }

        /// One that never goes off.
        pub(super) fn silent() -> Timer {
            Timer(None)
        }

        /// Makes it go off once, so long after now; `None`: not at all. An earlier setting is void.
        pub(super) fn set(&self, after: Option<Duration>) {
            let Some(timer) = &self.0 else { return };
            let nanos = after.map_or(0, |after| after.as_nanos() as i64);
            let value = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval: never, it_value: value };
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &time).expect("a timer of our own takes any time");
        }

        /// Waits until it has gone off.
        pub(crate) fn wait(&self) {
            let timer = self.0.as_ref().expect("only a monitor waits, and it has a timer");
            while rustix::io::read(timer, &mut [0; 8]) == Err(Errno::INTR) {}
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

        pub(super) fn silent() -> Timer {
            Timer(Mutex::new(false), Condvar::new())
        }

        /// One that is far off never goes off by itself, so that nothing can depend on it.
        pub(super) fn set(&self, after: Option<Duration>) {
            *self.0.lock().unwrap() = after.is_some_and(|after| after < super::FAR_AFTER);
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

        pub(super) fn silent() -> Timer {
            Timer
        }

        pub(super) fn set(&self, _after: Option<Duration>) {}

        pub(crate) fn wait(&self) {}
    }
}
