//! The outcomes of requests.

use super::schedule::{Arrival, Phase};
use anyhow::{Result, ensure};
use std::time::Duration;

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) arrival: Arrival,
    /// The delay of the generator after the due time.
    pub(super) late: Duration,
    /// The time from the due time to its end.
    pub(super) took: Duration,
    pub(super) outcome: Outcome,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The right reply arrived, within the deadline or not.
    Right,
    /// The reply was 503.
    Refused {
        /// Whether it has `Retry-After`.
        retry_after: bool,
    },
    /// The client gave up.
    GivenUp,
    /// It failed.
    Failed(Failure),
}

/// The reason why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// There was no connection.
    Unconnected,
    /// The connection broke.
    Broken,
    /// The connection ended before the reply was complete.
    EndedEarly,
    /// The bytes are no reply.
    Malformed,
    /// A reply of another status.
    Status(u16),
    /// A reply to something else.
    WrongBody,
}

impl Failure {
    /// The name under which it is counted.
    pub(super) fn kind(self) -> String {
        match self {
            Failure::Unconnected => "unconnected".to_owned(),
            Failure::Broken => "broken".to_owned(),
            Failure::EndedEarly => "ended-early".to_owned(),
            Failure::Malformed => "malformed".to_owned(),
            Failure::Status(code) => format!("status-{code}"),
            Failure::WrongBody => "wrong-body".to_owned(),
        }
    }
}

/// The number of requests with each outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Outcomes {
    /// Right, within the deadline.
    pub(super) good: u64,
    /// Right, after the deadline.
    pub(super) late: u64,
    pub(super) refused: u64,
    pub(super) given_up: u64,
    pub(super) failed: u64,
}

impl Outcomes {
    pub(super) fn of<'a>(records: impl Iterator<Item = &'a Record>, deadline: Duration) -> Outcomes {
        let mut all = Outcomes::default();
        for record in records {
            let count = match record.outcome {
                Outcome::Right if record.took <= deadline => &mut all.good,
                Outcome::Right => &mut all.late,
                Outcome::Refused { .. } => &mut all.refused,
                Outcome::GivenUp => &mut all.given_up,
                Outcome::Failed(_) => &mut all.failed,
            };
            *count += 1;
        }
        all
    }

    /// All of them.
    pub(super) fn sum(&self) -> u64 {
        self.good + self.late + self.refused + self.given_up + self.failed
    }
}

/// All requests of a load: the arrivals of each phase, and the outcomes.
pub(super) struct Book {
    pub(super) phases: Vec<Phase>,
    arrivals: Vec<u64>,
    records: Vec<Record>,
}

impl Book {
    pub(super) fn new(phases: Vec<Phase>) -> Book {
        Book { arrivals: vec![0; phases.len()], phases, records: Vec::new() }
    }

    /// Records an arrival.
    pub(super) fn came(&mut self, arrival: &Arrival) {
        self.arrivals[arrival.phase] += 1;
    }

    /// Records an outcome.
    pub(super) fn ended(&mut self, record: Record) {
        self.records.push(record);
    }

    /// The number of arrivals in a phase.
    pub(super) fn arrivals(&self, phase: usize) -> u64 {
        self.arrivals[phase]
    }

    /// The requests that arrived in a phase.
    pub(super) fn of_phase(&self, phase: usize) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.arrival.phase == phase)
    }

    /// The requests that arrived in measured phases.
    pub(super) fn measured(&self) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(|record| self.phases[record.arrival.phase].measured)
    }

    /// All requests, measured or not.
    pub(super) fn all(&self) -> &[Record] {
        &self.records
    }

    /// Checks that each request has one outcome.
    pub(super) fn check(&self) -> Result<()> {
        for (phase, &came) in self.arrivals.iter().enumerate() {
            let ended = Outcomes::of(self.of_phase(phase), Duration::ZERO).sum();
            ensure!(came == ended, "{came} requests came in phase {phase}, and {ended} came to an end");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::clients::ALIKE;

    fn phase(measured: bool) -> Phase {
        Phase { secs: 1.0, rate_per_s: 1.0, costs_us: vec![1], clients: ALIKE, measured }
    }

    fn record(phase: usize, took_ms: u64, outcome: Outcome) -> Record {
        let arrival = Arrival { due: Duration::ZERO, cost_us: 1, phase, client: 0 };
        Record { arrival, late: Duration::ZERO, took: Duration::from_millis(took_ms), outcome }
    }

    #[test]
    fn each_request_is_counted_once() {
        let mut book = Book::new(vec![phase(false), phase(true)]);
        let ends = [
            (1, Outcome::Right),
            (100, Outcome::Right),
            (101, Outcome::Right),
            (3, Outcome::Refused { retry_after: true }),
            (1_000, Outcome::GivenUp),
            (5, Outcome::Failed(Failure::Broken)),
            (6, Outcome::Failed(Failure::Status(500))),
        ];
        for (took_ms, outcome) in ends {
            let record = record(1, took_ms, outcome);
            book.came(&record.arrival);
            book.ended(record);
        }
        book.came(&record(0, 0, Outcome::GivenUp).arrival);
        book.ended(record(0, 0, Outcome::GivenUp));
        let all = Outcomes::of(book.measured(), Duration::from_millis(100));
        assert_eq!(all, Outcomes { good: 2, late: 1, refused: 1, given_up: 1, failed: 2 });
        assert_eq!((all.sum(), book.arrivals(1), book.all().len()), (7, 7, 8));
        assert!(book.check().is_ok());
    }

    #[test]
    fn one_that_is_lost_or_doubled_is_noticed() {
        let mut book = Book::new(vec![phase(true)]);
        book.came(&record(0, 1, Outcome::Right).arrival);
        assert!(book.check().is_err_and(|error| error.to_string().contains("1 requests came in phase 0, and 0")));
        book.ended(record(0, 1, Outcome::Right));
        assert!(book.check().is_ok());
        book.ended(record(0, 1, Outcome::GivenUp));
        assert!(book.check().is_err());
    }
}
