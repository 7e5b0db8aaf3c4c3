//! Latencies, counted in steps of less than 2 %, so that the memory does not depend on their
//! number.

/// Counts of durations in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    counts: Vec<u64>,
    count: u64,
    sum_us: u64,
    max_us: u64,
}

impl Latency {
    pub(super) fn new() -> Latency {
        Latency { counts: vec![0; step(u64::MAX) + 1], count: 0, sum_us: 0, max_us: 0 }
    }

    pub(super) fn add(&mut self, us: u64) {
        self.counts[step(us)] += 1;
        self.count += 1;
        self.sum_us += us;
        self.max_us = self.max_us.max(us);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn mean_us(&self) -> f64 {
        self.sum_us as f64 / self.count.max(1) as f64
    }

    pub(super) fn max_us(&self) -> u64 {
        self.max_us
    }

    /// The duration that this part of all counts does not exceed; 0 if there are none.
    pub(super) fn quantile_us(&self, part: f64) -> u64 {
        let wanted = (part * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let found = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        found.map_or(self.max_us, |step| highest(step).min(self.max_us))
    }
}

/// Below 64 us each microsecond has its own step; above, each power of two has 64 steps.
fn step(us: u64) -> usize {
    let shift = (u64::BITS - us.leading_zeros()).saturating_sub(BITS + 1);
    ((u64::from(shift) << BITS) + (us >> shift)) as usize
}

/// The longest duration in a step.
fn highest(step: usize) -> u64 {
    let (step, width) = (step as u64, 1 << BITS);
    if step < 2 * width {
        return step;
    }
    let shift = step / width - 1;
    let mantissa = step - shift * width;
    (((u128::from(mantissa) + 1) << shift) - 1).min(u128::from(u64::MAX)) as u64
}

const BITS: u32 = 6;

#[cfg(test)]
mod tests {
    use super::{Latency, highest, step};

    #[test]
    fn quantiles_are_right_to_two_percent() {
        let mut latency = Latency::new();
        assert_eq!(latency.quantile_us(0.5), 0);
        (1..=10_000).for_each(|us| latency.add(us));
        for (part, exact) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0), (0.0, 1.0)] {
            let found = latency.quantile_us(part) as f64;
            assert!((found - exact).abs() <= exact * 0.02, "{part}: {found}");
        }
        assert_eq!((latency.count(), latency.max_us(), latency.mean_us()), (10_000, 10_000, 5_000.5));
    }

    #[test]
    fn each_duration_is_in_its_step() {
        for us in (0..5_000).chain([1 << 40, (1 << 40) + 12_345, u64::MAX - 1, u64::MAX]) {
            let step = step(us);
            assert!(us <= highest(step), "{us}");
            assert!(step == 0 || us > highest(step - 1), "{us}");
        }
    }
}
