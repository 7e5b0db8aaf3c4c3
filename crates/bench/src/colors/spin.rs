//! Work of a known length: a chain of dependent multiplications, calibrated once per bench and the
//! same for all peers.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

/// A spin of a fixed number of rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spin {
    rounds: u64,
}

impl Spin {
    /// No work at all.
    #[cfg(test)]
    pub(crate) fn none() -> Spin {
        Spin { rounds: 0 }
    }

    /// A spin of this many rounds.
    pub(crate) fn of_rounds(rounds: u64) -> Spin {
        Spin { rounds }
    }

    /// Does the work. It counts rounds and does not read the clock, which takes 20 ns and more, a
    /// fifth of the smallest work. Each spin starts from the result of the thread's last one: the
    /// processor overlaps independent ones, which made a spin of 100 ns take 50.
    #[inline]
    pub(crate) fn run(self) {
        if self.rounds > 0 {
            LAST.with(|last| {
                let mut value = last.get();
                for _ in 0..self.rounds {
                    value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                }
                last.set(black_box(value));
            });
        }
    }
}

thread_local! {
    static LAST: Cell<u64> = const { Cell::new(1) };
}

/// Rounds per nanosecond on this machine: the fastest of many short attempts, because other
/// programs only slow it down.
pub(crate) fn calibrate() -> f64 {
    const ROUNDS: u64 = 100_000;
    let spin = Spin { rounds: ROUNDS };
    let quickest = (0..200)
        .map(|_| {
            let start = Instant::now();
            spin.run();
            start.elapsed().as_nanos().max(1)
        })
        .min()
        .unwrap_or(1);
    ROUNDS as f64 / quickest as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibrated_work_takes_at_least_most_of_its_time() {
        let spin = Spin::of_rounds((calibrate() * 1_000_000.0) as u64);
        let quickest = (0..20)
            .map(|_| {
                let start = Instant::now();
                spin.run();
                start.elapsed().as_micros()
            })
            .min();
        // Checked only from below: a busy machine makes a spin longer, and nothing makes it
        // shorter.
        assert!(quickest.is_some_and(|micros| micros >= 500), "{quickest:?} us instead of 1000");
    }
}
