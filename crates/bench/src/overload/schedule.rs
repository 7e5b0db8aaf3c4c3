//! The arrivals and costs of requests: a Poisson process, reproducible by its seed.

use super::clients::{Clients, times_of};
use crate::rng::{Rng, mix};
use std::time::Duration;

/// A phase of the load.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) secs: f64,
    pub(super) rate_per_s: f64,
    /// The possible costs of a request, in microseconds of CPU time; all are equally likely.
    pub(super) costs_us: Vec<u32>,
    /// The clients; each sends its share of the load.
    pub(super) clients: &'static [Clients],
    pub(super) measured: bool,
}

/// An arrival.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Arrival {
    /// When, counted from the beginning of the load.
    pub(super) due: Duration,
    pub(super) cost_us: u32,
    /// Index of the phase.
    pub(super) phase: usize,
    /// Index of its clients.
    pub(super) client: usize,
}

/// The arrivals of several phases, one after the other.
pub(super) struct Schedule {
    phases: Vec<Phase>,
    phase: usize,
    phase_begin_s: f64,
    at_s: f64,
    gaps: Rng,
    /// A separate random sequence, so that the arrival times are the same for all costs.
    costs: Rng,
    who: Rng,
}

impl Schedule {
    pub(super) fn new(phases: Vec<Phase>, seed: u64) -> Schedule {
        let (gaps, costs, who) = (Rng::new(seed), Rng::new(mix(seed)), Rng::new(mix(mix(seed))));
        Schedule { phases, phase: 0, phase_begin_s: 0.0, at_s: 0.0, gaps, costs, who }
    }
}

impl Iterator for Schedule {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let phase = self.phases.get(self.phase)?;
            let end_s = self.phase_begin_s + phase.secs;
            self.at_s += self.gaps.exponential() / phase.rate_per_s;
            if self.at_s < end_s {
                let cost_us = phase.costs_us[self.costs.index(phase.costs_us.len())];
                let client = pick(phase.clients, self.who.unit());
                return Some(Arrival { due: Duration::from_secs_f64(self.at_s), cost_us, phase: self.phase, client });
            }
            // A Poisson process has no memory, so an arrival after the phase's end is dropped.
            (self.at_s, self.phase_begin_s, self.phase) = (end_s, end_s, self.phase + 1);
        }
    }
}

/// Picks clients by a random number from 0 to 1.
fn pick(clients: &[Clients], number: f64) -> usize {
    let mut rest = number * times_of(clients);
    let is_found = |clients: &Clients| {
        rest -= clients.times;
        rest < 0.0
    };
    clients.iter().position(is_found).unwrap_or(clients.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overload::clients::{ALIKE, CLASSES};

    fn phase(secs: f64, rate_per_s: f64, costs_us: &[u32]) -> Phase {
        Phase { secs, rate_per_s, costs_us: costs_us.to_vec(), clients: ALIKE, measured: true }
    }

    #[test]
    fn each_client_has_its_share() {
        let arrivals: Vec<Arrival> =
            Schedule::new(vec![Phase { clients: CLASSES, ..phase(100.0, 500.0, &[1]) }], 5).collect();
        for (index, clients) in CLASSES.iter().enumerate() {
            let own = arrivals.iter().filter(|arrival| arrival.client == index).count() as f64;
            let share = own / arrivals.len() as f64;
            assert!((share - clients.times / 5.0).abs() < 0.01, "{}: {share}", clients.name);
        }
        assert_eq!((pick(CLASSES, 0.0), pick(CLASSES, 1.0), pick(ALIKE, 1.0)), (0, 3, 0));
    }

    /// Mean and variance of the arrivals in each tenth of a second.
    fn moments(arrivals: &[Arrival], tenths: usize) -> (f64, f64) {
        let mut counts = vec![0.0; tenths];
        arrivals.iter().for_each(|arrival| counts[(arrival.due.as_secs_f64() * 10.0) as usize] += 1.0);
        let mean = counts.iter().sum::<f64>() / tenths as f64;
        (mean, counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (tenths - 1) as f64)
    }

    #[test]
    fn numbers_are_as_poisson_has_them() {
        let arrivals: Vec<Arrival> = Schedule::new(vec![phase(1_000.0, 50.0, &[1])], 7).collect();
        let (mean, variance) = moments(&arrivals, 10_000);
        // Both are 5 by Poisson's law. With 10,000 samples their deviations are 0.022 and 0.074.
        assert!((mean - 5.0).abs() < 0.08, "{mean}");
        assert!((variance - 5.0).abs() < 0.25, "{variance}");
        assert!(arrivals.windows(2).all(|pair| pair[0].due <= pair[1].due));
    }

    #[test]
    fn a_seed_repeats_and_another_does_not() {
        let of = |seed| Schedule::new(vec![phase(1.0, 1_000.0, &[1, 2, 3])], seed).collect::<Vec<Arrival>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let dues = |costs: &[u32]| {
            Schedule::new(vec![phase(1.0, 100.0, costs)], 1).map(|arrival| arrival.due).collect::<Vec<Duration>>()
        };
        assert_eq!(dues(&[1]), dues(&[1, 2, 3]));
    }

    #[test]
    fn phases_keep_their_bounds_rates_and_costs() {
        let phases =
            vec![phase(100.0, 50.0, &[1_000, 5_000, 50_000]), phase(50.0, 500.0, &[7]), phase(1.0, 0.001, &[8])];
        let arrivals: Vec<Arrival> = Schedule::new(phases, 3).collect();
        let of = |index: usize| arrivals.iter().filter(move |arrival| arrival.phase == index);
        let bounds = [(0.0, 100.0), (100.0, 150.0)];
        for (index, (begin, end)) in bounds.into_iter().enumerate() {
            assert!(of(index).all(|arrival| (begin..end).contains(&arrival.due.as_secs_f64())));
        }
        assert!((of(0).count() as f64 / 5_000.0 - 1.0).abs() < 0.06, "{}", of(0).count());
        assert!((of(1).count() as f64 / 25_000.0 - 1.0).abs() < 0.03, "{}", of(1).count());
        for cost_us in [1_000, 5_000, 50_000] {
            let share = of(0).filter(|arrival| arrival.cost_us == cost_us).count() as f64 / of(0).count() as f64;
            assert!((share - 1.0 / 3.0).abs() < 0.03, "{cost_us}: {share}");
        }
        assert!(of(1).all(|arrival| arrival.cost_us == 7));
    }
}
