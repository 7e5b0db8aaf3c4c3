//! The costs of requests, learned from finished ones.

use std::time::Duration;

/// Learns costs: of each kind of request that comes often enough, and of all together.
///
/// Bounded: a fixed table. If two kinds collide, the one that came more often recently replaces the
/// other.
#[derive(Debug)]
pub(super) struct Costs {
    kinds: Box<[Kind]>,
    mean_ns: Option<f64>,
    /// The mean distance from the mean.
    spread_ns: f64,
    /// The highest cost so far, slowly forgotten.
    peak_ns: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    name: u64,
    mean_ns: f64,
    spread_ns: f64,
    /// The number of its samples, less the samples of kinds that collided with it; at zero it can
    /// be replaced.
    standing: u16,
}

/// The expected cost of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    /// The mean.
    pub(super) mean_ns: u64,
    /// A value that few requests exceed.
    pub(super) most_ns: u64,
}

impl Costs {
    pub(super) fn new() -> Costs {
        Costs { kinds: vec![Kind::default(); KINDS].into(), mean_ns: None, spread_ns: 0.0, peak_ns: 0.0 }
    }

    /// The expected cost of a request of this kind; `None` before the first end.
    pub(super) fn expect(&self, kind: u64) -> Option<Expected> {
        let known = &self.kinds[slot(kind)];
        let (mean, spread) = if known.standing > 0 && known.name == kind {
            (known.mean_ns, known.spread_ns)
        } else {
            (self.mean_ns?, self.spread_ns)
        };
        Some(Expected { mean_ns: mean as u64, most_ns: (mean + 2.0 * spread).min(self.peak_ns.max(mean)) as u64 })
    }

    /// The mean of all kinds, over the recent mix.
    pub(super) fn mean_ns(&self) -> Option<u64> {
        self.mean_ns.map(|mean| mean as u64)
    }

    /// Records that a request of this kind has cost this much.
    pub(super) fn learn(&mut self, kind: u64, cost: Duration) {
        let cost = cost.as_nanos() as f64;
        self.peak_ns = cost.max(self.peak_ns + OF_PEAK * (cost - self.peak_ns));
        match &mut self.mean_ns {
            Some(mean) => blend(mean, &mut self.spread_ns, cost, OF_ALL),
            None => self.mean_ns = Some(cost),
        }
        let known = &mut self.kinds[slot(kind)];
        if known.name == kind && known.standing > 0 {
            let weight = OF_KIND.max(1.0 / f64::from(known.standing + 1));
            blend(&mut known.mean_ns, &mut known.spread_ns, cost, weight);
            known.standing = (known.standing + 1).min(STANDING_MAX);
        } else if known.standing <= 1 {
            *known = Kind { name: kind, mean_ns: cost, spread_ns: 0.0, standing: 1 };
        } else {
            known.standing -= 1;
        }
    }
}

fn blend(mean: &mut f64, spread: &mut f64, sample: f64, weight: f64) {
    *spread += weight * ((sample - *mean).abs() - *spread);
    *mean += weight * (sample - *mean);
}

fn slot(kind: u64) -> usize {
    // The upper bits of a product depend on all bits of the kind.
    (kind.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
}

/// Ten bits of slots, 32 KB in all.
const KINDS: usize = 1 << 10;
/// A change of a kind's cost shows within some ten requests.
const OF_KIND: f64 = 0.2;
const OF_ALL: f64 = 0.05;
const OF_PEAK: f64 = 0.01;
const STANDING_MAX: u16 = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Costs;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn kinds_are_told_apart_and_an_unknown_one_is_as_the_rest() {
        let mut costs = Costs::new();
        assert_eq!(costs.expect(1), None);
        for _ in 0..200 {
            costs.learn(1, ms(1));
            costs.learn(2, ms(50));
        }
        assert_eq!(costs.expect(1).unwrap().mean_ns, 1_000_000);
        assert_eq!(costs.expect(2).unwrap().mean_ns, 50_000_000);
        let unknown = costs.expect(3).unwrap();
        assert!((20_000_000..31_000_000).contains(&unknown.mean_ns), "{unknown:?}");
        assert_eq!(unknown.most_ns, 50_000_000, "no more than the highest cost");
    }

    #[test]
    fn a_change_of_cost_is_learned_within_twenty_requests() {
        let mut costs = Costs::new();
        (0..100).for_each(|_| costs.learn(1, ms(5)));
        (0..20).for_each(|_| costs.learn(1, ms(20)));
        assert!(costs.expect(1).unwrap().mean_ns > 19_000_000);
    }

    #[test]
    fn ever_new_kinds_do_not_displace_one_that_comes_often() {
        let mut costs = Costs::new();
        for round in 0..100_000u64 {
            if round % 100 == 0 {
                costs.learn(7, ms(50));
            }
            costs.learn(1_000 + round, ms(1));
        }
        assert_eq!(costs.expect(7).unwrap().mean_ns, 50_000_000);
    }
}
