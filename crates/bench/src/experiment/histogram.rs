//! Latencies, as a distribution.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts latencies in steps of 3 %. Several threads may add to it.
pub(crate) struct Histogram {
    counts: Vec<AtomicU64>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: (0..64 * STEPS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Histogram {
    pub(crate) fn add(&self, ns: u64) {
        self.counts[step(ns)].fetch_add(1, Relaxed);
    }

    /// The number of latencies.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Copies the counts of the other one.
    pub(crate) fn copy_from(&self, other: &Histogram) {
        for (own, other) in self.counts.iter().zip(&other.counts) {
            own.store(other.load(Relaxed), Relaxed);
        }
    }

    pub(crate) fn clear(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// The latency that this share did not exceed, in nanoseconds; NaN if there are none.
    pub(crate) fn quantile_ns(&self, share: f64) -> f64 {
        let due = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += count.load(Relaxed);
            seen >= due
        });
        reached.map_or(f64::NAN, |step| lowest_of(step) as f64)
    }
}

/// Steps per doubling.
const STEPS: usize = 32;

fn step(ns: u64) -> usize {
    let ns = ns.max(STEPS as u64);
    let doubling = ns.ilog2() as usize;
    let within = (ns >> (doubling - STEPS.ilog2() as usize)) as usize & (STEPS - 1);
    doubling * STEPS + within
}

fn lowest_of(step: usize) -> u64 {
    let (doubling, within) = (step / STEPS, (step % STEPS) as u64);
    (STEPS as u64 + within) << (doubling - STEPS.ilog2() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_told_to_three_percent() {
        let latencies = Histogram::default();
        assert!(latencies.quantile_ns(0.5).is_nan());
        (1..=1_000).for_each(|us| latencies.add(us * 1_000));
        for (share, due) in [(0.5, 500e3), (0.99, 990e3), (1.0, 1e6)] {
            let found = latencies.quantile_ns(share);
            assert!((due * 0.96..=due).contains(&found), "{share}: {found}");
        }
        latencies.clear();
        assert_eq!(latencies.count(), 0);
    }
}
