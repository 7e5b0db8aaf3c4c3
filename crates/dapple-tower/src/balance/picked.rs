//! One request to one replica, from the pick to its end.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use super::balancer::Shared;
use super::config::Outcome;
use super::replicas::Choice;
use crate::time::now;

/// A replica that was picked for a request. It counts as in flight until this is dropped, and learns from what it is told.
///
/// Dropped without a word it counts as given up, which says nothing about the replica.
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
#[must_use = "dropped, the request counts as given up"]
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

    /// Which replica it is.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Its value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Measures the latency from now on, rather than from the pick.
    pub fn start(&mut self) {
        self.started = now();
    }

    /// Whether this request is the trial of a replica that was out.
    pub fn is_trial(&self) -> bool {
        self.choice.is_trial
    }

    /// Says how the request went; its latency ends here. Only what is said first counts.
    pub fn report(&mut self, outcome: Outcome) {
        if std::mem::replace(&mut self.is_reported, true) {
            return;
        }
        let now = now();
        let latency = now.saturating_duration_since(self.started);
        self.shared.change(|replicas| ((), replicas.report(self.choice, outcome, latency, now)));
    }

    /// It went well, and is over.
    pub fn success(mut self) {
        self.report(Outcome::Success);
    }

    /// It failed, and is over.
    pub fn failure(mut self) {
        self.report(Outcome::Failure);
    }

    /// The replica is not there, and the request is over.
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
