//! Room for which users, or the mounts of a user, compete.

use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dapple::sync::Limit;
use dapple::sync::limit::{LimitError, Permit};
use dapple_sched::environment::HashMap;

use crate::lock::lock;

/// A number of places. As long as `n` users take any, or wait for one, each may have one part in `n + 1` of them. So a new user finds places
/// free, at the latest when the first users have given back those that they had while they were fewer.
#[derive(Debug)]
pub(crate) struct Shares<K: Eq + Hash>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K: Eq + Hash> {
    all: Limit,
    /// The most of one user.
    share: AtomicUsize,
    waiting_max: usize,
    users: Mutex<HashMap<K, User>>,
}

/// A user who takes places, or waits for one.
#[derive(Debug)]
struct User {
    limit: Limit,
    /// The places taken and waited for.
    count: usize,
}

/// A place.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash> {
    // Given back before the user is forgotten.
    _permits: [Permit; 2],
    _counted: Counted<K>,
}

/// A place that is taken or waited for.
#[derive(Debug)]
struct Counted<K: Eq + Hash> {
    shares: Shares<K>,
    user: K,
}

impl<K: Eq + Hash + Clone> Shares<K> {
    /// This many places; in the line of each user wait at most `waiting_max`.
    pub(crate) fn new(max: usize, waiting_max: usize) -> Shares<K> {
        Shares(Arc::new(Inner {
            all: Limit::new(max),
            share: AtomicUsize::new(share(max, 1)),
            waiting_max,
            users: Mutex::default(),
        }))
    }

    /// Waits for a place: first in the user's own line, so that one user does not fill the line of all.
    ///
    /// # Errors
    ///
    /// The user's line is full.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it leaves the line.
    pub(crate) async fn acquire(&self, user: &K) -> Result<Share<K>, LimitError> {
        let (counted, limit) = self.count(user);
        let own = limit.acquire().await?;
        Ok(Share { _permits: [self.0.all.acquire().await?, own], _counted: counted })
    }

    /// Takes a place if there is one.
    pub(crate) fn try_acquire(&self, user: &K) -> Option<Share<K>> {
        let (counted, limit) = self.count(user);
        let own = limit.try_acquire()?;
        Some(Share { _permits: [self.0.all.try_acquire()?, own], _counted: counted })
    }

    fn count(&self, user: &K) -> (Counted<K>, Limit) {
        let mut users = lock(&self.0.users);
        let new = || User { limit: Limit::new(self.share()).waiting_max(self.0.waiting_max), count: 0 };
        let own = users.entry(user.clone()).or_insert_with(new);
        own.count += 1;
        let limit = own.limit.clone();
        let changed = self.divide(&users);
        drop(users);
        self.tell(&changed);
        (Counted { shares: Shares(self.0.clone()), user: user.clone() }, limit)
    }
}

impl<K: Eq + Hash> Shares<K> {
    /// The places that are taken.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.0.all.used()
    }

    /// Whether anyone takes a place, or waits for one.
    pub(crate) fn is_used(&self) -> bool {
        !lock(&self.0.users).is_empty()
    }

    #[cfg(test)]
    pub(crate) fn waiting_len(&self, user: &K) -> usize {
        lock(&self.0.users).get(user).map_or(0, |user| user.limit.waiting_len())
    }

    /// Changes the number of places.
    #[cfg(test)]
    pub(crate) fn set_max(&self, max: usize) {
        self.0.all.set_max(max);
        let changed = self.divide(&lock(&self.0.users));
        self.tell(&changed);
    }

    fn share(&self) -> usize {
        self.0.share.load(Ordering::SeqCst)
    }

    /// Divides the places anew; the limits that change by that. With many users none does: each has one place.
    fn divide(&self, users: &HashMap<K, User>) -> Vec<Limit> {
        let share = share(self.0.all.max(), users.len());
        match self.0.share.swap(share, Ordering::SeqCst) == share {
            true => Vec::new(),
            false => users.values().map(|user| user.limit.clone()).collect(),
        }
    }

    /// Tells the users their share, without the lock: it may wake those that wait.
    fn tell(&self, users: &[Limit]) {
        loop {
            let share = self.share();
            users.iter().for_each(|user| user.set_max(share));
            // Another thread may have divided them anew, and been faster.
            if share == self.share() {
                return;
            }
        }
    }
}

impl<K: Eq + Hash> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut users = lock(&self.shares.0.users);
        if let Some(user) = users.get_mut(&self.user) {
            user.count -= 1;
            if user.count == 0 {
                users.remove(&self.user);
            }
        }
        let changed = self.shares.divide(&users);
        drop(users);
        self.shares.tell(&changed);
    }
}

fn share(max: usize, users: usize) -> usize {
    // No place at all stays none.
    (max / (users.max(1) + 1)).max(max.min(1))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use dapple::sync::limit::LimitError;
    use futures_util::FutureExt as _;

    use super::Shares;

    #[test]
    fn a_new_user_finds_room_however_many_want_all() {
        let shares = Shares::new(60, 0);
        let take = |user: &&'static str| std::iter::from_fn(|| shares.try_acquire(user)).collect::<Vec<_>>();
        let mut of_ann = take(&"ann");
        assert_eq!(of_ann.len(), 30, "half of all");
        let of_bob = take(&"bob");
        assert_eq!(of_bob.len(), 20, "a third");
        let of_eve = take(&"eve");
        assert_eq!(of_eve.len(), 10, "what is left of her fourth");
        assert!(shares.try_acquire(&"zoe").is_none());
        // The first had more than its share, and takes none of what it gives back.
        of_ann.truncate(20);
        assert!(shares.try_acquire(&"ann").is_none() && shares.try_acquire(&"bob").is_none());
        let (of_eve_too, of_zoe) = (take(&"eve"), take(&"zoe"));
        assert_eq!((of_eve_too.len(), of_zoe.len()), (5, 5));
        drop((of_ann, of_bob, of_eve, of_eve_too));
        assert_eq!(take(&"zoe").len(), 25, "one user alone has half again");
        drop(of_zoe);
        assert!(shares.used() == 0 && !shares.is_used());
    }

    #[test]
    fn those_that_wait_get_room_when_others_leave() {
        let shares = Shares::new(4, 1);
        let taken: Vec<_> = (0..2).map(|_| shares.try_acquire(&"ann")).collect();
        let mut waits = pin!(shares.acquire(&"ann"));
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(shares.acquire(&"ann").now_or_never().map(Result::err), Some(Some(LimitError::Full { waiting: 1 })));
        let of_bob = shares.try_acquire(&"bob");
        assert!(of_bob.is_some() && shares.try_acquire(&"bob").is_none(), "now each has one part in three");
        drop(taken);
        assert!(matches!(waits.now_or_never(), Some(Ok(_))));
        let many: Vec<_> = ["a", "b", "c"].iter().map(|user| shares.try_acquire(user)).collect();
        assert!(many.iter().all(Option::is_some), "each has one at least");
        assert!(shares.try_acquire(&"d").is_none());
        drop((of_bob, many));
        assert!(!shares.is_used());
    }
}
