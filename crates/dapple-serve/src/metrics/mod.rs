//! Metrics of requests, for the metrics address.
//!
//! Each worker counts in its own cache lines; a reader adds them up.

pub mod admission;
pub mod connections;
pub mod exposition;
mod histogram;
pub mod listener;
pub mod process;
pub mod workers;

use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, StatusCode};

use self::exposition::{Exposition, Kind};
use self::histogram::Histogram;
use crate::http::Awaited;

/// The request counters since the start.
pub struct Metrics {
    /// One slot for each worker, and a last one for any other thread.
    slots: Box<[Slot]>,
    /// Connections that ended because their client took too long; they are too rare for slots.
    timed_out: [AtomicU64; AWAITED.len()],
}

/// How a request and its reply ended.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    /// `None` if the service never answered.
    pub status: Option<StatusCode>,
    /// The number of bytes of the reply's body that were sent.
    pub sent: u64,
    /// Whether the whole reply was sent.
    pub is_complete: bool,
    /// From the head of the request to the end of the reply.
    pub duration_us: u64,
    /// The worker on which it ended.
    pub worker: Option<usize>,
}

/// At least two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    /// By method and class of status.
    requests: [[AtomicU64; CLASSES.len()]; METHODS.len()],
    sent: AtomicU64,
    cut: AtomicU64,
    durations: Histogram,
}

/// The place of a method in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodIndex(usize);

impl MethodIndex {
    /// Unknown methods share one index; otherwise clients could create any number of them.
    pub fn of(method: &Method) -> MethodIndex {
        let known = METHODS.iter().position(|name| *name == method.as_str());
        MethodIndex(known.unwrap_or(METHODS.len() - 1))
    }

    /// The index of requests refused before their method is known.
    pub fn unknown() -> MethodIndex {
        MethodIndex(METHODS.len() - 1)
    }
}

impl Metrics {
    /// Creates counters for this number of workers.
    pub fn new(workers: usize) -> Metrics {
        Metrics { slots: (0..=workers).map(|_| Slot::default()).collect(), timed_out: Default::default() }
    }

    /// Counts a request after the end of its reply.
    pub fn count(&self, method: MethodIndex, ending: &Ending) {
        let others = self.slots.len() - 1;
        let slot = &self.slots[ending.worker.unwrap_or(others).min(others)];
        // The client of a request that was never answered has left.
        let status = ending.status.map_or(400, |status| status.as_u16());
        let class = usize::from(status / 100).clamp(1, CLASSES.len()) - 1;
        slot.requests[method.0][class].fetch_add(1, Ordering::Relaxed);
        slot.sent.fetch_add(ending.sent, Ordering::Relaxed);
        if !ending.is_complete {
            slot.cut.fetch_add(1, Ordering::Relaxed);
        }
        slot.durations.add(ending.duration_us);
    }

    /// Counts a connection that ends because its client took too long.
    pub fn timed_out(&self, awaited: Awaited) {
        if let Some(place) = AWAITED.iter().position(|(known, _)| *known == awaited) {
            self.timed_out[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes the metrics.
    pub fn write(&self, out: &mut Exposition) {
        out.family("dapple_http_requests_total", Kind::Counter, "Finished requests, by method and class of status.");
        for (row, method) in METHODS.iter().enumerate() {
            for (column, class) in CLASSES.iter().enumerate() {
                let count = self.sum(|slot| &slot.requests[row][column]);
                if count > 0 || (*method == "GET" && *class != "1xx") {
                    out.sample("dapple_http_requests_total", &[("method", method), ("code", class)], count as f64);
                }
            }
        }
        out.single(
            "dapple_http_response_body_bytes_total",
            Kind::Counter,
            "Bytes of reply bodies sent.",
            self.sum(|slot| &slot.sent) as f64,
        );
        out.single(
            "dapple_http_responses_cut_total",
            Kind::Counter,
            "Replies that ended before they were complete.",
            self.sum(|slot| &slot.cut) as f64,
        );
        let name = "dapple_connections_timed_out_total";
        out.family(name, Kind::Counter, "Connections ended because their client took too long.");
        for ((_, label), count) in AWAITED.iter().zip(&self.timed_out) {
            out.sample(name, &[("awaited", label)], count.load(Ordering::Relaxed) as f64);
        }
        let histograms: Vec<&Histogram> = self.slots.iter().map(|slot| &slot.durations).collect();
        histogram::write(
            &histograms,
            "dapple_http_request_duration_seconds",
            "Time from the head of a request to the last byte of its reply.",
            out,
        );
    }

    fn sum(&self, field: impl Fn(&Slot) -> &AtomicU64) -> u64 {
        self.slots.iter().map(|slot| field(slot).load(Ordering::Relaxed)).sum()
    }
}

/// The methods that have their own counter; the last one stands for all others.
const METHODS: [&str; 8] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "CONNECT", "other"];
const AWAITED: [(Awaited, &str); 3] =
    [(Awaited::NextRequest, "next_request"), (Awaited::Request, "request"), (Awaited::Response, "response")];
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
