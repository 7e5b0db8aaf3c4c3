//! The measurement of a server's capacity: a few clients that send the next request at each answer.

use super::generator::Course;
use super::record::{Outcome, Record};
use super::schedule::Arrival;
use anyhow::{Context, Result, ensure};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A course of clients that use the costs in turn.
pub(super) struct ClosedLoop {
    costs_us: Vec<u32>,
    taken: usize,
    /// The times at which idle clients send again.
    due: BinaryHeap<Reverse<Duration>>,
    end: Duration,
    /// The number of right replies.
    right: usize,
    records: Vec<Record>,
}

impl ClosedLoop {
    pub(super) fn new(clients: usize, costs_us: &[u32], length: Duration) -> ClosedLoop {
        let due = (0..clients).map(|_| Reverse(Duration::ZERO)).collect();
        ClosedLoop { costs_us: costs_us.to_vec(), taken: 0, due, end: length, right: 0, records: Vec::new() }
    }

    /// Requests a second, if all costs are equally frequent, from the work done after `warm_up`.
    ///
    /// It counts the work between the first and the last reply, not the replies: otherwise the
    /// result would depend on which of the unequal requests fell into this short time.
    pub(super) fn capacity_per_s(&self, warm_up: Duration) -> Result<f64> {
        if let Some(record) = self.records.iter().find(|record| matches!(record.outcome, Outcome::Failed(_))) {
            let outcome = record.outcome;
            anyhow::bail!("a request failed before there was any overload: {outcome:?}");
        }
        let replies = self.records.iter().filter(|record| record.outcome == Outcome::Right);
        let at = |record: &Record| record.arrival.due + record.took;
        let mut replies: Vec<&Record> = replies.collect();
        replies.sort_by_key(|record| at(record));
        let seen = |record: &&Record| at(record) >= warm_up && at(record) <= self.end;
        // On a busy machine there may be hardly any.
        if replies.iter().copied().filter(seen).count() >= REPLIES_MIN {
            replies.retain(seen);
        }
        let (Some(first), Some(last)) = (replies.first(), replies.last()) else {
            anyhow::bail!("the server answered nothing while its capacity was measured: pass more --secs")
        };
        let secs = (at(last) - at(first)).as_secs_f64();
        ensure!(secs > 0.0, "the server answered once while its capacity was measured: pass more --secs");
        let work_us: f64 = replies[1..].iter().map(|record| f64::from(record.arrival.cost_us)).sum();
        let mean_us = self.costs_us.iter().copied().map(f64::from).sum::<f64>() / self.costs_us.len() as f64;
        Ok(work_us / mean_us / secs)
    }

    /// The CPU time of all right replies.
    pub(super) fn work(&self) -> Duration {
        let replies = self.records.iter().filter(|record| record.outcome == Outcome::Right);
        replies.map(|record| Duration::from_micros(u64::from(record.arrival.cost_us))).sum()
    }
}

impl Course for ClosedLoop {
    fn next_due(&mut self) -> Option<Duration> {
        let due = self.due.peek().map(|Reverse(due)| *due)?;
        (due < self.end || (self.right < REPLIES_MIN && due < LENGTH_MAX)).then_some(due)
    }

    fn take(&mut self) -> Result<Arrival> {
        let Reverse(due) = self.due.pop().context("no request is due")?;
        let cost_us = self.costs_us[self.taken % self.costs_us.len()];
        self.taken += 1;
        Ok(Arrival { due, cost_us, phase: 0, client: 0 })
    }

    fn ended(&mut self, record: Record) {
        self.right += usize::from(record.outcome == Outcome::Right);
        // A refused client pauses, so that refusals do not use up the measured time.
        let rest = if record.outcome == Outcome::Right { Duration::ZERO } else { REST };
        self.due.push(Reverse(record.arrival.due + record.took + rest));
        self.records.push(record);
    }
}

/// With fewer replies there is no result.
const REPLIES_MIN: usize = 3;

/// The longest wait for them.
const LENGTH_MAX: Duration = Duration::from_secs(20);

/// Longer than a refusal takes, shorter than a queue.
const REST: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a server of one worker without overhead answer the course.
    fn answered(costs_us: &[u32], length_ms: u64) -> ClosedLoop {
        let mut course = ClosedLoop::new(2, costs_us, Duration::from_millis(length_ms));
        let mut free = Duration::ZERO;
        while course.next_due().is_some() {
            let arrival = course.take().expect("it is due");
            free = free.max(arrival.due) + Duration::from_micros(u64::from(arrival.cost_us));
            let took = free - arrival.due;
            course.ended(Record { arrival, late: Duration::ZERO, took, outcome: Outcome::Right });
        }
        course
    }

    #[test]
    fn capacity_is_what_the_work_allows() {
        for (costs_us, capacity) in [(&[5_000][..], 200.0), (&[50_000], 20.0), (&[1_000, 5_000, 50_000], 3e6 / 56e3)] {
            let course = answered(costs_us, 777);
            let found = course.capacity_per_s(Duration::from_millis(100)).expect("there are replies");
            assert!((found / capacity - 1.0).abs() < 1e-6, "{costs_us:?}: {found}");
            assert!(course.work() >= Duration::from_millis(770));
        }
    }

    #[test]
    fn a_few_replies_are_waited_for() {
        let course = answered(&[50_000], 10);
        assert!(course.capacity_per_s(Duration::from_millis(5)).is_ok_and(|found| (found - 20.0).abs() < 1e-6));
    }

    #[test]
    fn a_server_without_right_answers_has_no_capacity() {
        let mut course = ClosedLoop::new(1, &[1], Duration::from_millis(10));
        assert!(course.capacity_per_s(Duration::ZERO).is_err());
        let arrival = course.take().expect("it is due");
        let refused = Outcome::Refused { retry_after: false };
        let record = Record { arrival, late: Duration::ZERO, took: Duration::from_millis(1), outcome: refused };
        course.ended(record);
        assert_eq!(course.next_due(), Some(Duration::from_millis(1) + REST));
        assert!(course.capacity_per_s(Duration::ZERO).is_err());
        course.ended(Record { outcome: Outcome::Failed(crate::overload::record::Failure::Broken), ..record });
        assert!(course.capacity_per_s(Duration::ZERO).is_err_and(|error| error.to_string().contains("Broken")));
    }
}
