//! The times at which requests are due.

use crate::rng::Rng;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// The times at which the requests of all clients are due.
pub(super) enum Pace {
    /// Closed loop: a client's next one is due at its last answer.
    Closed,
    /// Open loop: requests have their own times, and any free client takes the next one. The
    /// latency of a late request counts from its due time, whether no client was free or the
    /// generator itself was late.
    Open(Mutex<Arrivals>),
}

/// The times of an open loop.
pub(super) struct Arrivals {
    next: Instant,
    mean: Duration,
    /// `None` for a constant rate.
    random: Option<Rng>,
}

impl Pace {
    /// This many a second from that time on; at random times (Poisson) or evenly spread.
    pub(super) fn open(rate_per_s: f64, constant: bool, begin: Instant) -> Pace {
        let random = (!constant).then(|| Rng::new(SEED));
        Pace::Open(Mutex::new(Arrivals { next: begin, mean: Duration::from_secs_f64(1.0 / rate_per_s), random }))
    }

    /// The time of the caller's next request; `None` for at once.
    pub(super) fn next(&self) -> Option<Instant> {
        match self {
            Pace::Closed => None,
            Pace::Open(arrivals) => Some(arrivals.lock().take()),
        }
    }
}

impl Arrivals {
    fn take(&mut self) -> Instant {
        let due = self.next;
        let gap = self.random.as_mut().map_or(1.0, Rng::exponential);
        self.next = due + self.mean.mul_f64(gap);
        due
    }
}

const SEED: u64 = 0x10ad;

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(constant: bool) -> Vec<f64> {
        let begin = Instant::now();
        let pace = Pace::open(1_000.0, constant, begin);
        let due: Vec<Instant> = (0..20_001).filter_map(|_| pace.next()).collect();
        assert_eq!(due[0], begin);
        due.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1_000.0).collect()
    }

    #[test]
    fn rates_are_kept() {
        assert!(gaps(true).iter().all(|gap| (gap - 1.0).abs() < 1e-3));
        let random = gaps(false);
        let mean = random.iter().sum::<f64>() / random.len() as f64;
        let square = random.iter().map(|gap| gap * gap).sum::<f64>() / random.len() as f64;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert!((square - 2.0).abs() < 0.15, "as an exponential distribution has it: {square}");
        assert!(Pace::Closed.next().is_none());
    }
}
