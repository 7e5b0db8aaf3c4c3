//! The kernel's figures for this process, and the check that its memory does not grow.

use crate::stats::median;
use anyhow::{Context, Result};
use std::fs;

/// Memory, threads and descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census {
    /// Resident, in KiB.
    pub(crate) resident_kib: u64,
    pub(crate) threads: u64,
    /// Open descriptors, including the one for this reading.
    pub(crate) descriptors: u64,
}

impl Census {
    pub(crate) fn take() -> Result<Census> {
        let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("/proc/self/status has no {name}"))
        };
        let descriptors = fs::read_dir("/proc/self/fd").context("cannot list /proc/self/fd")?.count() as u64;
        Ok(Census { resident_kib: field("VmRSS")?, threads: field("Threads")?, descriptors })
    }
}

/// Resident memory after each runtime, by quarters of the run.
#[derive(Default)]
pub(crate) struct Memory {
    samples_kib: Vec<u64>,
}

impl Memory {
    pub(crate) fn note(&mut self, census: &Census) {
        self.samples_kib.push(census.resident_kib);
    }

    /// The medians of the four quarters in MiB; `None` if there are too few samples.
    pub(crate) fn quarters_mib(&self) -> Option<[f64; 4]> {
        let count = self.samples_kib.len();
        let quarter = |index: usize| {
            let part = &self.samples_kib[count * index / 4..count * (index + 1) / 4];
            median(&part.iter().map(|kib| *kib as f64 / 1024.0).collect::<Vec<_>>())
        };
        (count >= SAMPLES_MIN).then(|| [0, 1, 2, 3].map(quarter))
    }

    /// The limit for the last quarter in MiB. The first one is warm-up, so the second is the base.
    pub(crate) fn limit_mib(quarters: &[f64; 4]) -> f64 {
        quarters[1] * (1.0 + MARGIN_SHARE) + MARGIN_MIB
    }
}

/// With fewer runtimes the figures prove nothing: the memory of each depends on its program.
const SAMPLES_MIN: usize = 16;

/// The growth allowed in the last quarter: this share,
const MARGIN_SHARE: f64 = 0.1;

/// and this much on top, in MiB.
const MARGIN_MIB: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(samples_mib: impl Iterator<Item = u64>) -> Memory {
        Memory { samples_kib: samples_mib.map(|mib| mib * 1024).collect() }
    }

    #[test]
    fn a_census_finds_its_fields() {
        let census = Census::take().unwrap();
        assert!(census.resident_kib > 100 && census.threads >= 1 && census.descriptors >= 3, "{census:?}");
    }

    #[test]
    fn quarters_are_medians() {
        assert!(memory(0..15).quarters_mib().is_none());
        let quarters = memory((0..40).map(|sample| if sample % 10 == 0 { 500 } else { 20 + sample / 10 }));
        assert_eq!(quarters.quarters_mib(), Some([20.0, 21.0, 22.0, 23.0]));
    }

    #[test]
    fn the_limit_is_a_share_and_a_constant() {
        assert!((Memory::limit_mib(&[0.0, 20.0, 0.0, 0.0]) - 30.0).abs() < 1e-9);
    }
}
