//! Locks: a queue of keys, each waiting for the one before it.

use std::fmt;

use bytes::Bytes;
use dapple_io::time::timeout_at;
use dapple_sync::task::{First, race};
use dapple_tower::random::Random;

use crate::client::{Etcd, Guard, Guarded, TIMEOUT_MAX};
use crate::error::{Error, Reason};
use crate::keys::Keys;
use crate::lease::Lease;
use crate::op::{Delete, Get, Put, Sort};
use crate::watch::{Event, Watching};

/// A lock that is held; see [`Etcd::lock`]. Dropped, it is released in the background.
pub struct Held {
    place: Place,
    token: i64,
}

/// A key in the queue of a lock, which is removed when this is dropped.
struct Place {
    etcd: Etcd,
    key: Option<Bytes>,
}

impl Etcd {
    /// Takes the lock of this name, in the order of the requests for it. A holder that dies loses
    /// it with its lease, as `lease` gives each waiter its place. No waiter polls: each one watches
    /// the key before its own only, so that handing the lock over wakes one of them.
    ///
    /// The time of the call, [`timeout`](Etcd::timeout), is that of the wait. The keys of a lock are its name, a zero byte, and a number.
    ///
    /// The holder may pause for longer than its lease lives, and then continue in the belief that
    /// it holds the lock. So let the protected resource check [`Held::token`], or write under
    /// [`Held::compare`].
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use dapple_etcd::{Etcd, Put, Txn};
    ///
    /// # async fn example(etcd: Etcd) -> Result<(), dapple_etcd::Error> {
    /// let lease = etcd.lease(Duration::from_secs(10)).await?;
    /// let held = etcd.clone().timeout(Duration::from_secs(60)).lock("reports", &lease).await?;
    /// etcd.txn(&Txn::new().when(held.compare()).then(Put::new("report", "written by one"))).await?;
    /// held.unlock().await
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the place in the queue is given up in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`]: the lock was not free in time. [`Error::NotApplied`] with [`Reason::NoLease`]: the lease is over.
    pub async fn lock(&self, name: &str, lease: &Lease) -> Result<Held, Error> {
        let deadline = dapple_io::time::Instant::now() + self.timeout.min(TIMEOUT_MAX);
        let lost = || Error::not_applied(Reason::NoLease, "the lease ended before the lock was free");
        let waiting = async {
            match race(lease.lost(), self.queue(name, lease)).await {
                First::Left(()) => Err(lost()),
                First::Right(held) => held,
            }
        };
        timeout_at(deadline, waiting).await.unwrap_or_else(|_| {
            let message = format!("the lock {name:?} was not free in time");
            Err(Error::Unavailable { message, retry_after: std::time::Duration::ZERO })
        })
    }

    async fn queue(&self, name: &str, lease: &Lease) -> Result<Held, Error> {
        let prefix = format!("{name}\0");
        let key = Bytes::from(format!("{prefix}{}-{:x}", lease.id(), Random::fresh().next()));
        let place = Place { etcd: self.clone(), key: Some(key.clone()) };
        // No other call has this key, so an attempt with a lost reply is found by it.
        let put = Put::new(key.clone(), "").lease(lease.id());
        let token = match self.put_guarded(put, Guard::Absent).await? {
            Guarded::Applied { revision } => revision,
            Guarded::Refused { .. } => {
                return Err(Error::Unknown { message: "the place in the queue is taken".to_owned() });
            }
        };
        loop {
            // The own key, and the one before it.
            let newest = Get::new(Keys::prefix(prefix.clone())).created_until(token).keys_only();
            let found = self.find(newest.sort(Sort::Created { descending: true }).limit(2)).await?;
            let mut keys = found.records.into_iter();
            if keys.next().is_none_or(|record| record.key != key) {
                return Err(Error::not_applied(Reason::NoLease, "the place in the queue went with its lease"));
            }
            let Some(before) = keys.next() else { return Ok(Held { place, token }) };
            let mut watch = self.watch(Watching::new(before.key).since(found.revision + 1)).await?;
            while !watch.next().await?.iter().any(|event| matches!(event, Event::Delete { .. })) {}
        }
    }
}

impl Held {
    /// The fencing token: larger for each later holder.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// The condition that the lock is still held, for a transaction.
    pub fn compare(&self) -> crate::Compare {
        crate::Compare::create_revision(self.place.key.clone().unwrap_or_default()).equals(self.token)
    }

    /// Releases the lock.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it is released all the same, in the background.
    ///
    /// # Errors
    ///
    /// [`Error`]; the lock is then free when its lease is over.
    pub async fn unlock(mut self) -> Result<(), Error> {
        let Some(key) = self.place.key.clone() else { return Ok(()) };
        self.place.etcd.remove(key).await?;
        self.place.key = None;
        Ok(())
    }
}

impl Etcd {
    /// Removes a key that no other call has: a second attempt does no harm.
    async fn remove(&self, key: Bytes) -> Result<(), Error> {
        self.txn_guarded(&crate::Txn::new().then(Delete::new(key))).await.map(drop)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        // Without a runtime the key expires with its lease.
        if let Some(handle) = dapple_sched::Handle::try_current() {
            let etcd = self.etcd.clone();
            let _detached = handle.spawn(async move {
                if let Err(error) = etcd.remove(key).await {
                    tracing::debug!(%error, "a lock is left to its lease");
                }
            });
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("key", &self.place.key).field("token", &self.token).finish_non_exhaustive()
    }
}
