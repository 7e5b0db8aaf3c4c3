//! When requests are due.

use crate::rng::Rng;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// When requests are due, of all clients together.
pub(super) enum Pace {
    /// Closed loop: a client's next one as soon as it has its answer.
    Closed,
    /// Open loop: at moments of their own, whoever is free takes the next. One that comes late because nobody was free, or
    /// because the generator itself was, counts from when it was due.
    Open(Mutex<Arrivals>),
}

/// The moments of an open loop.
pub(super) struct Arrivals {
    next: Instant,
    mean: Duration,
    /// None for a constant rate.
    random: Option<Rng>,
}

impl Pace {
    /// So many a second from that moment on; at random moments (Poisson) or evenly spread.
    pub(super) fn open(rate_per_s: f64, constant: bool, begin: Instant) -> Pace {
        let random = (!constant).then(|| Rng::new(SEED));
        Pace::Open(Mutex::new(Arrivals { next: begin, mean: Duration::from_secs_f64(1.0 / rate_per_s), random }))
    }

    /// When the caller's next request is due; none where that is at once.
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
