//! Reads, writes and deletes, by themselves or in a transaction.

use bytes::Bytes;
use serde::Serialize;

use crate::keys::Keys;
use crate::lease::LeaseId;
use crate::wire::{Base64, DeleteReply, Pair, PutReply, RangeReply, is_false, is_zero};

/// A key with its value, and its history in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The key.
    pub key: Bytes,
    /// The value; empty if the read requested keys only.
    pub value: Bytes,
    /// The revision at which the key came into being, after its last removal.
    pub create_revision: i64,
    /// The revision of its last change.
    pub mod_revision: i64,
    /// The number of changes since it came into being, from 1 on.
    pub version: i64,
    /// The lease that removes the key at its end.
    pub lease: Option<LeaseId>,
}

impl From<Pair> for Record {
    fn from(pair: Pair) -> Record {
        Record {
            key: pair.key.0,
            value: pair.value.0,
            create_revision: pair.create_revision,
            mod_revision: pair.mod_revision,
            version: pair.version,
            lease: LeaseId::of(pair.lease),
        }
    }
}

/// A read of one key or of many.
///
/// ```
/// use dapple_etcd::{Get, Keys};
///
/// let newest = Get::new(Keys::prefix("log/")).sort(dapple_etcd::Sort::Created { descending: true }).limit(10);
/// # let _ = newest;
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Get {
    key: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<Base64>,
    #[serde(skip_serializing_if = "is_zero")]
    limit: i64,
    #[serde(skip_serializing_if = "is_zero")]
    revision: i64,
    #[serde(skip_serializing_if = "is_false")]
    serializable: bool,
    #[serde(skip_serializing_if = "is_false")]
    keys_only: bool,
    #[serde(skip_serializing_if = "is_false")]
    count_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_order: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_target: Option<&'static str>,
    #[serde(skip_serializing_if = "is_zero")]
    min_mod_revision: i64,
    #[serde(skip_serializing_if = "is_zero")]
    max_create_revision: i64,
}

/// The order of the records of a read; that of their keys if not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sort {
    /// By key.
    Key {
        /// The last one first.
        descending: bool,
    },
    /// By the revision at which they came into being.
    Created {
        /// The newest one first.
        descending: bool,
    },
    /// By the revision of their last change.
    Changed {
        /// The newest one first.
        descending: bool,
    },
}

impl Get {
    /// A read of these keys, linearizable: it sees every write that was acknowledged before it began.
    pub fn new(keys: impl Into<Keys>) -> Get {
        let Keys { key, range_end } = keys.into();
        Get {
            key,
            range_end,
            limit: 0,
            revision: 0,
            serializable: false,
            keys_only: false,
            count_only: false,
            sort_order: None,
            sort_target: None,
            min_mod_revision: 0,
            max_create_revision: 0,
        }
    }

    /// At most this many records; 0: all.
    #[must_use]
    pub fn limit(mut self, max: usize) -> Get {
        self.limit = i64::try_from(max).unwrap_or(i64::MAX);
        self
    }

    /// The state at this revision.
    #[must_use]
    pub fn at(mut self, revision: i64) -> Get {
        self.revision = revision;
        self
    }

    /// The member that gets the read answers alone: faster, also without a majority, and perhaps
    /// with old values.
    #[must_use]
    pub fn stale(mut self) -> Get {
        self.serializable = true;
        self
    }

    /// Leaves the values out.
    #[must_use]
    pub fn keys_only(mut self) -> Get {
        self.keys_only = true;
        self
    }

    /// Returns the number of keys only.
    #[must_use]
    pub fn count_only(mut self) -> Get {
        self.count_only = true;
        self
    }

    /// The order of the records.
    #[must_use]
    pub fn sort(mut self, sort: Sort) -> Get {
        let (target, descending) = match sort {
            Sort::Key { descending } => ("KEY", descending),
            Sort::Created { descending } => ("CREATE", descending),
            Sort::Changed { descending } => ("MOD", descending),
        };
        self.sort_target = Some(target);
        self.sort_order = Some(if descending { "DESCEND" } else { "ASCEND" });
        self
    }

    /// Only records that changed at this revision or later.
    #[must_use]
    pub fn changed_since(mut self, revision: i64) -> Get {
        self.min_mod_revision = revision;
        self
    }

    /// Only records that came into being at this revision or before.
    #[must_use]
    pub fn created_until(mut self, revision: i64) -> Get {
        self.max_create_revision = revision;
        self
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.serializable
    }
}

/// The records that a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// In the requested order.
    pub records: Vec<Record>,
    /// The number of keys in the range, those beyond the limit included.
    pub count: i64,
    /// The limit cut the records off.
    pub has_more: bool,
    /// The revision of the store at the read. Of a read in the past, too, it is the present one.
    pub revision: i64,
}

impl From<RangeReply> for Found {
    fn from(reply: RangeReply) -> Found {
        Found {
            records: reply.kvs.into_iter().map(Record::from).collect(),
            count: reply.count,
            has_more: reply.more,
            revision: reply.header.revision,
        }
    }
}

/// A write of one key.
#[derive(Clone, Debug, Serialize)]
pub struct Put {
    pub(crate) key: Base64,
    pub(crate) value: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseId>,
    #[serde(skip_serializing_if = "is_false")]
    prev_kv: bool,
    #[serde(skip_serializing_if = "is_false")]
    ignore_value: bool,
}

impl Put {
    /// A write of this value.
    pub fn new(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Put {
        let (key, value) = (Base64(key.into()), Base64(value.into()));
        Put { key, value, lease: None, prev_kv: false, ignore_value: false }
    }

    /// The end of this lease removes the key.
    #[must_use]
    pub fn lease(mut self, lease: LeaseId) -> Put {
        self.lease = Some(lease);
        self
    }

    /// Returns the record that it replaces.
    #[must_use]
    pub fn previous(mut self) -> Put {
        self.prev_kv = true;
        self
    }

    /// Leaves the value as it is, to change the lease; the key has to exist.
    #[must_use]
    pub fn keep_value(mut self) -> Put {
        self.ignore_value = true;
        self.value = Base64::default();
        self
    }
}

/// The reply to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The revision of this write.
    pub revision: i64,
    /// The record that it replaced, if the write requested it.
    pub previous: Option<Record>,
}

impl From<PutReply> for Written {
    fn from(reply: PutReply) -> Written {
        Written { revision: reply.header.revision, previous: reply.prev_kv.map(Record::from) }
    }
}

/// A removal of one key or of many.
#[derive(Clone, Debug, Serialize)]
pub struct Delete {
    key: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<Base64>,
    #[serde(skip_serializing_if = "is_false")]
    prev_kv: bool,
}

impl Delete {
    /// A removal of these keys.
    pub fn new(keys: impl Into<Keys>) -> Delete {
        let Keys { key, range_end } = keys.into();
        Delete { key, range_end, prev_kv: false }
    }

    /// Returns the records that it removes.
    #[must_use]
    pub fn previous(mut self) -> Delete {
        self.prev_kv = true;
        self
    }
}

/// The reply to a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// The number of keys.
    pub count: i64,
    /// The revision of the store after it.
    pub revision: i64,
    /// The removed records, if the removal requested them.
    pub previous: Vec<Record>,
}

impl From<DeleteReply> for Removed {
    fn from(reply: DeleteReply) -> Removed {
        Removed {
            count: reply.deleted,
            revision: reply.header.revision,
            previous: reply.prev_kvs.into_iter().map(Record::from).collect(),
        }
    }
}
