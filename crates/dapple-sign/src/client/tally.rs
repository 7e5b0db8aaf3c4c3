//! The outcomes of all tasks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::args::ClientArgs;
use super::latency::Latency;

/// Counts over all connections.
#[derive(Debug)]
pub(super) struct Tally {
    begin: Instant,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
pub(super) struct Counts {
    /// The end of the measured time.
    end: Instant,
    /// The latencies of signed tasks.
    pub(super) latency: Latency,
    /// Refused, with a time to retry.
    pub(super) refused: u64,
    /// Answered with an error.
    pub(super) failed: u64,
    /// Of these, because the log is full.
    pub(super) log_full: u64,
    /// Sent, but the connection ended before the answer: whether they were signed is unknown.
    pub(super) lost: u64,
    /// Answered with unexpected digests.
    pub(super) wrong: u64,
    /// Failed attempts to connect, and connections that ended with an error.
    pub(super) connection_errors: u64,
    /// The number signed in each second.
    each_s: Vec<u64>,
    /// The text of the last error.
    pub(super) last_error: Option<String>,
}

impl Tally {
    pub(super) fn new(begin: Instant, end: Instant) -> Tally {
        let counts = Counts {
            end,
            latency: Latency::new(),
            refused: 0,
            failed: 0,
            log_full: 0,
            lost: 0,
            wrong: 0,
            connection_errors: 0,
            each_s: Vec::new(),
            last_error: None,
        };
        Tally { begin, counts: Mutex::new(counts) }
    }

    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a signed task that was sent at `sent`. A task signed after the end counts in the
    /// latency only.
    pub(super) fn signed(&self, sent: Instant, now: Instant) {
        let mut counts = self.counts();
        let us = now.saturating_duration_since(sent).as_micros();
        counts.latency.add(u64::try_from(us).unwrap_or(u64::MAX));
        if now < counts.end {
            let second = now.saturating_duration_since(self.begin).as_secs() as usize;
            if counts.each_s.len() <= second {
                counts.each_s.resize(second + 1, 0);
            }
            counts.each_s[second] += 1;
        }
    }

    /// Ends the measured time early.
    pub(super) fn end_now(&self) {
        let mut counts = self.counts();
        counts.end = counts.end.min(Instant::now());
    }

    /// Counts an error of a connection.
    pub(super) fn connection_error(&self, text: String) {
        let mut counts = self.counts();
        counts.connection_errors += 1;
        counts.last_error = Some(text);
    }

    /// Whether there were answers, and all were right.
    pub(super) fn is_good(&self) -> bool {
        let counts = self.counts();
        counts.wrong == 0 && counts.latency.count() > 0
    }

    /// Prints progress, and returns the number signed; `before` is what the last call returned.
    pub(super) fn show_progress(&self, before: u64) -> u64 {
        let counts = self.counts();
        let signed = counts.latency.count();
        eprintln!(
            "{:>4} s  {:>8} signed/s  p99 {:>8} us  {} refused, {} errors",
            self.begin.elapsed().as_secs(),
            signed - before,
            counts.latency.quantile_us(0.99),
            counts.refused,
            counts.errors(),
        );
        signed
    }

    pub(super) fn to_json(&self, args: &ClientArgs) -> String {
        let counts = self.counts();
        let (latency, secs) = (&counts.latency, counts.secs(self.begin));
        let result = json!({
            "in_flight": args.in_flight,
            "connections": args.connections,
            "secs": secs,
            "task_bytes": args.task_bytes,
            "verified": args.verifies(),
            "signed": latency.count(),
            "throughput_per_s": counts.throughput(secs),
            "latency_us": {
                "mean": latency.mean_us(),
                "p50": latency.quantile_us(0.5),
                "p99": latency.quantile_us(0.99),
                "max": latency.max_us(),
            },
            "refused": counts.refused,
            "errors": counts.errors(),
            "failed": counts.failed,
            "log_full": counts.log_full,
            "lost": counts.lost,
            "wrong": counts.wrong,
            "connection_errors": counts.connection_errors,
            "last_error": counts.last_error,
            "signed_each_s": counts.each_s,
        });
        result.to_string()
    }

    pub(super) fn to_text(&self, args: &ClientArgs) -> String {
        let counts = self.counts();
        let (latency, secs) = (&counts.latency, counts.secs(self.begin));
        let ms = |us: f64| Duration::from_micros(us as u64).as_secs_f64() * 1e3;
        let verified = if args.verifies() { ", all digests compared" } else { "" };
        let last = counts.last_error.as_ref().map(|error| format!("\nlast error: {}", printable(error)));
        let (in_time, shown_secs) = (counts.signed_in_time(), (secs * 1e3).round() / 1e3);
        let under_way = match latency.count() - in_time {
            0 => String::new(),
            late => format!(", and {late} that were in flight then"),
        };
        let hint = if counts.wrong > 0 { OTHER_SECRETS } else { "" };
        format!(
            "{in_time} signed in {shown_secs} s, {:.1} a second{under_way}{verified}\n\
             latency: mean {:.3} ms, p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms\n\
             {} refused, {} failed, {} lost, {} wrong, {} errors of connections{hint}{}",
            counts.throughput(secs),
            ms(latency.mean_us()),
            ms(latency.quantile_us(0.5) as f64),
            ms(latency.quantile_us(0.99) as f64),
            ms(latency.max_us() as f64),
            counts.refused,
            counts.failed,
            counts.lost,
            counts.wrong,
            counts.connection_errors,
            last.unwrap_or_default(),
        )
    }
}

impl Counts {
    fn secs(&self, begin: Instant) -> f64 {
        self.end.saturating_duration_since(begin).as_secs_f64()
    }

    fn errors(&self) -> u64 {
        self.failed + self.lost + self.wrong + self.connection_errors
    }

    /// The tasks signed before the end, without those in flight then.
    fn signed_in_time(&self) -> u64 {
        self.each_s.iter().sum()
    }

    fn throughput(&self, secs: f64) -> f64 {
        self.signed_in_time() as f64 / secs
    }
}

/// Replaces control characters, which a terminal would obey, in a server's text.
fn printable(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { char::REPLACEMENT_CHARACTER } else { one }).collect()
}

const OTHER_SECRETS: &str = "\nwrong digests: the server may have other secrets; give the client the same files with \
    --first-secret and --second-secret";
