//! Answers with their lifetimes, and the waiters for answers on their way.
//!
//! A place in the cache:
//!
//! | state | becomes | when |
//! |---|---|---|
//! | on its way | known | the answer has come, and may be kept |
//! | | gone | it may not be kept, or its query was dropped; waiters are told |
//! | known | on its way | a query after it has expired |
//! | | gone | its room is needed |
//!
//! The limit of queries bounds the places of answers under way, the capacity bounds the known ones.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dapple_sched::environment::HashMap;
use hickory_resolver::proto::rr::Name;

use super::failure::Failure;
use crate::oneshot;
use crate::time::Instant;

/// The kind of address of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Family {
    V6,
    V4,
}

/// A full name, in any case of letters, and the kind of address.
pub(super) type Key = (Name, Family);

/// The answer of a name server, or the reason why there is none.
pub(super) type Answer = Result<Arc<[IpAddr]>, Failure>;

/// See the module's text.
pub(super) struct Cache {
    capacity: usize,
    /// The index of each key in `places`.
    index: HashMap<Key, usize>,
    places: Vec<Known>,
    on_their_way: HashMap<Key, Vec<oneshot::Sender<Answer>>>,
    /// For the choice of evicted answers.
    random: u64,
}

struct Known {
    key: Key,
    answer: Answer,
    expires: Instant,
    used: Instant,
}

/// The result of a look into the cache.
pub(super) enum Found {
    Known(Answer),
    /// Another task is asking: its answer arrives here, unless that task gives up.
    OnItsWay(oneshot::Receiver<Answer>),
    /// Ask, then call [`Cache::finish`].
    Ask,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Cache {
            capacity,
            index: HashMap::default(),
            places: Vec::new(),
            on_their_way: HashMap::default(),
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Number of answers kept, including expired ones.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn clear(&mut self) {
        self.index.clear();
        self.places.clear();
    }

    pub(super) fn begin(&mut self, key: &Key, now: Instant) -> Found {
        if let Some(&at) = self.index.get(key) {
            let known = &mut self.places[at];
            if now < known.expires {
                known.used = now;
                return Found::Known(known.answer.clone());
            }
            self.remove(at);
        }
        match self.on_their_way.get_mut(key) {
            Some(waiting) => {
                let (sender, receiver) = oneshot::channel();
                // A waiter that has gone leaves nothing behind, however many come and go.
                if waiting.len() == waiting.capacity() {
                    waiting.retain(|waiting| !waiting.is_forsaken());
                }
                waiting.push(sender);
                Found::OnItsWay(receiver)
            }
            None => {
                self.on_their_way.insert(key.clone(), Vec::new());
                Found::Ask
            }
        }
    }

    /// Ends a query. Returns the waiters: they get the answer, or ask themselves if there is none.
    #[must_use = "they wait"]
    pub(super) fn finish(
        &mut self,
        key: &Key,
        answer: Option<(&Answer, Duration)>,
        now: Instant,
    ) -> Vec<oneshot::Sender<Answer>> {
        if let Some((answer, holds)) = answer
            && !holds.is_zero()
            && self.capacity > 0
        {
            self.insert(Known { key: key.clone(), answer: answer.clone(), expires: now + holds, used: now }, now);
        }
        self.on_their_way.remove(key).unwrap_or_default()
    }

    fn insert(&mut self, known: Known, now: Instant) {
        if let Some(&at) = self.index.get(&known.key) {
            self.places[at] = known;
            return;
        }
        if self.places.len() >= self.capacity {
            let victim = self.victim(now);
            self.remove(victim);
        }
        self.index.insert(known.key.clone(), self.places.len());
        self.places.push(known);
    }

    fn remove(&mut self, at: usize) {
        let removed = self.places.swap_remove(at);
        self.index.remove(&removed.key);
        if let Some(moved) = self.places.get(at) {
            *self.index.get_mut(&moved.key).expect("the kept answers are in the index") = at;
        }
    }

    /// Picks an expired one out of some random answers, or else the least recently used of them.
    /// This is nearly as good as the order of all answers, which would have to be kept.
    fn victim(&mut self, now: Instant) -> usize {
        let mut sample = || {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            (self.random % self.places.len() as u64) as usize
        };
        let candidates: [usize; SAMPLES] = std::array::from_fn(|_| sample());
        let oldest = candidates.into_iter().min_by_key(|&at| (self.places[at].expires > now, self.places[at].used));
        oldest.unwrap_or(0)
    }
}

/// The number of answers examined for an eviction.
const SAMPLES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        (Name::from_ascii(format!("host{number}.test.")).unwrap(), Family::V4)
    }

    fn answer() -> Answer {
        Ok(Arc::from([IpAddr::from([127, 0, 0, 1])]))
    }

    fn put(cache: &mut Cache, number: usize, holds: Duration, now: Instant) {
        assert!(matches!(cache.begin(&key(number), now), Found::Ask));
        let waiting = cache.finish(&key(number), Some((&answer(), holds)), now);
        assert!(waiting.is_empty());
    }

    #[test]
    fn answers_hold_as_long_as_they_say() {
        let mut cache = Cache::new(10);
        let now = Instant::now();
        put(&mut cache, 1, Duration::from_secs(5), now);
        assert!(matches!(cache.begin(&key(1), now + Duration::from_secs(4)), Found::Known(Ok(_))));
        assert!(matches!(cache.begin(&key(1), now + Duration::from_secs(5)), Found::Ask));
        assert_eq!(cache.len(), 0);
        let waiting = cache.finish(&key(1), Some((&answer(), Duration::ZERO)), now);
        assert!(waiting.is_empty() && cache.len() == 0, "what holds for no time is not kept");
    }

    #[test]
    fn the_capacity_is_kept_and_what_has_expired_goes_first() {
        let mut cache = Cache::new(16);
        let now = Instant::now();
        for number in 0..1000 {
            put(&mut cache, number, Duration::from_secs(60), now + Duration::from_millis(number as u64));
            assert!(cache.len() <= 16);
            assert_eq!(cache.index.len(), cache.len());
        }
        let recent = (0..1000).rev().take(32).filter(|number| cache.index.contains_key(&key(*number))).count();
        assert!(recent > 8, "mostly those used last: {recent}");
        for (name, at) in &cache.index {
            assert_eq!(cache.places[*at].key, *name);
        }
    }

    #[test]
    fn equal_queries_wait_for_the_same_answer() {
        let mut cache = Cache::new(4);
        let now = Instant::now();
        assert!(matches!(cache.begin(&key(1), now), Found::Ask));
        let mut waiting = Vec::new();
        for _ in 0..1000 {
            match cache.begin(&key(1), now) {
                // Dropped: the task has ended.
                Found::OnItsWay(receiver) if waiting.len() < 3 => waiting.push(receiver),
                Found::OnItsWay(_) => {}
                _ => panic!("somebody asks already"),
            }
        }
        let senders = cache.finish(&key(1), Some((&answer(), Duration::from_secs(1))), now);
        assert!(senders.len() < 16, "waiters that left are forgotten: {}", senders.len());
        senders.into_iter().for_each(|sender| sender.send(answer()));
        for receiver in waiting {
            assert!(matches!(dapple_sched::block_on(receiver), Some(Ok(_))));
        }
    }
}
