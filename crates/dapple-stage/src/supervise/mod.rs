//! Supervision: when a dead handler is replaced, and when the stage goes out of service.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dapple_tower::time::after;

/// When a handler that panicked is replaced, and when the stage goes out of service.
///
/// A handler dies when it panics, when its factory panics, or when its `poll_ready` fails. Its
/// request ends with it; the others stay in the queue. Its place in the stage's width rests:
/// [`backoff_min`](Self::backoff_min) after a first death, twice as long after each further one
/// without a success in between, at most [`backoff_max`](Self::backoff_max).
///
/// The stage goes out of service after [`deaths_max`](Self::deaths_max) deaths within
/// [`window`](Self::window), if these were at least the share [`share_min`](Self::share_min) of the
/// calls in that time. A few requests that always fail, among many that succeed, must not take the
/// stage away from the others.
///
/// ```
/// use std::time::Duration;
/// use dapple_stage::Supervision;
///
/// let supervision = Supervision { deaths_max: 3, window: Duration::from_secs(60), ..Supervision::default() };
/// assert_eq!(supervision.backoff_min, Duration::from_millis(10));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Supervision {
    /// The rest of a handler's place after a first death.
    pub backoff_min: Duration,
    /// The longest rest.
    pub backoff_max: Duration,
    /// This many deaths within the window take the stage out; 0 for never.
    pub deaths_max: u32,
    /// How long a death counts.
    pub window: Duration,
    /// From 0 to 1: deaths take the stage out only if they are at least this share of the calls
    /// within the window.
    pub share_min: f64,
}

impl Default for Supervision {
    /// 10 ms to 10 s; out after 10 deaths in 30 s that are a tenth or more of all.
    fn default() -> Supervision {
        Supervision {
            backoff_min: Duration::from_millis(10),
            backoff_max: Duration::from_secs(10),
            deaths_max: 10,
            window: Duration::from_secs(30),
            share_min: 0.1,
        }
    }
}

/// Counts deaths and decides their effect. A plain state machine that gets the time as an argument.
#[derive(Debug)]
pub(crate) struct Supervisor {
    rules: Supervision,
    deaths: Tally,
    successes: Tally,
    /// Deaths since the last success.
    in_a_row: u32,
    /// When each resting place may be used again.
    resting: Vec<Instant>,
    out: bool,
}

impl Supervisor {
    pub(crate) fn new(rules: Supervision) -> Supervisor {
        Supervisor {
            deaths: Tally::new(rules.window),
            successes: Tally::new(rules.window),
            in_a_row: 0,
            resting: Vec::new(),
            out: false,
            rules,
        }
    }

    /// Forgets the past, because another version has taken over.
    pub(crate) fn reset(&mut self) {
        *self = Supervisor::new(self.rules.clone());
    }

    pub(crate) fn is_out(&self) -> bool {
        self.out
    }

    /// How many places rest at `now`, and when the first of them ends.
    pub(crate) fn resting(&mut self, now: Instant) -> (usize, Option<Instant>) {
        self.resting.retain(|until| *until > now);
        (self.resting.len(), self.resting.iter().min().copied())
    }

    /// A request was served: the handler returned a response or an error.
    pub(crate) fn succeeded(&mut self, now: Instant) {
        self.in_a_row = 0;
        self.successes.count(now);
    }

    /// A handler has died. Returns true, once, when that was one too many.
    pub(crate) fn died(&mut self, now: Instant) -> bool {
        self.in_a_row = self.in_a_row.saturating_add(1);
        let backoff = 2_u32.checked_pow(self.in_a_row - 1).and_then(|times| self.rules.backoff_min.checked_mul(times));
        let backoff = backoff.unwrap_or(self.rules.backoff_max).min(self.rules.backoff_max);
        self.resting.push(after(now, backoff));
        if self.rules.deaths_max == 0 {
            return false;
        }
        self.deaths.count(now);
        let deaths = self.deaths.total(now);
        let all = deaths + self.successes.total(now);
        let too_many = deaths >= u64::from(self.rules.deaths_max) && deaths as f64 >= all as f64 * self.rules.share_min;
        let news = too_many && !self.out;
        self.out |= too_many;
        news
    }
}

/// Counts events within a window, by parts of it, to bound the memory.
#[derive(Debug)]
struct Tally {
    window: Duration,
    parts: VecDeque<(Instant, u64)>,
}

impl Tally {
    fn new(window: Duration) -> Tally {
        Tally { window, parts: VecDeque::new() }
    }

    fn count(&mut self, now: Instant) {
        self.forget(now);
        match self.parts.back_mut() {
            Some((since, count)) if now.saturating_duration_since(*since) < self.window / PARTS => *count += 1,
            _ => self.parts.push_back((now, 1)),
        }
    }

    fn total(&mut self, now: Instant) -> u64 {
        self.forget(now);
        self.parts.iter().map(|(_, count)| count).sum()
    }

    fn forget(&mut self, now: Instant) {
        while self.parts.front().is_some_and(|(then, _)| now.saturating_duration_since(*then) > self.window) {
            self.parts.pop_front();
        }
    }
}

/// The number of parts of a window.
const PARTS: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Supervision {
        Supervision { deaths_max: 5, window: Duration::from_secs(10), ..Supervision::default() }
    }

    #[test]
    fn it_rests_twice_as_long_each_time_up_to_a_limit() {
        let mut supervisor = Supervisor::new(Supervision { deaths_max: 0, ..rules() });
        let mut now = Instant::now();
        let mut rests = Vec::new();
        for _ in 0..13 {
            assert!(!supervisor.died(now));
            let (resting, until) = supervisor.resting(now);
            assert_eq!(resting, 1);
            rests.push((until.unwrap() - now).as_millis());
            now = until.unwrap();
            assert_eq!(supervisor.resting(now), (0, None), "the place is free at that very moment");
        }
        assert_eq!(rests, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_000, 10_000, 10_000]);
        supervisor.succeeded(now);
        supervisor.died(now);
        assert_eq!(supervisor.resting(now).1, Some(now + Duration::from_millis(10)));
    }

    #[test]
    fn no_rest_is_too_long() {
        let mut supervisor =
            Supervisor::new(Supervision { backoff_min: Duration::MAX, backoff_max: Duration::MAX, ..rules() });
        let now = Instant::now();
        assert!(!supervisor.died(now));
        assert_eq!(supervisor.resting(now + Duration::from_secs(1_000_000)).0, 1);
    }

    #[test]
    fn it_is_out_after_so_many_within_the_window() {
        let mut supervisor = Supervisor::new(rules());
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        // One in three seconds: never five in ten.
        assert!((0..30).all(|n| !supervisor.died(at(3 * n))));
        assert!(!supervisor.is_out());
        let late = at(200);
        assert!((0..4).all(|_| !supervisor.died(late)));
        assert!(supervisor.died(late), "the fifth");
        assert!(supervisor.is_out());
        assert!(!supervisor.died(late), "told once");
        supervisor.reset();
        assert!(!supervisor.is_out() && !supervisor.died(late));
    }

    #[test]
    fn a_few_deaths_among_many_successes_do_not_take_it_out() {
        let mut supervisor = Supervisor::new(rules());
        let start = Instant::now();
        for n in 0..10_000 {
            let now = start + Duration::from_millis(n);
            if n % 20 == 0 {
                assert!(!supervisor.died(now), "at {n}");
            } else {
                supervisor.succeeded(now);
            }
        }
        assert!(supervisor.successes.parts.len() <= PARTS as usize + 1, "{:?}", supervisor.successes);
        // One of two is too many.
        let out = (0..10_000).any(|n| {
            let now = start + Duration::from_millis(10_000 + n);
            supervisor.succeeded(now);
            supervisor.died(now)
        });
        assert!(out);
    }
}
