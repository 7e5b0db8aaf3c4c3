//! The durations of requests, in fixed steps.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exposition::{Exposition, Kind};

/// One worker's counts.
#[derive(Default)]
pub(super) struct Histogram {
    /// The counts up to each bound, and beyond the last.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    /// Counts one duration.
    pub(super) fn add(&self, us: u64) {
        let step = BOUNDS_US.partition_point(|bound| *bound < us);
        self.counts[step].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }
}

/// Writes all workers' counts as one histogram, in seconds.
pub(super) fn write(histograms: &[&Histogram], name: &str, help: &str, out: &mut Exposition) {
    out.family(name, Kind::Histogram, help);
    let sum = |field: &dyn Fn(&Histogram) -> &AtomicU64| -> u64 {
        histograms.iter().map(|histogram| field(histogram).load(Ordering::Relaxed)).sum()
    };
    let mut below = 0;
    for (step, bound) in BOUNDS_US.iter().enumerate() {
        below += sum(&|histogram| &histogram.counts[step]);
        let bound = (*bound as f64 / 1e6).to_string();
        out.sample(&format!("{name}_bucket"), &[("le", &bound)], below as f64);
    }
    below += sum(&|histogram| &histogram.counts[BOUNDS_US.len()]);
    out.sample(&format!("{name}_bucket"), &[("le", "+Inf")], below as f64);
    out.sample(&format!("{name}_sum"), &[], sum(&|histogram| &histogram.sum_us) as f64 / 1e6);
    out.sample(&format!("{name}_count"), &[], below as f64);
}

/// The steps: 50 us to 30 s.
const BOUNDS_US: [u64; 16] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000,
    30_000_000,
];

#[cfg(test)]
mod tests {
    use super::{Histogram, write};
    use crate::metrics::exposition::Exposition;

    #[test]
    fn counts_are_cumulative_and_bounds_belong_to_their_step() {
        let (one, other) = (Histogram::default(), Histogram::default());
        one.add(50);
        one.add(51);
        other.add(99_000_000);
        let mut out = Exposition::new();
        write(&[&one, &other], "x_seconds", "X.", &mut out);
        let text = out.finish();
        for line in [
            "x_seconds_bucket{le=\"0.00005\"} 1\n",
            "x_seconds_bucket{le=\"0.0001\"} 2\n",
            "x_seconds_bucket{le=\"30\"} 2\n",
            "x_seconds_bucket{le=\"+Inf\"} 3\n",
            "x_seconds_sum 99.000101\n",
            "x_seconds_count 3\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
