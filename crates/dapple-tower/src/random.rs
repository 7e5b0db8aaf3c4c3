//! Random numbers for choices: well distributed, not secret.

/// SplitMix64 (Steele, Lea, Flood 2014): eight bytes of state, and the same numbers from the same
/// seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A different sequence each time.
    #[cfg(not(dapple_shuttle))]
    pub fn fresh() -> Random {
        Random::new(dapple_sched::environment::random())
    }

    /// The same sequence each time, because models must repeat.
    #[cfg(dapple_shuttle)]
    pub fn fresh() -> Random {
        Random::new(7)
    }

    #[allow(clippy::should_implement_trait, reason = "a generator without an end is not an iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, which must not be zero.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// At least 0 and less than 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_below_the_count_come_about_equally_often() {
        let mut random = Random::new(1);
        let mut seen = [0; 7];
        (0..70_000).for_each(|_| seen[random.below(7)] += 1);
        assert!(seen.iter().all(|count| (9_500..10_500).contains(count)), "{seen:?}");
        assert!((0..10_000).map(|_| random.unit()).all(|unit| (0.0..1.0).contains(&unit)));
    }
}
