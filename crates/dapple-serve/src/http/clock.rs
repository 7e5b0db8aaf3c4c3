//! Clocks that are cheap enough to be read for every request.
//!
//! Time-outs are about clients, and a client is not late because this process was stopped (SIGSTOP,
//! a debugger, a frozen container). So [`now_ms`] leaves out time in which the process did not run.
//! A *beat* every second notes the time; if a reader comes long after the last beat, it first sets
//! the clock back.
//!
//! | the last beat was | a reader |
//! |---|---|
//! | up to `BEAT_MAX_MS` ago | subtracts the time left out so far |
//! | longer ago | adds the excess to the time left out, unless another reader is just doing so, and notes the time as a beat |
//!
//! The clock never goes back: it has never shown more than the last beat plus `BEAT_MAX_MS`.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use dapple_io::time::{Instant, sleep, sleep_until};
use dapple_sched::environment;
use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use super::pace::millis;

/// Milliseconds in which the process ran, as of the last tick of the kernel's clock (at most 10 ms
/// ago). Uses the runtime's clock if that one stands still.
pub fn now_ms() -> u64 {
    if environment::is_simulated() {
        return standing_ms(environment::now());
    }
    match Instant::standing() {
        Some(now) => standing_ms(now.into_std()),
        None => CLOCK.now(raw_ms),
    }
}

/// Milliseconds left out since the start. A timer set before this changed fires too early.
pub fn left_out_ms() -> u64 {
    CLOCK.left_out_ms.load(Ordering::Relaxed)
}

/// Seconds since 1970, as of the last tick.
pub fn unix_s() -> u64 {
    if environment::is_simulated() {
        return unix_ms() / 1_000;
    }
    // REAL: outside of a simulation, and cheaper than the precise clock.
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

/// Milliseconds since 1970, for ages and dates: includes time in which the process is stopped.
pub fn unix_ms() -> u64 {
    environment::system_now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Notes the time every second while the process runs. Until the first call nothing is left out.
pub async fn beat() {
    if environment::is_simulated() {
        // A simulated machine never stops without its clock, and the beat is one of the process.
        return pending().await;
    }
    let mut told_ms = left_out_ms();
    loop {
        CLOCK.beat(raw_ms());
        // A reader may have noted it first.
        let all_ms = left_out_ms();
        if all_ms > told_ms {
            let left_out_ms = all_ms - told_ms;
            warn!(left_out_ms, "the process did not run for a while; clients get extra time");
            told_ms = all_ms;
        }
        sleep(BEAT_EVERY).await;
    }
}

/// Returns the result of `future`, or `None` if that takes longer than `limit`.
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let until_ms = now_ms().saturating_add(millis(limit));
    let mut future = pin!(future);
    let mut timer = sleep_until(Instant::now() + limit);
    let race = poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        while Pin::new(&mut timer).poll(cx).is_ready() {
            let left_ms = until_ms.saturating_sub(now_ms());
            if left_ms == 0 {
                return Poll::Ready(None);
            }
            timer.reset(Instant::now() + Duration::from_millis(left_ms));
        }
        Poll::Pending
    });
    race.await
}

/// Milliseconds of the monotonic clock, which stands still while the machine sleeps.
fn raw_ms() -> u64 {
    // REAL: simulations are answered before.
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000 + now.tv_nsec as u64 / 1_000_000
}

/// The clock that leaves out time in which the process did not run.
struct Clock {
    /// When the last beat was; [`NEVER`] before the first.
    beat_ms: AtomicU64,
    left_out_ms: AtomicU64,
    leaving_out: Mutex<()>,
}

static CLOCK: Clock = Clock::new();

/// Milliseconds of a clock that stands still, or of a simulation. Each runtime may have its own, earlier or later than the start of the
/// process.
fn standing_ms(now: std::time::Instant) -> u64 {
    let start = environment::start();
    let later = now.saturating_duration_since(start).as_millis() as u64;
    STANDING_BASE_MS + later - start.saturating_duration_since(now).as_millis() as u64
}

/// Some 30 years, so that no time is before zero.
const STANDING_BASE_MS: u64 = 1 << 40;

impl Clock {
    const fn new() -> Clock {
        Clock { beat_ms: AtomicU64::new(NEVER), left_out_ms: AtomicU64::new(0), leaving_out: Mutex::new(()) }
    }

    /// The time that counts, given a way to read the raw clock. Reads again if the time left out
    /// has changed meanwhile, because the two belong together.
    fn now(&self, raw_ms: impl Fn() -> u64) -> u64 {
        loop {
            let left_out_ms = self.left_out_ms.load(Ordering::Acquire);
            let raw_ms = raw_ms();
            if is_late(self.beat_ms.load(Ordering::Acquire), raw_ms) {
                self.leave_out(raw_ms);
            }
            if left_out_ms == self.left_out_ms.load(Ordering::Acquire) {
                return raw_ms.saturating_sub(left_out_ms);
            }
        }
    }

    fn beat(&self, raw_ms: u64) {
        self.now(|| raw_ms);
        self.beat_ms.store(raw_ms, Ordering::Release);
    }

    /// Leaves out the time beyond the longest interval between beats, unless another thread has
    /// just done so.
    fn leave_out(&self, raw_ms: u64) {
        let _alone = self.leaving_out.lock().unwrap_or_else(PoisonError::into_inner);
        let beat_ms = self.beat_ms.load(Ordering::Acquire);
        if is_late(beat_ms, raw_ms) {
            self.left_out_ms.fetch_add(raw_ms - beat_ms - BEAT_MAX_MS, Ordering::AcqRel);
            self.beat_ms.store(raw_ms, Ordering::Release);
        }
    }
}

/// Whether more time has passed since the last beat than counts.
fn is_late(beat_ms: u64, raw_ms: u64) -> bool {
    raw_ms.saturating_sub(beat_ms) > BEAT_MAX_MS
}

/// The value before the first beat: no time is later than this.
const NEVER: u64 = u64::MAX;

/// How often the beat notes the time.
const BEAT_EVERY: Duration = Duration::from_secs(1);

/// How much time between two beats counts.
const BEAT_MAX_MS: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::{BEAT_MAX_MS, Clock};

    #[test]
    fn time_without_beats_does_not_count() {
        let clock = Clock::new();
        assert_eq!(clock.now(|| 500_000), 500_000, "before the first beat all time counts");
        clock.beat(500_000);
        assert_eq!(clock.now(|| 501_000), 501_000);
        clock.beat(501_000);
        assert_eq!(clock.now(|| 501_000 + BEAT_MAX_MS), 501_000 + BEAT_MAX_MS);
        // The process was stopped for an hour.
        let after = 501_000 + 3_600_000;
        assert_eq!(clock.now(|| after), 501_000 + BEAT_MAX_MS);
        assert_eq!(clock.now(|| after + 7), 501_000 + BEAT_MAX_MS + 7);
        clock.beat(after + 1_000);
        assert_eq!(clock.now(|| after + 2_000), 501_000 + BEAT_MAX_MS + 2_000);
        clock.beat(after + 900_000);
        assert_eq!(clock.now(|| after + 900_000), 501_000 + 2 * BEAT_MAX_MS + 1_000);
    }
}
