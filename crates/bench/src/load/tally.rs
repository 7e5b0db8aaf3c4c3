//! What is counted while the load runs.

use super::problem::Problem;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What all clients count. It is split, so that clients on different workers do not wait for one another.
pub(super) struct Tally {
    parts: Vec<Mutex<Part>>,
    clients: Vec<Client>,
    /// Only what happens while this holds is counted.
    pub(super) measuring: AtomicBool,
    /// The clients are to stop.
    pub(super) over: AtomicBool,
    origin: Instant,
    /// For whoever looks on: answers and errors since the beginning, measured or not.
    pub(super) answers: AtomicU64,
    pub(super) errors: AtomicU64,
    /// Bytes of answers that were not complete when they came.
    early_bytes: AtomicU64,
}

/// What one client counts.
#[derive(Default)]
struct Client {
    answers: AtomicU64,
    /// When the request was due that it waits for, in nanoseconds after the origin; zero where it waits for none.
    waits_since_ns: AtomicU64,
}

/// What the clients of one part count.
pub(super) struct Part {
    pub(super) latency_ns: Histogram<u64>,
    pub(super) connect_ns: Histogram<u64>,
    pub(super) late_ns: Histogram<u64>,
    pub(super) bytes: u64,
    pub(super) compared: u64,
    pub(super) errors: BTreeMap<String, u64>,
    /// The first error of all, in words.
    pub(super) example: Option<String>,
}

impl Tally {
    pub(super) fn new(clients: usize, parts: usize) -> Result<Tally> {
        let parts = (0..parts.max(1)).map(|_| Ok(Mutex::new(Part::new()?))).collect::<Result<_>>()?;
        Ok(Tally {
            parts,
            clients: (0..clients).map(|_| Client::default()).collect(),
            measuring: AtomicBool::new(false),
            over: AtomicBool::new(false),
            origin: Instant::now(),
            answers: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            early_bytes: AtomicU64::new(0),
        })
    }

    /// How many clients there are.
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// A client begins to wait for an answer that was due then.
    pub(super) fn waits(&self, client: usize, since: Instant) {
        let since_ns = since.saturating_duration_since(self.origin).as_nanos() as u64;
        self.clients[client].waits_since_ns.store(since_ns.max(1), Relaxed);
    }

    /// A part of an answer has come: a large one may take longer than is measured.
    pub(super) fn received(&self, bytes: u64) {
        if bytes > 0 && self.measuring.load(Relaxed) {
            self.early_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// A client has the answer, the last so many bytes of which have not been told of before. `compared` tells whether its body was compared with what it has to be.
    pub(super) fn answered(&self, client: usize, latency: Duration, bytes: u64, compared: bool) {
        self.clients[client].waits_since_ns.store(0, Relaxed);
        self.answers.fetch_add(1, Relaxed);
        if !self.measuring.load(Relaxed) {
            return;
        }
        self.clients[client].answers.fetch_add(1, Relaxed);
        let mut part = self.part(client).lock();
        part.latency_ns.saturating_record(latency.as_nanos() as u64);
        part.bytes += bytes;
        part.compared += u64::from(compared);
    }

    /// A connection was made.
    pub(super) fn connected(&self, client: usize, took: Duration) {
        if self.measuring.load(Relaxed) {
            self.part(client).lock().connect_ns.saturating_record(took.as_nanos() as u64);
        }
    }

    /// A free client sent a request so long after it was due.
    pub(super) fn sent_late(&self, client: usize, late: Duration) {
        if self.measuring.load(Relaxed) {
            self.part(client).lock().late_ns.saturating_record(late.as_nanos() as u64);
        }
    }

    /// A request failed. Errors count from the beginning on: none is excused by the warm-up.
    pub(super) fn failed(&self, client: usize, problem: &Problem) {
        self.clients[client].waits_since_ns.store(0, Relaxed);
        self.errors.fetch_add(1, Relaxed);
        let mut part = self.part(client).lock();
        *part.errors.entry(problem.kind().into_owned()).or_default() += 1;
        part.example.get_or_insert_with(|| problem.to_string());
    }

    /// The longest that a client has been waiting by now, and how many are.
    pub(super) fn waiting(&self) -> (Duration, usize) {
        let now_ns = self.origin.elapsed().as_nanos() as u64;
        let since = self.clients.iter().map(|client| client.waits_since_ns.load(Relaxed)).filter(|since| *since > 0);
        let waits: Vec<u64> = since.map(|since| now_ns.saturating_sub(since)).collect();
        (Duration::from_nanos(waits.iter().copied().max().unwrap_or(0)), waits.len())
    }

    /// All parts as one.
    pub(super) fn sum(&self) -> Result<Part> {
        let mut sum = Part::new()?;
        sum.bytes = self.early_bytes.load(Relaxed);
        for part in &self.parts {
            let part = part.lock();
            sum.latency_ns.add(&part.latency_ns)?;
            sum.connect_ns.add(&part.connect_ns)?;
            sum.late_ns.add(&part.late_ns)?;
            sum.bytes += part.bytes;
            sum.compared += part.compared;
            for (kind, count) in &part.errors {
                *sum.errors.entry(kind.clone()).or_default() += count;
            }
            sum.example = sum.example.or_else(|| part.example.clone());
        }
        Ok(sum)
    }

    /// Answers that are counted in the figures.
    pub(super) fn measured(&self) -> u64 {
        self.parts.iter().map(|part| part.lock().latency_ns.len()).sum()
    }

    /// Answers of each client.
    pub(super) fn per_client(&self) -> Vec<u64> {
        self.clients.iter().map(|client| client.answers.load(Relaxed)).collect()
    }

    fn part(&self, client: usize) -> &Mutex<Part> {
        &self.parts[client % self.parts.len()]
    }
}

impl Part {
    fn new() -> Result<Part> {
        let histogram = || Histogram::new_with_bounds(1_000, LATENCY_NS_MAX, 3).context("no histogram");
        Ok(Part {
            latency_ns: histogram()?,
            connect_ns: histogram()?,
            late_ns: histogram()?,
            bytes: 0,
            compared: 0,
            errors: BTreeMap::new(),
            example: None,
        })
    }
}

/// Jain's index of fairness: 1 where all have the same, 1/n where one of n has everything; NaN where nobody has anything.
pub(super) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Longer than any time-out.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert!((jain(&[1, 2, 3]) - 36.0 / 42.0).abs() < 1e-12);
        assert!(jain(&[0, 0]).is_nan() && jain(&[]).is_nan());
    }

    #[test]
    fn percentiles_are_told_to_a_thousandth() {
        let tally = Tally::new(3, 2).expect("histograms");
        tally.measuring.store(true, Relaxed);
        (1..=10_000).for_each(|us| tally.answered(us % 3, Duration::from_micros(us as u64), 10, us % 2 == 0));
        let sum = tally.sum().expect("alike histograms");
        for (quantile, due_us) in [(0.5, 5_000.0), (0.9, 9_000.0), (0.99, 9_900.0), (0.999, 9_990.0), (1.0, 10_000.0)] {
            let found_us = sum.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
            assert!((found_us / due_us - 1.0).abs() < 0.002, "{quantile}: {found_us}");
        }
        assert_eq!((sum.bytes, sum.compared), (100_000, 5_000));
        assert_eq!(tally.per_client().iter().sum::<u64>(), 10_000);
    }

    #[test]
    fn only_what_is_measured_counts_but_every_error_does() {
        let tally = Tally::new(2, 1).expect("histograms");
        tally.waits(1, Instant::now());
        assert_eq!(tally.waiting().1, 1);
        tally.answered(0, Duration::from_millis(1), 1, true);
        tally.failed(1, &Problem::Ended);
        tally.failed(1, &Problem::Status(503));
        let sum = tally.sum().expect("alike histograms");
        assert_eq!((sum.latency_ns.len(), tally.waiting().1), (0, 0));
        assert_eq!(sum.errors.get("ended-early"), Some(&1));
        assert_eq!(sum.errors.get("status-503"), Some(&1));
        assert!(sum.example.is_some_and(|text| text.contains("before the answer")));
    }
}
