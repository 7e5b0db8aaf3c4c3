//! The wanted number of replicas. A plain state machine that gets the time and the load as
//! arguments.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// How many replicas a stage may have, and when it gets more or fewer.
///
/// The number grows by one, later by a quarter, while requests wait longer than
/// [`target_delay`](Self::target_delay) for all of [`up_after`](Self::up_after); shorter bursts do
/// not count. It shrinks by one when three quarters of the remaining width would have been enough
/// during all of [`down_after`](Self::down_after).
///
/// ```
/// use std::time::Duration;
/// use dapple_stage::Replication;
///
/// let replication = Replication { down_after: Duration::from_secs(60), ..Replication::between(1..=8) };
/// assert_eq!(replication.target_delay, Duration::from_millis(20));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// The lower bound, at least 1.
    pub min: usize,
    /// The upper bound.
    pub max: usize,
    /// How long a request may wait for service.
    pub target_delay: Duration,
    /// How long that must be exceeded.
    pub up_after: Duration,
    /// How long fewer must be enough.
    pub down_after: Duration,
    /// When to retry a replica that went out of service, died or could not be started. Doubles with
    /// each retry, up to 32 times.
    pub rejoin_after: Duration,
}

impl Replication {
    /// As many as the load needs, between two bounds: more after 100 ms above a wait of 20 ms,
    /// fewer after 10 s.
    pub fn between(bounds: RangeInclusive<usize>) -> Replication {
        let min = (*bounds.start()).max(1);
        Replication {
            min,
            max: (*bounds.end()).max(min),
            target_delay: Duration::from_millis(20),
            up_after: Duration::from_millis(100),
            down_after: Duration::from_secs(10),
            rejoin_after: Duration::from_secs(1),
        }
    }
}

impl From<RangeInclusive<usize>> for Replication {
    fn from(bounds: RangeInclusive<usize>) -> Replication {
        Replication::between(bounds)
    }
}

/// Computes the wanted number of replicas.
#[derive(Debug)]
pub(crate) struct Scale {
    rules: Replication,
    replicas: usize,
    over_since: Option<Instant>,
    ample_since: Option<Instant>,
}

impl Scale {
    pub(crate) fn new(rules: Replication) -> Scale {
        Scale { replicas: rules.min, rules, over_since: None, ample_since: None }
    }

    pub(crate) fn replicas(&self) -> usize {
        self.replicas
    }

    /// Whether the number is at its lower bound.
    pub(crate) fn is_least(&self) -> bool {
        self.replicas == self.rules.min
    }

    /// The last change has no effect yet: draw no conclusions before it has.
    pub(crate) fn hold(&mut self) {
        (self.over_since, self.ample_since) = (None, None);
    }

    /// `delay` is the wait of the oldest request; `in_service` is the number in service, with room
    /// for `width` at each replica; `others` replicas do not count for the bounds.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        delay: Duration,
        in_service: usize,
        others: usize,
        width: usize,
    ) -> usize {
        if delay > self.rules.target_delay {
            self.ample_since = None;
            let since = *self.over_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= self.rules.up_after {
                self.replicas = (self.replicas + (self.replicas / 4).max(1)).min(self.rules.max.max(self.rules.min));
                // Its effect must be visible before the next change.
                self.over_since = Some(now);
            }
            return self.replicas;
        }
        self.over_since = None;
        let enough = (self.replicas - 1 + others) * width * 3 / 4;
        if self.replicas > self.rules.min && in_service <= enough {
            let since = *self.ample_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= self.rules.down_after {
                self.replicas -= 1;
                self.ample_since = Some(now);
            }
        } else {
            self.ample_since = None;
        }
        self.replicas
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Offers work at a constant rate, in requests that each take one second of a replica with
    /// width 1. Returns the number of replicas in each of the last seconds.
    fn simulate(scale: &mut Scale, start: Instant, seconds: u32, per_second: f64) -> Vec<usize> {
        let (mut backlog, mut counts) = (0.0_f64, Vec::new());
        for step in 0..seconds * 40 {
            let now = start + Duration::from_millis(25) * step;
            let capacity = scale.replicas() as f64;
            backlog = (backlog + (per_second - capacity) / 40.0).max(0.0);
            let in_service = if backlog > 0.0 { scale.replicas() } else { per_second.ceil() as usize };
            scale.look(now, Duration::from_secs_f64(backlog / capacity), in_service.min(scale.replicas()), 0, 1);
            counts.push(scale.replicas());
        }
        counts.split_off(counts.len() / 2)
    }

    #[test]
    fn there_are_as_many_as_the_load_asks_for_and_no_more_when_it_is_gone() {
        let mut scale = Scale::new(Replication::between(1..=16));
        let start = Instant::now();
        let busy = simulate(&mut scale, start, 100, 5.5);
        assert!(busy.iter().all(|count| (6..=16).contains(count)), "{busy:?}");
        let idle = simulate(&mut scale, start + Duration::from_secs(1_000), 400, 0.0);
        assert_eq!(idle.last(), Some(&1));
    }

    #[test]
    fn a_short_burst_changes_nothing() {
        let mut scale = Scale::new(Replication::between(2..=8));
        let start = Instant::now();
        for n in 0..100 {
            let delay = Duration::from_millis(if n % 4 == 3 { 0 } else { 500 });
            scale.look(start + Duration::from_millis(25) * n, delay, 2, 0, 1);
        }
        assert_eq!(scale.replicas(), 2);
    }

    #[test]
    fn it_does_not_swing_under_a_steady_load() {
        let mut scale = Scale::new(Replication::between(1..=32));
        let start = Instant::now();
        simulate(&mut scale, start, 200, 6.5);
        let counts = simulate(&mut scale, start + Duration::from_secs(300), 200, 6.5);
        let changes = counts.windows(2).filter(|two| two[0] != two[1]).count();
        assert!(changes <= 20, "{changes} in 100 s");
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(
            min in 1usize..5, more in 0usize..9, looks in prop::collection::vec((0u64..5_000, 0u64..60, 0usize..40), 1..300),
        ) {
            let mut scale = Scale::new(Replication::between(min..=min + more));
            let mut now = Instant::now();
            for (step_ms, delay_ms, in_service) in looks {
                now += Duration::from_millis(step_ms);
                let before = scale.replicas();
                let after = scale.look(now, Duration::from_millis(delay_ms), in_service, 0, 3);
                prop_assert!((min..=min + more).contains(&after));
                prop_assert!(after + 1 >= before, "one less at a time");
            }
        }
    }
}
