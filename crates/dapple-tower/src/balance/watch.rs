//! Changes of replicas from outside: discovery and health checks.

use std::any::Any;
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use dapple_sched::foreign::{contain, discard};
use futures_core::Stream;

use super::balancer::Balancer;
use super::replicas::Id;
use crate::time::{Sleep, now};

/// A change of the replicas, as in tower's `Discover`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<K, T> {
    /// Adds a replica, or replaces the one with this key.
    Insert(K, T),
    /// Removes a replica.
    Remove(K),
}

impl<K: Clone + Eq + Hash, T: Clone> Balancer<K, T> {
    /// Adds and removes replicas as a stream says, until it ends, or has a change after all other
    /// handles of the balancer were dropped. Spawn it, on any executor.
    ///
    /// Cancel safe: if dropped, the replicas stay as they are.
    pub fn follow<C>(&self, changes: C) -> impl Future<Output = ()> + use<K, T, C>
    where
        C: Stream<Item = Change<K, T>>,
    {
        let weak = self.downgrade();
        async move {
            let mut changes = pin!(changes);
            while let Some(change) = poll_fn(|cx| changes.as_mut().poll_next(cx)).await {
                let Some(shared) = weak.upgrade() else { return };
                let balancer = Balancer { shared };
                match change {
                    Change::Insert(key, value) => drop(balancer.insert(key, value)),
                    Change::Remove(key) => drop(balancer.remove(&key)),
                }
            }
        }
    }

    /// Runs `check` for each replica, all at the same time, and again every `every`. A replica is
    /// out until it is healthy if its check fails, panics, or takes longer than
    /// [`Config::check_timeout`](super::Config::check_timeout) and until the next round. Ends when
    /// all other handles of the balancer are dropped. Spawn it, on any executor.
    ///
    /// With [`Probe::Check`](super::Probe::Check) only this brings a replica back. It never runs
    /// two checks of a replica at a time.
    ///
    /// Cancel safe: if dropped, the replicas stay as they are.
    ///
    /// ```
    /// use std::time::Duration;
    /// use dapple_tower::balance::{Balancer, Config, Probe};
    ///
    /// let mut config = Config::default();
    /// config.probe = Probe::Check;
    /// let balancer = Balancer::new(config);
    /// balancer.insert("good", 1);
    /// balancer.insert("bad", 2);
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let checks = balancer.check(Duration::from_secs(1), |_key, value| async move { value == 1 });
    ///     let checks = dapple_sched::spawn(checks);
    ///     while balancer.serving_len() == 2 {
    ///         dapple_sched::yield_now().await;
    ///     }
    ///     assert_eq!(*balancer.pick().unwrap().key(), "good");
    ///     drop(checks);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn check<F, Fut>(&self, every: Duration, check: F) -> impl Future<Output = ()> + use<K, T, F, Fut>
    where
        F: Fn(K, T) -> Fut,
        Fut: Future<Output = bool>,
    {
        let weak = self.downgrade();
        // A check repeated at once would never rest.
        let every = every.max(EVERY_MIN);
        async move {
            let mut asked: Vec<Asked<Fut>> = Vec::new();
            while let Some(shared) = weak.upgrade() {
                let unanswered: BTreeSet<Id> = asked.iter().map(|asked| asked.id).collect();
                let (limit, others) = shared.look(|replicas| {
                    let others = replicas.values().filter(|(id, ..)| !unanswered.contains(id));
                    let others = others.map(|(id, key, value)| (id, key.clone(), value.clone())).collect::<Vec<_>>();
                    (replicas.check_timeout(), others)
                });
                drop(shared);
                let verdict = |id, is_well| {
                    if let Some(shared) = weak.upgrade() {
                        shared.change(|replicas| ((), replicas.set_health(id, is_well, now())));
                    }
                };
                for (id, key, value) in others {
                    match catch_unwind(AssertUnwindSafe(|| Box::pin(check(key, value)))) {
                        Ok(answer) => asked.push(Asked { id, since: now(), answer: Some(answer) }),
                        Err(payload) => verdict(id, of_panic(payload)),
                    }
                }
                round(&mut asked, every, verdict).await;
                let is_serving =
                    |id| weak.upgrade().is_some_and(|shared| shared.look(|replicas| replicas.is_serving(id)));
                asked.retain(|asked| {
                    let is_late = now().saturating_duration_since(asked.since) >= limit;
                    // A replica that is out gets no trial before its check has answered.
                    if is_late || !is_serving(asked.id) {
                        verdict(asked.id, false);
                    }
                    !is_late
                });
            }
        }
    }
}

/// A check without an answer yet.
struct Asked<Fut> {
    id: Id,
    since: Instant,
    /// `None` while it is dropped.
    answer: Option<Pin<Box<Fut>>>,
}

/// The check may panic when it is dropped; this ends no other check.
impl<Fut> Drop for Asked<Fut> {
    fn drop(&mut self) {
        contain(|| drop(self.answer.take()));
    }
}

/// Waits for `every`, and meanwhile for all answers.
async fn round<Fut>(asked: &mut Vec<Asked<Fut>>, every: Duration, verdict: impl Fn(Id, bool))
where
    Fut: Future<Output = bool>,
{
    let mut end = Sleep::new(every);
    poll_fn(|cx| {
        asked.retain_mut(|asked| {
            let Some(answer) = &mut asked.answer else { return false };
            let is_well = match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(cx))) {
                Ok(Poll::Pending) => return true,
                Ok(Poll::Ready(is_well)) => is_well,
                Err(payload) => of_panic(payload),
            };
            verdict(asked.id, is_well);
            false
        });
        Pin::new(&mut end).poll(cx)
    })
    .await;
}

/// A check that panics counts as a failed one, and ends no other.
fn of_panic(payload: Box<dyn Any + Send>) -> bool {
    discard(payload);
    tracing::error!("the check of a replica panicked, which counts as unhealthy");
    false
}

const EVERY_MIN: Duration = Duration::from_millis(1);
