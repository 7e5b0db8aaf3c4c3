//! Limits the rate of refusals.
//!
//! A refusal costs little, but not nothing. Clients that retry at once, whatever `retry-after`
//! says, could keep the server busy with refusals. So refusals have a maximum rate, which takes
//! about a tenth of the workers' time. The server delays refusals beyond that rate, and each of
//! those clients waits instead of retrying.
//!
//! Very many clients that each ask only once may reach that rate too, if requests cost less than a
//! millisecond. Then nearly every refusal comes with the full delay, although no client would
//! retry.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Spaces refusals in time.
#[derive(Debug)]
pub(crate) struct Pace {
    each: Duration,
    /// The time of the last scheduled refusal.
    last: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(workers: usize) -> Pace {
        Pace { each: EACH / u32::try_from(workers.max(1)).unwrap_or(u32::MAX), last: Mutex::default() }
    }

    /// How long to wait before this refusal, if at all. Never more than [`WAIT_MAX`].
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Unused time is kept for a burst, so that random arrivals are not delayed.
        let from = last.map_or(now - BURST, |last| last.max(now - BURST));
        let due = (from + self.each).min(now + WAIT_MAX);
        *last = Some(due);
        due.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }
}

/// Ten times the cost of a refusal on a kept connection, about 25 us.
const EACH: Duration = Duration::from_micros(250);
/// Requests that arrive while a handler keeps a worker busy are refused all at once.
const BURST: Duration = Duration::from_millis(100);
/// The longest delay of a refusal.
const WAIT_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{BURST, EACH, Pace, WAIT_MAX};

    #[test]
    fn refusals_at_a_low_rate_are_not_delayed() {
        let pace = Pace::new(1);
        let mut now = Instant::now();
        for _ in 0..10_000 {
            // In bursts of a hundred, at four fifths of the rate.
            now += EACH * 125;
            assert!((0..100).all(|_| pace.wait(now).is_none()));
        }
    }

    #[test]
    fn clients_that_retry_at_once_are_slowed_down_to_the_rate() {
        let pace = Pace::new(2);
        let begin = Instant::now();
        // Each of 500 clients retries when it has been refused.
        let mut asks: std::collections::BinaryHeap<_> = (0..500).map(|_| std::cmp::Reverse(begin)).collect();
        let mut told = 0_u32;
        while let Some(std::cmp::Reverse(at)) = asks.pop() {
            if at > begin + Duration::from_secs(10) {
                break;
            }
            told += 1;
            asks.push(std::cmp::Reverse(at + pace.wait(at).unwrap_or_default() + Duration::from_micros(20)));
        }
        let most = (Duration::from_secs(10) + BURST).as_micros() / (EACH / 2).as_micros();
        assert!(u128::from(told) < most + 600, "{told} in ten seconds, of {most}");
        assert!(u128::from(told) > most / 2, "{told} in ten seconds");
    }

    #[test]
    fn no_client_waits_for_ever() {
        let pace = Pace::new(1);
        let now = Instant::now();
        let longest = (0..100_000).filter_map(|_| pace.wait(now)).max();
        assert_eq!(longest, Some(WAIT_MAX));
    }
}
