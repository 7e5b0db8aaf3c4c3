//! The counts of a running load.

use super::problem::Problem;
use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The counts of all clients. They are split, so that clients on different workers do not wait for
/// one another.
pub(super) struct Tally {
    parts: Vec<Mutex<Part>>,
    clients: Vec<Client>,
    /// Only events while this is true are counted.
    pub(super) measuring: AtomicBool,
    /// Tells the clients to stop.
    pub(super) over: AtomicBool,
    origin: Instant,
    /// For the progress line: answers and errors since the beginning, measured or not.
    pub(super) answers: AtomicU64,
    pub(super) errors: AtomicU64,
    /// Bytes of answers that were incomplete at that time.
    early_bytes: AtomicU64,
}

/// The counts of one client.
#[derive(Default)]
struct Client {
    answers: AtomicU64,
    /// The due time of the request it waits for, in nanoseconds after the origin; 0 if it waits for
    /// none.
    waits_since_ns: AtomicU64,
}

/// The counts of the clients in one part.
pub(super) struct Part {
    pub(super) latency_ns: Histogram<u64>,
    pub(super) connect_ns: Histogram<u64>,
    pub(super) late_ns: Histogram<u64>,
    pub(super) bytes: u64,
    pub(super) compared: u64,
    pub(super) errors: BTreeMap<String, u64>,
    /// The text of the first error.
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

    /// The number of clients.
    pub(super) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// A client starts to wait for an answer that was due at that time.
    pub(super) fn waits(&self, client: usize, since: Instant) {
        let since_ns = since.saturating_duration_since(self.origin).as_nanos() as u64;
        self.clients[client].waits_since_ns.store(since_ns.max(1), Relaxed);
    }

    /// A part of an answer has arrived: a large one may take longer than the measured time.
    pub(super) fn received(&self, bytes: u64) {
        if bytes > 0 && self.measuring.load(Relaxed) {
            self.early_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// A client has its answer, with its last bytes that were not reported before. `compared` says
    /// whether its body was compared with the expected one.
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

    /// A free client sent a request this long after it was due.
    pub(super) fn sent_late(&self, client: usize, late: Duration) {
        if self.measuring.load(Relaxed) {
            self.part(client).lock().late_ns.saturating_record(late.as_nanos() as u64);
        }
    }

    /// A request failed. Errors of the warm-up count too.
    pub(super) fn failed(&self, client: usize, problem: &Problem) {
        self.clients[client].waits_since_ns.store(0, Relaxed);
        self.errors.fetch_add(1, Relaxed);
        let mut part = self.part(client).lock();
        *part.errors.entry(problem.kind().into_owned()).or_default() += 1;
        part.example.get_or_insert_with(|| problem.to_string());
    }

    /// The longest current wait, and the number of waiting clients.
    pub(super) fn waiting(&self) -> (Duration, usize) {
        let now_ns = self.origin.elapsed().as_nanos() as u64;
        let since = self.clients.iter().map(|client| client.waits_since_ns.load(Relaxed)).filter(|since| *since > 0);
        let waits: Vec<u64> = since.map(|since| now_ns.saturating_sub(since)).collect();
        (Duration::from_nanos(waits.iter().copied().max().unwrap_or(0)), waits.len())
    }

    /// The sum of all parts.
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

    /// Answers that the figures include.
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

/// Jain's index of fairness: 1 if all have the same, 1/n if one of n has everything; NaN if none
/// has anything.
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
