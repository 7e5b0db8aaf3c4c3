//! The choice of the replica for the next request, without locks, and with the time as an argument.
//!
//! | state | gets | next |
//! |---|---|---|
//! | in service | requests | out, after failures in a row or one failure that says "down" |
//! | out until a time | nothing | on trial, by the first pick after its backoff ([`Probe::Trial`]); in, when it is reported healthy |
//! | on trial | one request | in after its success; out for longer after its failure; tried again if the request is canceled or takes very long |

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use dapple_sched::environment::HashMap;

use super::config::{Config, Load, Outcome, Probe};
use super::stats::{ReplicaState, ReplicaStats};
use crate::random::Random;
use crate::time::after;

/// Identifies a replica, also among successive ones with the same key.
pub(super) type Id = u64;

pub(super) struct Replicas<K, T> {
    config: Config,
    all: BTreeMap<Id, Replica<K, T>>,
    ids: HashMap<K, Id>,
    /// The replicas in service, in any order.
    serving: Vec<Id>,
    next_id: Id,
    /// The number of requests begun.
    begun: u64,
    random: Random,
}

struct Replica<K, T> {
    key: K,
    value: T,
    state: State,
    in_flight: usize,
    /// The number of its last request among all.
    last: u64,
    failures_in_a_row: u32,
    /// How often it went out since it was last healthy for long.
    times_out: u32,
    /// When it last came into service, and how long it was out before.
    joined: Instant,
    was_out_for: Duration,
    latency: Option<Fading>,
    /// Recent refusals, counted like requests in flight. Failures are not included: a replica
    /// avoided after a failure would never have enough of them in a row to be out.
    strain: Fading,
    successes: u64,
    failures: u64,
    refusals: u64,
}

#[derive(Clone, Copy)]
enum State {
    /// Its index in `serving`.
    Serving {
        place: usize,
    },
    Out {
        until: Instant,
    },
    /// When another trial may begin although this one has not ended.
    Trial {
        until: Instant,
    },
}

/// A number that decays with time.
#[derive(Clone, Copy)]
struct Fading {
    value: f64,
    at: Instant,
}

impl Fading {
    fn now(self, now: Instant, decay: Duration) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        if decay.is_zero() { 0.0 } else { self.value * (-passed / decay.as_secs_f64()).exp() }
    }
}

/// A picked replica, and whether the request is its trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) id: Id,
    pub(super) is_trial: bool,
}

/// A replica that could be chosen.
pub struct Candidate<'a, K, T> {
    pub(super) id: Id,
    /// Its key.
    pub key: &'a K,
    /// Its value.
    pub value: &'a T,
    /// Its number of requests in flight.
    pub in_flight: usize,
}

impl<K: Clone + Eq + Hash, T: Clone> Replicas<K, T> {
    pub(super) fn new(config: Config, random: Random) -> Replicas<K, T> {
        let config = Config { failures_max: config.failures_max.max(1), ..config };
        Replicas {
            config,
            all: BTreeMap::new(),
            ids: HashMap::default(),
            serving: Vec::new(),
            next_id: 0,
            begun: 0,
            random,
        }
    }

    /// Adds a replica, in service; returns the previous value of its key.
    pub(super) fn insert(&mut self, key: K, value: T, now: Instant) -> Option<T> {
        let before = self.remove(&key);
        let id = self.next_id;
        self.next_id += 1;
        let replica = Replica {
            key: key.clone(),
            value,
            state: State::Serving { place: self.serving.len() },
            in_flight: 0,
            last: 0,
            failures_in_a_row: 0,
            times_out: 0,
            joined: now,
            was_out_for: Duration::ZERO,
            latency: None,
            strain: Fading { value: 0.0, at: now },
            successes: 0,
            failures: 0,
            refusals: 0,
        };
        self.serving.push(id);
        self.all.insert(id, replica);
        self.ids.insert(key, id);
        before
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<T> {
        let id = self.ids.remove(key)?;
        self.stop_serving(id);
        self.all.remove(&id).map(|replica| replica.value)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.ids.keys()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = (Id, &K, &T)> {
        self.all.iter().map(|(id, replica)| (*id, &replica.key, &replica.value))
    }

    pub(super) fn value(&self, id: Id) -> Option<(&K, &T)> {
        self.all.get(&id).map(|replica| (&replica.key, &replica.value))
    }

    pub(super) fn check_timeout(&self) -> Duration {
        self.config.check_timeout
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn serving_len(&self) -> usize {
        self.serving.len()
    }

    /// Chooses a replica and begins the request.
    #[cfg(test)]
    pub(super) fn pick(&mut self, now: Instant, may: impl Fn(Candidate<K, T>) -> bool) -> Option<Choice> {
        let choice = self.choose(now, may)?;
        self.begin(choice, now).then_some(choice)
    }

    /// Chooses among the allowed replicas: one that is due for a trial; otherwise of two in
    /// service, drawn at random, the one with less load ("the power of two choices"). Begins
    /// nothing.
    pub(super) fn choose(&mut self, now: Instant, may: impl Fn(Candidate<K, T>) -> bool) -> Option<Choice> {
        match self.due(now, &may) {
            Some(id) => Some(Choice { id, is_trial: true }),
            None => self.lighter_of_two(now, &may).map(|id| Choice { id, is_trial: false }),
        }
    }

    /// Begins the chosen request; false if that replica is not available any more.
    pub(super) fn begin(&mut self, choice: Choice, now: Instant) -> bool {
        let again = after(now, self.config.backoff.max());
        let Some(replica) = self.all.get_mut(&choice.id) else { return false };
        match replica.state.until() {
            None if !choice.is_trial => {}
            Some(until) if choice.is_trial && until <= now => replica.state = State::Trial { until: again },
            _ => return false,
        }
        replica.in_flight += 1;
        self.begun += 1;
        replica.last = self.begun;
        true
    }

    /// When the next trial of an allowed replica is due; `None` if none is.
    pub(super) fn next_trial(&self, may: impl Fn(Id) -> bool) -> Option<Instant> {
        if self.config.probe != Probe::Trial || self.serving.len() == self.all.len() {
            return None;
        }
        let out = self.all.iter().filter(|(id, _)| may(**id));
        out.filter_map(|(_, replica)| replica.state.until()).min()
    }

    pub(super) fn is_serving(&self, id: Id) -> bool {
        self.all.get(&id).is_some_and(|replica| matches!(replica.state, State::Serving { .. }))
    }

    /// Whether a replica could be picked.
    pub(super) fn is_open(&self, id: Id, now: Instant) -> bool {
        let has_trials = self.config.probe == Probe::Trial;
        let is_due = |until| has_trials && until <= now;
        self.all.get(&id).is_some_and(|replica| replica.state.until().is_none_or(is_due))
    }

    /// Records the outcome of a request. True if waiting tasks should check again.
    pub(super) fn report(&mut self, choice: Choice, outcome: Outcome, latency: Duration, now: Instant) -> bool {
        let decay = self.config.decay;
        let Some(replica) = self.all.get_mut(&choice.id) else { return false };
        // Another request's trial, or a check, may have decided meanwhile.
        let on_trial = choice.is_trial && matches!(replica.state, State::Trial { .. });
        match outcome {
            Outcome::Success => replica.succeeded(latency, now, decay),
            Outcome::Failure | Outcome::Down => {
                replica.failures += 1;
                replica.failures_in_a_row = replica.failures_in_a_row.saturating_add(1);
            }
            Outcome::Refused => {
                replica.refusals += 1;
                replica.strained(now, decay);
            }
            Outcome::Canceled => {}
        }
        let is_serving = matches!(replica.state, State::Serving { .. });
        let too_many = replica.failures_in_a_row >= self.config.failures_max;
        match outcome {
            Outcome::Success | Outcome::Refused if on_trial => self.join(choice.id, now),
            Outcome::Failure | Outcome::Down if on_trial => self.leave(choice.id, now),
            Outcome::Canceled if on_trial => replica.state = State::Out { until: now },
            Outcome::Down if is_serving => self.leave(choice.id, now),
            Outcome::Failure if is_serving && too_many => self.leave(choice.id, now),
            _ => return false,
        }
        true
    }

    /// Ends the request: once for each pick.
    pub(super) fn end(&mut self, id: Id) {
        if let Some(replica) = self.all.get_mut(&id) {
            replica.in_flight -= 1;
        }
    }

    /// Records the result of a check. True if it changes the set in service.
    pub(super) fn set_health(&mut self, id: Id, is_well: bool, now: Instant) -> bool {
        let Some(replica) = self.all.get(&id) else { return false };
        let is_serving = matches!(replica.state, State::Serving { .. });
        match (is_well, is_serving) {
            (true, false) => self.join(id, now),
            (false, _) => self.leave(id, now),
            (true, true) => {}
        }
        is_well != is_serving
    }

    pub(super) fn id(&self, key: &K) -> Option<Id> {
        self.ids.get(key).copied()
    }

    pub(super) fn stats(&self, now: Instant) -> Vec<ReplicaStats<K>> {
        let stats = |replica: &Replica<K, T>| ReplicaStats {
            key: replica.key.clone(),
            state: match replica.state {
                State::Serving { .. } => ReplicaState::In,
                State::Out { until } => ReplicaState::Out { rest: until.saturating_duration_since(now) },
                State::Trial { .. } => ReplicaState::Trial,
            },
            in_flight: replica.in_flight,
            latency: replica.latency.map(|latency| Duration::from_secs_f64(latency.now(now, self.config.decay))),
            successes: replica.successes,
            failures: replica.failures,
            refusals: replica.refusals,
        };
        self.all.values().map(stats).collect()
    }

    fn due(&self, now: Instant, may: impl Fn(Candidate<K, T>) -> bool) -> Option<Id> {
        if self.config.probe != Probe::Trial || self.serving.len() == self.all.len() {
            return None;
        }
        let is_due = |replica: &Replica<K, T>| replica.state.until().is_some_and(|until| until <= now);
        let mut all = self.all.iter();
        all.find(|(id, replica)| is_due(replica) && may(replica.candidate(**id))).map(|(id, _)| *id)
    }

    fn lighter_of_two(&mut self, now: Instant, may: impl Fn(Candidate<K, T>) -> bool) -> Option<Id> {
        // Draw from all of them first: the two choices exist to avoid looking at each one.
        if let Some((one, other)) = two_of(&self.serving, &mut self.random)
            && self.is_allowed(one, &may)
            && self.is_allowed(other, &may)
        {
            return Some(self.lighter(one, other, now));
        }
        let allowed: Vec<Id> = self.serving.iter().copied().filter(|id| self.is_allowed(*id, &may)).collect();
        match two_of(&allowed, &mut self.random) {
            Some((one, other)) => Some(self.lighter(one, other, now)),
            None => allowed.first().copied(),
        }
    }

    fn is_allowed(&self, id: Id, may: impl Fn(Candidate<K, T>) -> bool) -> bool {
        may(self.all[&id].candidate(id))
    }

    fn lighter(&self, one: Id, other: Id, now: Instant) -> Id {
        let decay = self.config.decay;
        let (a, b) = (&self.all[&one], &self.all[&other]);
        // A small rest of strain must not decide for hours between two replicas with equal numbers
        // in flight.
        let strain =
            |replica: &Replica<K, T>| Some(replica.strain.now(now, decay)).filter(|strain| *strain >= STRAIN_MIN);
        let queue = |replica: &Replica<K, T>| replica.in_flight as f64 + strain(replica).unwrap_or(0.0);
        let (one_load, other_load) = match (self.config.load, a.latency, b.latency) {
            (Load::Latency, Some(of_a), Some(of_b)) => {
                ((queue(a) + 1.0) * of_a.now(now, decay), (queue(b) + 1.0) * of_b.now(now, decay))
            }
            _ => (queue(a), queue(b)),
        };
        match one_load.total_cmp(&other_load) {
            Ordering::Less => one,
            Ordering::Greater => other,
            // Prefer the replica that fails, whichever was drawn first. If two replicas took turns,
            // each failure would be retried at the other one. That one would then be the last used,
            // so that all requests would begin with the failing one.
            Ordering::Equal if a.failures_in_a_row != b.failures_in_a_row => one,
            // Equal replicas take turns.
            Ordering::Equal => {
                if b.last < a.last {
                    other
                } else {
                    one
                }
            }
        }
    }

    fn join(&mut self, id: Id, now: Instant) {
        let Some(replica) = self.all.get_mut(&id) else { return };
        replica.state = State::Serving { place: self.serving.len() };
        replica.failures_in_a_row = 0;
        replica.joined = now;
        self.serving.push(id);
    }

    fn leave(&mut self, id: Id, now: Instant) {
        self.stop_serving(id);
        let Some(replica) = self.all.get_mut(&id) else { return };
        let wait = self.config.backoff.random_wait(replica.times_out, &mut self.random);
        replica.times_out = replica.times_out.saturating_add(1);
        replica.was_out_for = wait;
        replica.state = State::Out { until: after(now, wait) };
    }

    fn stop_serving(&mut self, id: Id) {
        let Some(Replica { state: State::Serving { place }, .. }) = self.all.get(&id) else { return };
        let place = *place;
        self.serving.swap_remove(place);
        if let Some(moved) = self.serving.get(place).and_then(|moved| self.all.get_mut(moved)) {
            moved.state = State::Serving { place };
        }
    }
}

impl<K, T> Replica<K, T> {
    fn candidate(&self, id: Id) -> Candidate<'_, K, T> {
        Candidate { id, key: &self.key, value: &self.value, in_flight: self.in_flight }
    }

    fn succeeded(&mut self, latency: Duration, now: Instant, decay: Duration) {
        self.successes += 1;
        self.failures_in_a_row = 0;
        // A flapping replica must not begin with the shortest backoff each time.
        let is_serving = matches!(self.state, State::Serving { .. });
        if is_serving && now.saturating_duration_since(self.joined) >= self.was_out_for {
            self.times_out = 0;
        }
        let new = latency.as_secs_f64();
        let value = match self.latency {
            Some(old) => {
                let faded = old.now(now, decay);
                let weight = if old.value > 0.0 { faded / old.value } else { 0.0 };
                new.max(faded + new * (1.0 - weight))
            }
            None => new,
        };
        self.latency = Some(Fading { value, at: now });
    }

    fn strained(&mut self, now: Instant, decay: Duration) {
        self.strain = Fading { value: self.strain.now(now, decay) + 1.0, at: now };
    }
}

impl State {
    /// For a replica out of service: when it may be tried.
    fn until(self) -> Option<Instant> {
        match self {
            State::Serving { .. } => None,
            State::Out { until } | State::Trial { until } => Some(until),
        }
    }
}

/// A smaller strain counts as none.
const STRAIN_MIN: f64 = 0.01;

/// Two different ids at random.
fn two_of(ids: &[Id], random: &mut Random) -> Option<(Id, Id)> {
    if ids.len() < 2 {
        return None;
    }
    let one = random.below(ids.len());
    let other = random.below(ids.len() - 1);
    Some((ids[one], ids[other + usize::from(other >= one)]))
}
