//! One service of all replicas.

use std::fmt;
use std::hash::Hash;
use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::balancer::{Balancer, unavailable};
use super::classify::{ByError, Classify};
use super::future::ResponseFuture;
use super::picked::Picked;
use super::replicas::{Choice, Id};
use super::wait::TrialWait;
use crate::BoxError;
use crate::time::now;

/// Sends each request to one of many replicas, which are services: of two drawn at random, to the
/// one with less load.
///
/// `poll_ready` finds a replica that is ready, and waits while all in service are busy. With none
/// in service it is ready at once, and `call` returns [`Refused`](crate::Refused) with
/// [`Reason::Unavailable`](crate::Reason::Unavailable). A replica with a failing `poll_ready` is
/// out. [`Classify`] judges responses, by default [`ByError`].
///
/// Clones share the replicas, and each polls its own clones of their services. Put a service that
/// cannot be cloned into a [`Buffer`](crate::middleware::Buffer). tower's `Balance` has one owner,
/// so users put a buffer in front; this one needs none.
///
/// If it is dropped while it waits, it keeps no place; a replica that it had found ready is free
/// again.
///
/// ```
/// use std::convert::Infallible;
/// use dapple_tower::balance::{Balance, Balancer, Config};
/// use tower::{ServiceExt, service_fn};
///
/// let balancer = Balancer::new(Config::default());
/// balancer.insert("a", service_fn(async |n: u32| Ok::<_, Infallible>(n + 1)));
/// let balance = Balance::new(balancer.clone());
/// assert_eq!(dapple_sched::block_on(balance.oneshot(1)).unwrap(), 2);
/// assert_eq!(balancer.stats()[0].successes, 1);
/// ```
pub struct Balance<K: Clone + Eq + Hash, S: Clone, C = ByError> {
    balancer: Balancer<K, S>,
    classify: C,
    chosen: Option<(Picked<K, S>, S)>,
    /// Polled clones that were not ready: each may have a place in some waiting line.
    pending: Vec<(Id, S)>,
    place: TrialWait,
}

impl<K: Clone + Eq + Hash, S: Clone> Balance<K, S> {
    /// The service of a balancer's replicas.
    pub fn new(balancer: Balancer<K, S>) -> Balance<K, S> {
        Balance { balancer, classify: ByError, chosen: None, pending: Vec::new(), place: TrialWait::default() }
    }
}

impl<K: Clone + Eq + Hash, S: Clone, C> Balance<K, S, C> {
    /// Sets how a response is judged for its replica.
    pub fn classify<D>(self, classify: D) -> Balance<K, S, D> {
        Balance {
            balancer: self.balancer.clone(),
            classify,
            chosen: None,
            pending: Vec::new(),
            place: TrialWait::default(),
        }
    }

    /// The replicas.
    pub fn balancer(&self) -> &Balancer<K, S> {
        &self.balancer
    }

    fn poll_chosen<Req>(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Picked<K, S>, S)>>
    where
        S: Service<Req>,
    {
        let mut tried = Vec::new();
        loop {
            let Some(choice) = self.choose(&tried) else {
                match ready!(self.poll_more(&tried, cx)) {
                    true => continue,
                    false => return Poll::Ready(None),
                }
            };
            tried.push(choice.id);
            let Some(mut service) = self.service(choice.id) else { continue };
            match service.poll_ready(cx) {
                Poll::Ready(Ok(())) => match self.balancer.begin(choice) {
                    Some(picked) => return Poll::Ready(Some((picked, service))),
                    // It went out, or another request is its trial.
                    None => continue,
                },
                Poll::Ready(Err(_)) => {
                    if let Some(picked) = self.balancer.begin(choice) {
                        picked.down();
                    }
                }
                Poll::Pending => self.pending.push((choice.id, service)),
            }
        }
    }

    fn choose(&self, tried: &[Id]) -> Option<Choice> {
        self.balancer.shared.look(|replicas| replicas.choose(now(), |one| !tried.contains(&one.id)))
    }

    /// All available replicas were tried. Ready with true if there is a change by now, and with
    /// false if nothing can change any more.
    fn poll_more(&mut self, tried: &[Id], cx: &mut Context<'_>) -> Poll<bool> {
        let pending = &mut self.pending;
        let mut next = None;
        let found = self.balancer.shared.look_or_wait(&mut self.place.waiter, cx.waker(), |replicas| {
            if replicas.choose(now(), |one| !tried.contains(&one.id)).is_some() {
                return Some(true);
            }
            // A wait for a replica that has gone out would never end.
            pending.retain(|(id, _)| replicas.is_open(*id, now()));
            next = replicas.next_trial(|id| !tried.contains(&id));
            pending.is_empty().then_some(false)
        });
        match found {
            Some(found) => Poll::Ready(found),
            None => self.place.poll_trial(next, cx).map(|()| true),
        }
    }

    fn service(&mut self, id: Id) -> Option<S> {
        if let Some(at) = self.pending.iter().position(|(pending, _)| *pending == id) {
            return Some(self.pending.swap_remove(at).1);
        }
        self.balancer.shared.look(|replicas| replicas.value(id).map(|(_, value)| value.clone()))
    }
}

impl<K, S, C, Req> Service<Req> for Balance<K, S, C>
where
    K: Clone + Eq + Hash,
    S: Service<Req> + Clone,
    S::Error: Into<BoxError>,
    C: Classify<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future, Picked<K, S>, C>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.chosen.is_none() {
            self.chosen = ready!(self.poll_chosen(cx));
            // They return any permit granted meanwhile.
            self.pending.clear();
            self.balancer.shared.forget(&mut self.place.waiter);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        match self.chosen.take() {
            Some((mut picked, mut service)) => {
                picked.start();
                ResponseFuture::new(service.call(request), picked, self.classify.clone())
            }
            None => {
                let next = self.balancer.shared.look(|replicas| replicas.next_trial(|_| true));
                ResponseFuture::refused(unavailable(next, now()))
            }
        }
    }
}

/// Shares the replicas, but not a replica that the original has found ready.
impl<K: Clone + Eq + Hash, S: Clone, C: Clone> Clone for Balance<K, S, C> {
    fn clone(&self) -> Balance<K, S, C> {
        Balance::new(self.balancer.clone()).classify(self.classify.clone())
    }
}

impl<K: Clone + Eq + Hash, S: Clone, C> Drop for Balance<K, S, C> {
    fn drop(&mut self) {
        self.balancer.shared.forget(&mut self.place.waiter);
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug, S: Clone, C> fmt::Debug for Balance<K, S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balance").field("balancer", &self.balancer).finish_non_exhaustive()
    }
}
