//! The client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::time::Instant;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::Failure;
use crate::builder::EtcdBuilder;
use crate::call::{Call, Inner, Replied, Safety};
use crate::error::{Error, Reason};
use crate::keys::Keys;
use crate::lease::{Lease, LeaseId, time_left};
use crate::op::{Delete, Found, Get, Put, Record, Removed, Written};
use crate::txn::{Compare, Txn, TxnReply};
use crate::wire::{self, LeaseReply, Streamed};

/// A client of an etcd cluster. Clones are cheap, and share connections and the known state of the
/// members.
///
/// Each call has a deadline, and asks one member after the other within it. The tables of [`Error`]
/// and of the [crate](crate) say which requests are sent again. Calls run in the color of the task
/// that makes them.
///
/// ```no_run
/// use dapple_etcd::{Etcd, Guard, Guarded, Put};
///
/// # async fn example() -> Result<(), dapple_etcd::Error> {
/// let etcd = Etcd::new(["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"])?;
/// etcd.put(Put::new("users/ann", "42")).await?;
/// let ann = etcd.get("users/ann").await?.expect("it was just put");
/// match etcd.put_guarded(Put::new("users/ann", "43"), Guard::Revision(ann.mod_revision)).await? {
///     Guarded::Applied { revision } => println!("now at {revision}"),
///     Guarded::Refused { current } => println!("another writer was faster: {current:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Etcd {
    pub(crate) inner: Arc<Inner>,
    pub(crate) timeout: Duration,
}

/// The condition of a guarded write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The key does not exist.
    Absent,
    /// The last change of the key was at this revision.
    Revision(i64),
}

/// The outcome of a guarded write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// The key has the new value.
    Applied {
        /// The revision of the write.
        revision: i64,
    },
    /// The guard did not hold. Nothing changed.
    Refused {
        /// The record as it is.
        current: Option<Record>,
    },
}

#[derive(Serialize)]
struct LeaseQuestion {
    #[serde(rename = "ID")]
    id: LeaseId,
    #[serde(rename = "TTL", skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
}

#[derive(Serialize)]
struct CompactQuestion {
    revision: i64,
}

impl Etcd {
    /// A client of the members at these endpoints, each `HOST:PORT`, `http://HOST:PORT` or (feature `tls`) `https://HOST:PORT`.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplied`]: there is no endpoint, or one of them is no address.
    pub fn new<A: Into<String>>(endpoints: impl IntoIterator<Item = A>) -> Result<Etcd, Error> {
        Etcd::builder(endpoints).build()
    }

    /// A builder, for TLS, a user, and other limits.
    pub fn builder<A: Into<String>>(endpoints: impl IntoIterator<Item = A>) -> EtcdBuilder {
        EtcdBuilder::new(endpoints)
    }

    /// The same client, with this limit for each call, all attempts included.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Etcd {
        self.timeout = limit;
        self
    }

    /// Reads one key, linearizable.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplied`], [`Error::Unavailable`].
    pub async fn get(&self, key: impl Into<Keys>) -> Result<Option<Record>, Error> {
        let found = self.find(Get::new(key)).await?;
        Ok(found.records.into_iter().next())
    }

    /// Reads many keys.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplied`], with [`Reason::Compacted`] for a revision that etcd has forgotten; [`Error::Unavailable`].
    pub async fn find(&self, get: Get) -> Result<Found, Error> {
        let call = self.call("/v3/kv/range", &get, Safety::Read);
        let call = Call { needs_leader: !get.is_stale(), ..call };
        Ok(self.inner.ask::<wire::RangeReply>(call).await?.reply.into())
    }

    /// Writes a key. A write with an unknown outcome is not sent again: see [`put_guarded`](Etcd::put_guarded).
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the write may have happened or not.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn put(&self, put: Put) -> Result<Written, Error> {
        Ok(self.ask::<wire::PutReply>("/v3/kv/put", &put, Safety::Plain).await?.into())
    }

    /// Writes a key if the guard holds. Where the fate of an attempt is unknown, it is sent again, and the guard keeps it from happening
    /// twice.
    ///
    /// A refusal after such an attempt says two things: the attempt was applied, or another writer
    /// was faster. A record that has this value, and changed after the guard, counts as applied. So
    /// make the value unique if two writers could write the same one. Another value is
    /// [`Error::Unknown`]: this write may have been applied before the other one.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the write may have happened or not.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn put_guarded(&self, put: Put, guard: Guard) -> Result<Guarded, Error> {
        let (key, value) = (put.key.0.clone(), put.value.0.clone());
        let (compare, before) = match guard {
            Guard::Absent => (Compare::absent(key.clone()), 0),
            Guard::Revision(revision) => (Compare::mod_revision(key.clone()).equals(revision), revision),
        };
        let txn = Txn::new().when(compare).then(put).otherwise(Get::new(key));
        let (reply, is_repeated) = self.txn_guarded(&txn).await?;
        if reply.succeeded {
            return Ok(Guarded::Applied { revision: reply.revision });
        }
        let found = reply.replies.into_iter().next().and_then(|reply| reply.into_found());
        let current = found.and_then(|found| found.records.into_iter().next());
        let is_changed = current.as_ref().map_or(0, |record| record.mod_revision) != before;
        if !is_repeated || !is_changed {
            return Ok(Guarded::Refused { current });
        }
        match current {
            Some(record) if record.value == value && record.mod_revision > before => {
                Ok(Guarded::Applied { revision: record.mod_revision })
            }
            _ => Err(Error::Unknown { message: "the reply was lost, and the key has changed since".to_owned() }),
        }
    }

    /// Removes keys.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the removal may have happened or not.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn delete(&self, delete: Delete) -> Result<Removed, Error> {
        Ok(self.ask::<wire::DeleteReply>("/v3/kv/deleterange", &delete, Safety::Plain).await?.into())
    }

    /// Runs a transaction. A transaction that only reads is sent again if its reply is lost; any
    /// other is not.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the transaction may have happened or not.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn txn(&self, txn: &Txn) -> Result<TxnReply, Error> {
        let safety = if txn.is_read_only() { Safety::Read } else { Safety::Plain };
        self.ask::<wire::TxnReply>("/v3/kv/txn", txn, safety).await?.try_into()
    }

    /// Runs a transaction that is sent again if its reply is lost. Its conditions have to keep it
    /// from happening twice. The `bool` is true if an earlier attempt may have been applied: then a
    /// transaction that did not succeed may be one that did.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the transaction may have happened or not.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn txn_guarded(&self, txn: &Txn) -> Result<(TxnReply, bool), Error> {
        let call = self.call("/v3/kv/txn", txn, Safety::Guarded);
        let Replied { reply, is_repeated } = self.inner.ask::<wire::TxnReply>(call).await?;
        Ok((reply.try_into()?, is_repeated))
    }

    /// Makes a lease, and a task that renews it. Its time is `ttl`, in whole seconds, 2 at least; etcd may give more.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, a lease may stay that ends by itself.
    ///
    /// # Errors
    ///
    /// [`Error`].
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub async fn lease(&self, ttl: Duration) -> Result<Lease, Error> {
        let (id, granted) = (LeaseId::fresh(), Instant::now());
        let question = LeaseQuestion { id, ttl: Some(ttl.as_secs().max(TTL_MIN_S)) };
        // The number is chosen here: a second attempt that finds the lease finds its own.
        let call = self.call("/v3/lease/grant", &question, Safety::Guarded);
        let ttl = match self.inner.ask::<LeaseReply>(call).await {
            Ok(replied) => time_left(replied.reply.ttl).unwrap_or(ttl),
            Err(error) if error.message().contains("lease already exists") => {
                self.renew(id).await?.ok_or_else(|| Error::not_applied(Reason::NoLease, "the lease is over already"))?
            }
            Err(error) => return Err(error),
        };
        Ok(Lease::start(self.clone(), id, ttl, granted))
    }

    /// Renews a lease. Returns the time that it has now; `None`: it is no more.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplied`], [`Error::Unavailable`].
    pub async fn renew(&self, id: LeaseId) -> Result<Option<Duration>, Error> {
        let question = LeaseQuestion { id, ttl: None };
        let reply: Streamed<LeaseReply> = self.ask("/v3/lease/keepalive", &question, Safety::Read).await?;
        match (reply.result, reply.error) {
            (Some(lease), _) => Ok(time_left(lease.ttl)),
            (None, error) => match Failure::of_json(&error.unwrap_or_default(), "the lease was not renewed") {
                Failure::Final(error) if error.reason() == Some(Reason::NoLease) => Ok(None),
                Failure::Final(error) => Err(error),
                failure => {
                    let message = format!("the lease was not renewed: {failure:?}");
                    Err(Error::Unavailable { message, retry_after: Duration::ZERO })
                }
            },
        }
    }

    /// Ends a lease, and removes its keys. A lease that is no more is none to end: that is no error.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it may have happened or not.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub async fn revoke(&self, id: LeaseId) -> Result<(), Error> {
        let question = LeaseQuestion { id, ttl: None };
        // Numbers do not come again, so a second attempt does no harm.
        match self.ask::<serde_json::Value>("/v3/lease/revoke", &question, Safety::Guarded).await {
            Err(error) if !error.message().contains("lease not found") => Err(error),
            _ => Ok(()),
        }
    }

    /// Has etcd forget the history before a revision.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it may have happened or not.
    ///
    /// # Errors
    ///
    /// [`Error`]; [`Reason::Compacted`]: it has forgotten it already.
    pub async fn compact(&self, revision: i64) -> Result<(), Error> {
        let question = CompactQuestion { revision };
        self.ask::<serde_json::Value>("/v3/kv/compaction", &question, Safety::Plain).await.map(drop)
    }

    pub(crate) fn call(&self, path: &'static str, question: &impl Serialize, safety: Safety) -> Call {
        let deadline = Instant::now() + self.timeout.min(TIMEOUT_MAX);
        Call::new(path, question, safety, deadline)
    }

    async fn ask<A: DeserializeOwned>(
        &self,
        path: &'static str,
        question: &impl Serialize,
        safety: Safety,
    ) -> Result<A, Error> {
        let call = self.call(path, question, safety);
        Ok(self.inner.ask::<A>(call).await?.reply)
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("members", &self.inner.members())
            .field("user", &self.inner.auth)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The longest deadline, a year: longer ones may be more than a clock can express.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The shortest time of a lease.
const TTL_MIN_S: u64 = 2;
