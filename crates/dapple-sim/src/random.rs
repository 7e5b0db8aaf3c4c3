//! The random numbers of a simulation.

use std::ops::Range;
use std::time::Duration;

/// splitmix64: small, fast, and the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A generator of its own, which does not depend on how this one is used later.
    pub(crate) fn fork(&mut self) -> Random {
        Random(self.next())
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Whether something happens that happens so many times in a million.
    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < per_million as usize
    }

    /// A time of this range; its start, if it is empty.
    pub(crate) fn within(&mut self, range: &Range<Duration>) -> Duration {
        let span = range.end.saturating_sub(range.start).as_nanos() as usize;
        range.start + Duration::from_nanos(if span == 0 { 0 } else { self.below(span) as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(1);
        let range = Duration::from_millis(1)..Duration::from_millis(3);
        for end in 1..1_000 {
            assert!(random.below(end) < end);
            assert!(range.contains(&random.within(&range)));
        }
        assert!(!random.chance(0) && random.chance(1_000_000));
        assert_eq!(random.within(&(range.end..range.end)), range.end);
    }
}
