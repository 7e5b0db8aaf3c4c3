//! The alarm that calls the monitor when a worker ends no turn, like a watchdog timer.
//!
//! A worker in a long callback cannot check anything, and sleeping workers must not wake
//! periodically. A thread that checked on workers every millisecond would take a processor from
//! them as often, which costs a busy server a tenth of its processor time. So it works the other
//! way round: a kernel timer calls the monitor unless the workers postpone it, which they do at
//! their regular polls of the kernel. Until then the monitor sleeps. When the alarm expires, the
//! monitor checks twice within a short time: a worker that has ended no turn in between is in a
//! long callback. A worker that is awake *comes round* when it gets to this point between two
//! turns.
//!
//! One word, the *pulse*, has the number of sleeping workers, the number of those that rest
//! (`rest`) and so cannot help, and two bits about the timer:
//!
//! | bits | the timer | next |
//! |---|---|---|
//! | none | on, and near enough for a sleeper to help in time; or the monitor is about to check | postponed: when each worker that is awake has ended a turn. `AT_REST`: all sleep, and the last of them, or the monitor, sets it |
//! | `FAR` | on, and far off, because no sleeper could help | none: the first worker that falls asleep; or as above |
//! | `AT_REST` | off | none: the first worker that wakes |
//!
//! **No worker is missed.** A stuck worker has not ended a turn since the timer was postponed for
//! the last time but one, so the timer expires. `AT_REST` is set only while all sleep, and `FAR`
//! only while none does, by an exchange of the whole word. A worker that wakes or falls asleep
//! changes the number in the same word, and so learns in the same step whether it has to change the
//! timer. The timer and the bits change under one lock, so the bits never promise a timer that is
//! not on.
//!
//! Orderings: every change of the pulse is an `AcqRel` read-modify-write. The timer is under the
//! lock; everything else is a hint.

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
    /// The time when the timer was set, in nanoseconds since the runtime started. A hint, as is the
    /// next field.
    put_off_at: AtomicU64,
    /// Until then the monitor searches for endless callbacks more often, because there was one
    /// recently.
    wary_until: AtomicU64,
}

/// The right to change the alarm.
struct Changes {
    /// Whether the runtime ends.
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

    /// The timer. The monitor waits for it, and does not keep the runtime alive meanwhile.
    pub(crate) fn timer(&self) -> Arc<Timer> {
        self.timer.clone()
    }

    /// Makes it expire now, for the last time: the runtime ends, and the monitor with it.
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

    /// Counts a worker as asleep.
    pub(super) fn fell_asleep(&self, wakes_seldom: bool, rests: bool) {
        let old = self.pulse.fetch_add(sleeper(rests), AcqRel);
        if old & FAR != 0 && self.slots.len() > 1 && !rests {
            // This worker could help those that are awake.
            self.set_alarm(false);
        } else if wakes_seldom && (old & SLEEPERS) as usize + 1 == self.slots.len() {
            // Otherwise it would expire for nothing.
            self.rest_alarm();
        }
    }

    pub(super) fn woke_up(&self, rested: bool) {
        self.pulse.fetch_sub(sleeper(rested), AcqRel);
    }

    /// Notes that the calling worker has ended a turn, without changing the alarm.
    pub(super) fn mark_round(&self, worker: usize) {
        if cfg!(not(dapple_loom)) {
            // Relaxed here and below: if a mark is seen late, the alarm is only postponed late.
            self.slots[worker].came_round.store(true, Relaxed);
        }
    }

    /// Notes that the calling worker has ended a turn, or has just woken. Returns the time, and
    /// whether the alarm was postponed or set.
    pub(super) fn come_round(&self, worker: usize) -> (u64, bool) {
        // No loom model includes the monitor, because its alarm would multiply the states to search.
        if cfg!(dapple_loom) {
            return (0, false);
        }
        self.mark_round(worker);
        let now = self.now_ns();
        // Relaxed: the bit is not set while this worker is awake, and the worker's own exchange has
        // seen earlier changes.
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

    /// Sets the alarm again. It is next postponed when each worker that is awake has ended a turn.
    fn begin_round(&self) {
        for slot in &self.slots {
            slot.came_round.store(false, Relaxed);
            slot.turns_then.store(slot.counters.turns(), Relaxed);
        }
        // The monitor also has to count the processors.
        self.set_alarm(self.cpus.as_ref().is_some_and(|cpus| cpus.is_due(self.now_ns())));
    }

    /// Sets the alarm: far off if no worker could help, unless `soon`.
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

    /// Sets the alarm far off; false if a sleeping worker could help. The caller has the right to
    /// change the alarm.
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

    /// Turns the alarm off; false if a worker is awake.
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

    /// The time until it expires while a sleeper can help.
    fn helped_after(&self) -> Duration {
        if self.alarm.is_wary(self.now_ns()) { NEAR } else { CALM }
    }

    /// A callback took longer than others should wait, so the alarm is near for a while.
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

/// The amount that a sleeping worker adds to the pulse.
fn sleeper(rests: bool) -> u32 {
    1 + (u32::from(rests) << RESTING_SHIFT)
}

/// Bits of the pulse that count sleeping workers.
const SLEEPERS: u32 = 0xffff;

/// Above these are the bits that count the resting ones among them; of 1,024 workers at least one
/// does not rest.
const RESTING_SHIFT: u32 = 16;
const RESTING_MAX: u32 = 0x3ff;

/// See the module's table.
const FAR: u32 = 1 << 30;
pub(crate) const AT_REST: u32 = 1 << 31;

/// The time until it expires after the workers' last turns, while some of them sleep and could
/// help, and callbacks were long recently. Together with the second check, that is below the two
/// milliseconds of C6.
///
/// If a timer is due before the kernel's next tick, it costs a virtual machine an exit: 20 us as
/// measured; a later one costs half a microsecond. So the alarm is near only when there is a
/// problem to find.
const NEAR: Duration = Duration::from_micros(1_400);

/// The same if no callback was long recently: the first long one is found a few milliseconds later
/// than the next ones.
const CALM: Duration = Duration::from_millis(5);

/// The same while all are awake, or there is only one: then it serves only reports of slow
/// callbacks.
const FAR_AFTER: Duration = Duration::from_millis(10);

/// The delay of the second check: whether the worker is still in the same turn, and which thread
/// used the processor.
const SOON: Duration = Duration::from_micros(400);

/// The interval at which it is postponed.
const NEAR_EVERY_NS: u64 = 1_100_000;
const CALM_EVERY_NS: u64 = 2_500_000;
const FAR_EVERY_NS: u64 = 5_000_000;

/// How long a long callback is remembered.
const WARY_NS: u64 = 2_000_000_000;

/// A callback of this length counts as long.
pub(super) const LONG_NS: u64 = 1_000_000;

/// If a worker's last sleep was longer than this, it turns the timer off when all sleep again; a
/// worker that wakes more often postpones it instead.
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

        /// Makes it expire once, after that time; `None`: not at all. Replaces an earlier setting.
        pub(super) fn set(&self, after: Option<Duration>) {
            let Some(timer) = &self.0 else { return };
            let nanos = after.map_or(0, |after| after.as_nanos() as i64);
            let value = Timespec { tv_sec: nanos / 1_000_000_000, tv_nsec: nanos % 1_000_000_000 };
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let time = Itimerspec { it_interval: never, it_value: value };
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &time).expect("a timer of our own takes any time");
        }

        /// Waits until it has expired.
        pub(crate) fn wait(&self) {
            let timer = self.0.as_ref().expect("only a monitor waits, and it has a timer");
            while rustix::io::read(timer, &mut [0; 8]) == Err(Errno::INTR) {}
        }
    }
}

/// Models have no time: a timer expires as soon as the monitor waits, and others may set it again
/// or turn it off before.
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

        /// A far timer never expires by itself, so that nothing can depend on it.
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

/// No loom model includes the monitor.
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
