//! One request to one replica, from the pick to its end.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use super::balancer::Shared;
use super::config::Outcome;
use super::replicas::Choice;
use crate::time::now;

/// A replica picked for a request. The request counts as in flight until this is dropped; report
/// its outcome here.
///
/// If it is dropped without a report, it counts as canceled, and the replica's health does not
/// change.
///
/// ```
/// use dapple_tower::balance::{Balancer, Config, Outcome};
///
/// let balancer = Balancer::new(Config::default());
/// balancer.insert("a", ());
/// let mut picked = balancer.pick()?;
/// picked.report(Outcome::Success); // the head of the reply is there: this is its latency
/// assert_eq!(balancer.stats()[0].in_flight, 1);
/// drop(picked); // and now its body
/// assert_eq!(balancer.stats()[0].in_flight, 0);
/// # Ok::<(), dapple_tower::Refused>(())
/// ```
#[must_use = "a dropped pick counts as a canceled request"]
pub struct Picked<K: Clone + Eq + Hash, T: Clone> {
    shared: Arc<Shared<K, T>>,
    choice: Choice,
    key: K,
    value: T,
    started: Instant,
    is_reported: bool,
}

impl<K: Clone + Eq + Hash, T: Clone> Picked<K, T> {
    pub(super) fn new(shared: Arc<Shared<K, T>>, choice: Choice, key: K, value: T, started: Instant) -> Picked<K, T> {
        Picked { shared, choice, key, value, started, is_reported: false }
    }

    /// The key of the replica.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The value of the replica.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Starts the measurement of latency now instead of at the pick.
    pub fn start(&mut self) {
        self.started = now();
    }

    /// Whether this request is the trial of a replica that was out.
    pub fn is_trial(&self) -> bool {
        self.choice.is_trial
    }

    /// Reports the outcome; the latency ends here. Only the first report counts.
    pub fn report(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.is_reported, true) {
            return;
        }
        let now = now();
        let latency = now.saturating_duration_since(self.started);
        self.shared.change(|replicas| ((), replicas.report(self.choice, outcome, latency, now)));
    }

    /// Reports a success, and ends the request.
    pub fn success(mut self) {
        self.report(Outcome::Success);
    }

    /// Reports a failure, and ends the request.
    pub fn failure(mut self) {
        self.report(Outcome::Failure);
    }

    /// Reports that the replica is down, and ends the request.
    pub fn down(mut self) {
        self.report(Outcome::Down);
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Drop for Picked<K, T> {
    fn drop(&mut self) {
        self.report(Outcome::Canceled);
        self.shared.end(self.choice);
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug, T: Clone> fmt::Debug for Picked<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Picked").field("key", &self.key).field("is_trial", &self.is_trial()).finish_non_exhaustive()
    }
}
