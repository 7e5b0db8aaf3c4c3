//! The experiment of the documentation (`docs/overload.md`), simulated: random arrivals, workers
//! that see nothing while they run a handler, and a controller that knows none of this.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::config::{Config, Offer};
use super::controller::{Controller, State};

/// The offered load, from a time on.
#[derive(Clone)]
pub(super) struct Phase {
    pub(super) secs: f64,
    /// Random arrivals per second.
    pub(super) rate: f64,
    /// The costs of requests in milliseconds, equally likely and unknown to the server.
    pub(super) costs_ms: Vec<f64>,
    /// Whether the kind of a request determines its cost.
    pub(super) kinds_tell: bool,
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) offered: usize,
    /// Done within 100 ms of arrival.
    pub(super) good: usize,
    pub(super) accepted_ms: Vec<f64>,
    pub(super) refused_ms: Vec<f64>,
    pub(super) busy_secs: f64,
    pub(super) secs: f64,
}

impl Outcome {
    pub(super) fn goodput(&self) -> f64 {
        self.good as f64 / self.secs
    }

    pub(super) fn accepted_p99_ms(&mut self) -> f64 {
        quantile(&mut self.accepted_ms, 0.99)
    }

    pub(super) fn refused_most_ms(&self) -> f64 {
        self.refused_ms.iter().copied().fold(0.0, f64::max)
    }
}

/// Runs the phases one after the other; each gets its own outcome, by the time of arrival.
pub(super) fn run(workers: usize, seed: u64, phases: &[Phase]) -> Vec<Outcome> {
    let mut random = Random(seed);
    let mut arrivals = Vec::new();
    let mut begin = 0.0;
    for (index, phase) in phases.iter().enumerate() {
        let mut at = begin + random.exponential(phase.rate);
        while at < begin + phase.secs {
            let which = (random.uniform() * phase.costs_ms.len() as f64) as usize;
            let kind = if phase.kinds_tell { which as u64 + 1 } else { 0 };
            arrivals.push(Arrival { at, cost: phase.costs_ms[which] / 1_000.0, kind, phase: index });
            at += random.exponential(phase.rate);
        }
        begin += phase.secs;
    }
    Machine::new(workers, phases).run(arrivals.into())
}

#[derive(Clone, Copy)]
struct Arrival {
    at: f64,
    cost: f64,
    kind: u64,
    phase: usize,
}

struct Machine {
    epoch: Instant,
    controller: Controller,
    /// When each is free again, and its current request.
    workers: Vec<(f64, Option<(usize, Arrival)>)>,
    admitted: Vec<(usize, Arrival)>,
    outcomes: Vec<Outcome>,
}

impl Machine {
    fn new(workers: usize, phases: &[Phase]) -> Machine {
        Machine {
            epoch: Instant::now(),
            controller: Controller::new(Config::default(), workers),
            workers: vec![(0.0, None); workers],
            admitted: Vec::new(),
            outcomes: phases.iter().map(|phase| Outcome { secs: phase.secs, ..Outcome::default() }).collect(),
        }
    }

    fn run(mut self, mut arrivals: VecDeque<Arrival>) -> Vec<Outcome> {
        loop {
            // The first free worker takes in all arrivals so far; without work it waits for more.
            let next = arrivals.front().map_or(f64::INFINITY, |arrival| arrival.at);
            let idle_from = |&(at, busy): &(f64, Option<_>)| if busy.is_some() { at } else { at.max(next) };
            let (worker, mut now) = self
                .workers
                .iter()
                .map(idle_from)
                .enumerate()
                .min_by(|a, b| a.1.total_cmp(&b.1))
                .expect("there is at least one worker");
            if now == f64::INFINITY {
                return self.outcomes;
            }
            if let Some((key, arrival)) = self.workers[worker].1.take() {
                self.controller.finish(key, Duration::from_secs_f64(arrival.cost), self.at(now));
                let outcome = &mut self.outcomes[arrival.phase];
                let took_ms = (now - arrival.at) * 1_000.0;
                outcome.accepted_ms.push(took_ms);
                outcome.good += usize::from(took_ms <= 100.0);
                outcome.busy_secs += arrival.cost;
            }
            while arrivals.front().is_some_and(|arrival| arrival.at <= now) {
                let arrival = arrivals.pop_front().expect("it is there");
                now += LOOK_SECS;
                self.offer(arrival, now);
            }
            self.workers[worker].0 = now;
            self.dispatch(now);
        }
    }

    fn offer(&mut self, arrival: Arrival, now: f64) {
        let offer = Offer::arrived(self.at(arrival.at)).kind(arrival.kind);
        self.outcomes[arrival.phase].offered += 1;
        match self.controller.offer(offer, self.at(now)) {
            Ok(key) => self.admitted.push((key, arrival)),
            Err(_) => self.outcomes[arrival.phase].refused_ms.push((now - arrival.at) * 1_000.0),
        }
    }

    /// Starts granted requests on free workers.
    fn dispatch(&mut self, now: f64) {
        while self.controller.next_news().is_some() {}
        let mut waiting = Vec::new();
        for (key, arrival) in std::mem::take(&mut self.admitted) {
            let free = self.workers.iter().position(|&(at, busy)| busy.is_none() && at <= now);
            match (self.controller.state(key).clone(), free) {
                (State::Granted, Some(worker)) => self.workers[worker] = (now + arrival.cost, Some((key, arrival))),
                (State::Dropped(_), _) => {
                    self.outcomes[arrival.phase].refused_ms.push((now - arrival.at) * 1_000.0);
                    self.controller.end(key, self.at(now));
                }
                _ => waiting.push((key, arrival)),
            }
        }
        self.admitted = waiting;
    }

    fn at(&self, secs: f64) -> Instant {
        self.epoch + Duration::from_secs_f64(secs)
    }
}

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, rate: f64) -> f64 {
        -(1.0 - self.uniform()).ln() / rate
    }
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(((values.len() as f64 * q) as usize).min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// The time to accept a connection, read from it, decide, and refuse.
const LOOK_SECS: f64 = 40e-6;

mod tests {
    use super::{Outcome, Phase, Random, run};

    fn fixed(cost_ms: f64, load: f64, workers: usize, secs: f64) -> Phase {
        Phase { secs, rate: load * workers as f64 * 1_000.0 / cost_ms, costs_ms: vec![cost_ms], kinds_tell: false }
    }

    fn mixed(load: f64, workers: usize, kinds_tell: bool) -> Phase {
        let costs_ms = vec![1.0, 5.0, 50.0];
        Phase { secs: 60.0, rate: load * workers as f64 * 1_000.0 / (56.0 / 3.0), costs_ms, kinds_tell }
    }

    /// Replies in time, as a share of the workers' capacity.
    fn share(outcome: &Outcome, cost_ms: f64, workers: usize) -> f64 {
        outcome.goodput() * cost_ms / 1_000.0 / workers as f64
    }

    #[test]
    fn overload_leaves_goodput_and_delay_as_they_are() {
        for (workers, cost_ms) in [(1, 5.0), (1, 10.0), (1, 20.0), (2, 5.0), (2, 10.0), (2, 20.0), (8, 5.0)] {
            for load in [1.2, 2.0, 5.0] {
                for seed in 1..=3 {
                    let mut outcome = run(workers, seed, &[fixed(cost_ms, load, workers, 20.0)]).remove(0);
                    let (share, p99_ms) = (share(&outcome, cost_ms, workers), outcome.accepted_p99_ms());
                    let case = format!(
                        "{workers} workers, {cost_ms} ms, {load}x, seed {seed}: {share:.3}, p99 {p99_ms:.1} ms"
                    );
                    assert!(share > 0.93, "{case}");
                    assert!(p99_ms <= 100.0, "{case}");
                    let refused_ms = outcome.refused_most_ms();
                    assert!(refused_ms <= cost_ms + 5.0, "{case}: a refusal took {refused_ms:.1} ms");
                }
            }
        }
    }

    /// At 1.2 times the capacity, one worker has no request that can still be in time for a fifth
    /// of the time. It idles between the end of a handler and the next arrival if no request came
    /// in the first 50 of its 50 ms that it could still serve.
    #[test]
    fn handlers_of_half_the_target_are_served_as_well_as_arrivals_allow() {
        for (load, least) in [(1.2, 0.75), (2.0, 0.90), (5.0, 0.97)] {
            let mut outcome = run(1, 1, &[fixed(50.0, load, 1, 60.0)]).remove(0);
            assert!(share(&outcome, 50.0, 1) > least, "{load}x: {:.3}", share(&outcome, 50.0, 1));
            assert!(outcome.accepted_p99_ms() <= 100.0);
        }
    }

    /// The share of its time that one worker could use if it took every request that it can serve
    /// in time, to the microsecond, and refusals cost nothing.
    fn allowed_by_arrivals(cost_ms: f64, load: f64) -> f64 {
        let (mut random, mut now_ms, mut free_ms, mut good) = (Random(1), 0.0, 0.0_f64, 0.0);
        for _ in 0..200_000 {
            now_ms += random.exponential(load / cost_ms);
            let begin_ms = free_ms.max(now_ms);
            if begin_ms + cost_ms <= now_ms + 100.0 {
                free_ms = begin_ms + cost_ms;
                good += 1.0;
            }
        }
        good * cost_ms / now_ms
    }

    #[test]
    fn arrivals_allow_less_than_the_capacity_where_few_can_wait() {
        for (cost_ms, load, expected) in [(50.0, 1.2, 0.80), (50.0, 2.0, 0.94), (50.0, 5.0, 1.0), (20.0, 1.2, 0.96)] {
            let allowed = allowed_by_arrivals(cost_ms, load);
            assert!((allowed - expected).abs() < 0.01, "{cost_ms} ms, {load}x: {allowed:.3}");
            let outcome = run(1, 1, &[fixed(cost_ms, load, 1, 300.0)]).remove(0);
            let share = share(&outcome, cost_ms, 1);
            assert!(share > allowed - 0.04, "{cost_ms} ms, {load}x: {share:.3} of {allowed:.3}");
        }
    }

    #[test]
    fn below_capacity_almost_no_request_is_refused() {
        for workers in [1, 2] {
            let half = run(workers, 1, &[fixed(5.0, 0.5, workers, 60.0)]).remove(0);
            assert_eq!(half.refused_ms.len(), 0);
            let most = run(workers, 1, &[fixed(5.0, 0.9, workers, 60.0)]).remove(0);
            assert!(most.refused_ms.len() * 50 < most.offered, "{} of {}", most.refused_ms.len(), most.offered);
        }
    }

    #[test]
    fn mixed_costs_are_told_apart_by_kind() {
        // 53.6 a second and worker if all are served equally.
        for workers in [1, 2] {
            for load in [1.2, 2.0, 5.0] {
                let mut told = run(workers, 1, &[mixed(load, workers, true)]).remove(0);
                assert!(told.goodput() > 53.6 * workers as f64 * 0.95, "{load}x: {:.1}", told.goodput());
                assert!(told.accepted_p99_ms() <= 100.0, "{load}x: {:.1} ms", told.accepted_p99_ms());
            }
        }
    }

    #[test]
    fn a_cost_that_changes_in_mid_run_is_followed() {
        for (before_ms, after_ms) in [(5.0, 20.0), (20.0, 5.0), (1.0, 20.0), (20.0, 1.0)] {
            // The offered rate changes, too, so that the load is the same; the second phase begins
            // with the backlog of the first.
            let phases = [fixed(before_ms, 2.0, 1, 10.0), fixed(after_ms, 2.0, 1, 20.0)];
            let mut after = run(1, 1, &phases).remove(1);
            let share = share(&after, after_ms, 1);
            assert!(share > 0.90, "{before_ms} to {after_ms} ms: {share:.3}");
            assert!(
                after.accepted_p99_ms() <= 105.0,
                "{before_ms} to {after_ms} ms: {:.1} ms",
                after.accepted_p99_ms()
            );
        }
    }

    #[test]
    fn after_ten_seconds_at_five_times_the_capacity_the_first_second_is_as_before() {
        for workers in [1, 2] {
            let phases =
                [fixed(5.0, 5.0, workers, 10.0), fixed(5.0, 0.9, workers, 1.0), fixed(5.0, 0.9, workers, 10.0)];
            let first = &run(workers, 1, &phases)[1];
            assert!(first.good as f64 >= 0.95 * first.offered as f64, "{} of {}", first.good, first.offered);
        }
    }
}
