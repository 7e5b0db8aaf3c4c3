//! How fast refusals are told.
//!
//! A refusal costs little, but not nothing. Clients who ask again the moment they are refused, whatever `retry-after` says, would
//! make the server do nothing but refuse. So refusals have a rate, which takes some tenth of the workers' time; what is
//! beyond it is told later, and each such client meanwhile waits instead of asking.
//!
//! So many clients that each asks only once may reach that rate, too, where requests are cheaper than a millisecond. Then nearly every
//! refusal is told as late as can be, although nobody is slowed down by it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Spaces refusals.
#[derive(Debug)]
pub(crate) struct Pace {
    each: Duration,
    /// When the last refusal that was given out is to be told.
    last: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) fn new(workers: usize) -> Pace {
        Pace { each: EACH / u32::try_from(workers.max(1)).unwrap_or(u32::MAX), last: Mutex::default() }
    }

    /// How long to wait before this refusal, if at all. Never more than [`WAIT_MAX`].
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // Unused time is kept for a burst, so that arrivals at random are not spaced out.
        let from = last.map_or(now - BURST, |last| last.max(now - BURST));
        let due = (from + self.each).min(now + WAIT_MAX);
        *last = Some(due);
        due.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }
}

/// Ten times what a refusal costs on a kept connection, about 25 us.
const EACH: Duration = Duration::from_micros(250);
/// What arrives while a handler keeps a worker busy is refused all at once.
const BURST: Duration = Duration::from_millis(100);
/// A client that has waited for so long is told in any case.
const WAIT_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{BURST, EACH, Pace, WAIT_MAX};

    #[test]
    fn a_rate_that_does_not_matter_is_told_at_once() {
        let pace = Pace::new(1);
        let mut now = Instant::now();
        for _ in 0..10_000 {
            // In bursts of a hundred, at four fifths of the rate.
            now += EACH * 125;
            assert!((0..100).all(|_| pace.wait(now).is_none()));
        }
    }

    #[test]
    fn clients_who_ask_at_once_are_slowed_down_to_the_rate() {
        let pace = Pace::new(2);
        let begin = Instant::now();
        // Each of 500 asks again when it has been told.
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
    fn nobody_waits_for_ever() {
        let pace = Pace::new(1);
        let now = Instant::now();
        let longest = (0..100_000).filter_map(|_| pace.wait(now)).max();
        assert_eq!(longest, Some(WAIT_MAX));
    }
}
