//! Copies of one stage, and the choice among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dapple_tower::random::Random;

/// Chooses the one of two random replicas that has fewer requests. Unlike those of a
/// [`Balancer`](dapple_tower::balance::Balancer), they neither come nor fail.
pub(crate) struct Replicas<S> {
    replicas: Vec<Replica<S>>,
    random: Random,
}

struct Replica<S> {
    service: S,
    requests: Arc<AtomicUsize>,
}

/// A request's slot at a replica.
pub(crate) struct ReplicaPermit(Arc<AtomicUsize>);

impl Drop for ReplicaPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S> Replicas<S> {
    /// At least one.
    pub(crate) fn new(services: Vec<S>) -> Replicas<S> {
        let replicas = services.into_iter().map(|service| Replica { service, requests: Arc::default() }).collect();
        Replicas { replicas, random: Random::fresh() }
    }

    /// The number of replicas, and of their requests.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.replicas.len(), self.replicas.iter().map(Replica::requests).sum())
    }

    pub(crate) fn choose(&mut self) -> (S, ReplicaPermit)
    where
        S: Clone,
    {
        let [one, other] = [(); 2].map(|()| self.random.below(self.replicas.len()));
        let at = if self.replicas[one].requests() <= self.replicas[other].requests() { one } else { other };
        let chosen = &self.replicas[at];
        chosen.requests.fetch_add(1, Ordering::Relaxed);
        (chosen.service.clone(), ReplicaPermit(chosen.requests.clone()))
    }
}

impl<S> Replica<S> {
    /// Relaxed: a hint.
    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Replicas;

    #[test]
    fn requests_spread_over_all_replicas() {
        let mut replicas = Replicas::new(vec![0, 1, 2, 3]);
        let mut counts = [0; 4];
        let places: Vec<_> = (0..400)
            .map(|_| {
                let (service, place) = replicas.choose();
                counts[service] += 1;
                place
            })
            .collect();
        assert!(counts.iter().all(|count| (80..=120).contains(count)), "{counts:?}");
        assert_eq!(replicas.load(), (4, 400));
        drop(places);
        assert_eq!(replicas.load(), (4, 0));
    }
}
