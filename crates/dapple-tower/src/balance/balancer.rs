//! The shared handle: replicas in a lock, and the tasks that wait for one.

use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use dapple_sched::environment::HashMap;
use dapple_sched::foreign::KeptWaker;

use super::config::Config;
use super::picked::Picked;
use super::replicas::{Candidate, Choice, Replicas};
use super::stats::ReplicaStats;
use super::wait::Wait;
use crate::random::Random;
use crate::switch::{Mutex, lock};
use crate::time::now;
use crate::{Reason, Refused};

/// Spreads requests over replicas that come and go, fail and recover. A handle: all clones are one
/// balancer.
///
/// Each replica has a key, and a value that each pick hands out: an address, a client, a service.
/// Of two randomly drawn replicas, the balancer picks the one with less load
/// ([`Load`](super::Load)). A replica that fails repeatedly is out for a while, and returns through
/// a trial or a check ([`Probe`](super::Probe)). Without any in service, a pick is refused at once,
/// with the time after which one may be back.
///
/// With tower services as values, [`Balance`](super::Balance) is one service of all replicas.
///
/// The load-balancing queue of the thesis on stages (Gribble, chapter 10); the choice follows M.
/// Mitzenmacher, *The Power of Two Choices in Randomized Load Balancing*. A pick costs a lock and
/// some hundred nanoseconds for any number of replicas, while all are in service.
///
/// ```
/// use dapple_tower::balance::{Balancer, Config};
///
/// let upstreams = Balancer::new(Config::default());
/// upstreams.insert("a", "10.0.0.1:80");
/// upstreams.insert("b", "10.0.0.2:80");
///
/// let picked = upstreams.pick()?;
/// assert!(picked.value().starts_with("10.0.0."));
/// picked.success(); // dropped without a report, it counts as canceled
/// # Ok::<(), dapple_tower::Refused>(())
/// ```
pub struct Balancer<K, T> {
    pub(super) shared: Arc<Shared<K, T>>,
}

pub(super) struct Shared<K, T> {
    state: Mutex<State<K, T>>,
}

struct State<K, T> {
    replicas: Replicas<K, T>,
    /// Tasks to wake when the set of replicas that can be picked changes, one entry for each task.
    waiting: HashMap<u64, KeptWaker>,
    next_waiter: u64,
}

impl<K: Clone + Eq + Hash, T: Clone> Balancer<K, T> {
    /// A balancer without replicas.
    pub fn new(config: Config) -> Balancer<K, T> {
        Balancer::seeded(config, Random::fresh())
    }

    pub(super) fn seeded(config: Config, random: Random) -> Balancer<K, T> {
        let replicas = Replicas::new(config, random);
        let state = Mutex::new(State { replicas, waiting: HashMap::default(), next_waiter: 0 });
        Balancer { shared: Arc::new(Shared { state }) }
    }

    /// Adds a replica, in service; returns the previous value of its key, which gets no more
    /// requests.
    pub fn insert(&self, key: K, value: T) -> Option<T> {
        self.shared.change(|replicas| (replicas.insert(key, value, now()), true))
    }

    /// Permanently removes a replica. Its requests in flight continue.
    ///
    /// ```
    /// use dapple_tower::balance::{Balancer, Config};
    /// use dapple_tower::Reason;
    ///
    /// let balancer = Balancer::new(Config::default());
    /// balancer.insert(1, "one");
    /// assert_eq!(balancer.remove(&1), Some("one"));
    /// assert_eq!(balancer.pick().unwrap_err().reason, Reason::Unavailable);
    /// ```
    pub fn remove(&self, key: &K) -> Option<T> {
        self.shared.change(|replicas| (replicas.remove(key), true))
    }

    /// Replaces the set of replicas, for discovery that sends the whole list each time. Replicas
    /// that were there before keep their value, their statistics and their requests in flight.
    pub fn set(&self, replicas: impl IntoIterator<Item = (K, T)>) {
        let list: HashMap<K, T> = replicas.into_iter().collect();
        let gone = self.shared.change(|replicas| {
            let gone: Vec<K> = replicas.keys().filter(|key| !list.contains_key(key)).cloned().collect();
            let mut changed = !gone.is_empty();
            let gone: Vec<Option<T>> = gone.iter().map(|key| replicas.remove(key)).collect();
            for (key, value) in list {
                if replicas.id(&key).is_none() {
                    replicas.insert(key, value, now());
                    changed = true;
                }
            }
            (gone, changed)
        });
        // Drop values outside of the lock.
        drop(gone);
    }

    /// The number of replicas, in service or not.
    pub fn len(&self) -> usize {
        self.shared.look(|replicas| replicas.len())
    }

    /// Whether there are no replicas.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of replicas in service.
    pub fn serving_len(&self) -> usize {
        self.shared.look(|replicas| replicas.serving_len())
    }

    /// Each replica, in the order of insertion.
    pub fn stats(&self) -> Vec<ReplicaStats<K>> {
        self.shared.look(|replicas| replicas.stats(now()))
    }

    /// Picks a replica for one request. Report the end of the request to the [`Picked`].
    ///
    /// # Errors
    ///
    /// [`Reason::Unavailable`]: none is in service; `retry_after` says when the first one is tried again, if that is known.
    pub fn pick(&self) -> Result<Picked<K, T>, Refused> {
        self.pick_if(|_| true)
    }

    /// Picks a replica other than these if there is one, otherwise one of these: for a retry after
    /// others have failed.
    ///
    /// # Errors
    ///
    /// As [`Balancer::pick`].
    ///
    /// ```
    /// use dapple_tower::balance::{Balancer, Config};
    ///
    /// let balancer = Balancer::new(Config::default());
    /// balancer.insert(1, "one");
    /// balancer.insert(2, "two");
    /// assert_eq!(*balancer.pick_other_than(&[1])?.key(), 2);
    /// assert_eq!(balancer.pick_other_than(&[1, 2]).is_ok(), true);
    /// # Ok::<(), dapple_tower::Refused>(())
    /// ```
    pub fn pick_other_than(&self, keys: &[K]) -> Result<Picked<K, T>, Refused> {
        self.pick_if(|one| !keys.contains(one.key)).or_else(|_| self.pick())
    }

    /// Waits until a replica can be picked.
    ///
    /// Cancel safe: if dropped, it has picked nothing.
    ///
    /// ```
    /// use dapple_tower::balance::{Balancer, Config};
    ///
    /// let balancer = Balancer::new(Config::default());
    /// let added = balancer.clone();
    /// std::thread::spawn(move || added.insert("late", 7));
    /// let picked = dapple_sched::block_on(balancer.wait());
    /// assert_eq!(*picked.value(), 7);
    /// ```
    pub fn wait(&self) -> Wait<K, T> {
        Wait::new(self.clone())
    }

    /// Sets the health of a replica from outside. A replica that is not healthy is out, for its
    /// backoff or until this reports it healthy; a healthy one is in. Ignores unknown keys.
    pub fn set_health(&self, key: &K, is_well: bool) {
        self.shared.change(|replicas| match replicas.id(key) {
            Some(id) => ((), replicas.set_health(id, is_well, now())),
            None => ((), false),
        });
    }

    /// Picks among the replicas that `may` allows. Calls `may` under the lock.
    #[doc(hidden)]
    pub fn pick_if(&self, may: impl Fn(Candidate<K, T>) -> bool) -> Result<Picked<K, T>, Refused> {
        let now = now();
        let picked = self.shared.look(|replicas| {
            let choice = replicas.choose(now, may).ok_or_else(|| replicas.next_trial(|_| true))?;
            begin(replicas, choice, now).ok_or(None)
        });
        let (choice, key, value) = picked.map_err(|next_trial| unavailable(next_trial, now))?;
        Ok(Picked::new(self.shared.clone(), choice, key, value, now))
    }

    /// Begins the chosen request, if the replica is still available.
    pub(super) fn begin(&self, choice: Choice) -> Option<Picked<K, T>> {
        let now = now();
        let (choice, key, value) = self.shared.look(|replicas| begin(replicas, choice, now))?;
        Some(Picked::new(self.shared.clone(), choice, key, value, now))
    }
}

impl<K, T> Balancer<K, T> {
    pub(super) fn downgrade(&self) -> Weak<Shared<K, T>> {
        Arc::downgrade(&self.shared)
    }
}

fn begin<K: Clone + Eq + Hash, T: Clone>(
    replicas: &mut Replicas<K, T>,
    choice: Choice,
    now: Instant,
) -> Option<(Choice, K, T)> {
    let (key, value) = replicas.value(choice.id).map(|(key, value)| (key.clone(), value.clone()))?;
    replicas.begin(choice, now).then_some((choice, key, value))
}

pub(super) fn unavailable(next_trial: Option<Instant>, now: Instant) -> Refused {
    let rest = next_trial.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
    Refused::new(Reason::Unavailable, rest)
}

impl<K, T> Shared<K, T> {
    pub(super) fn look<R>(&self, look: impl FnOnce(&mut Replicas<K, T>) -> R) -> R {
        look(&mut lock(&self.state).replicas)
    }

    /// As `look`; if the second value is true, all waiting tasks check again.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Replicas<K, T>) -> (R, bool)) -> R {
        let mut state = lock(&self.state);
        let (result, has_changed) = change(&mut state.replicas);
        let woken = if has_changed { std::mem::take(&mut state.waiting) } else { HashMap::default() };
        drop(state);
        woken.into_values().for_each(KeptWaker::wake);
        result
    }

    /// Looks, and if that finds nothing, registers `waker` for the next change, in one step: no
    /// change is missed.
    pub(super) fn look_or_wait<R>(
        &self,
        waiter: &mut Option<u64>,
        waker: &Waker,
        look: impl FnOnce(&mut Replicas<K, T>) -> Option<R>,
    ) -> Option<R> {
        let waker = KeptWaker::from(waker);
        let mut state = lock(&self.state);
        let found = look(&mut state.replicas);
        if found.is_some() {
            return found;
        }
        let number = *waiter.get_or_insert_with(|| {
            let number = state.next_waiter;
            state.next_waiter += 1;
            number
        });
        let before = state.waiting.insert(number, waker);
        drop(state);
        drop(before);
        None
    }

    /// Removes a waiting task.
    pub(super) fn forget(&self, waiter: &mut Option<u64>) {
        if let Some(number) = waiter.take() {
            let waker = lock(&self.state).waiting.remove(&number);
            drop(waker);
        }
    }
}

impl<K: Clone + Eq + Hash, T: Clone> Shared<K, T> {
    pub(super) fn end(&self, choice: Choice) {
        self.look(|replicas| replicas.end(choice.id));
    }
}

impl<K, T> Clone for Balancer<K, T> {
    fn clone(&self) -> Balancer<K, T> {
        Balancer { shared: self.shared.clone() }
    }
}

impl<K: Clone + Eq + Hash + fmt::Debug, T: Clone> fmt::Debug for Balancer<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer").field("replicas", &self.stats()).finish_non_exhaustive()
    }
}
