//! The choices that a program makes for stores, tables and single operations.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The version of a value. It grows with each change of a key, also over a remove and a new put.
///
/// Versions of keys in different partitions cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u64);

/// The failures that an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Durability {
    /// A power failure: the engine has synced its file before the write is acknowledged.
    Synced,
    /// A kill of the process. A power failure may cost the whole table; the next open then says so.
    Process,
    /// None: the data end with the process.
    Memory,
}

/// The consistency of one read.
///
/// The engines of one machine have one copy of the data, so each of their reads is linearizable, whatever it allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Read {
    /// The read sees every write that was acknowledged before it began.
    #[default]
    Linearizable,
    /// The read sees at least the write that returned this version for the same key.
    AtLeast(Version),
    /// The read sees every write that was acknowledged longer ago than this.
    Stale {
        /// The greatest age.
        max_age: Duration,
    },
}

/// The condition of a [`cas`](crate::Table::cas).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect<V> {
    /// The key has no value.
    Absent,
    /// The value of the key has this version.
    Version(Version),
    /// The key has this value. Values are compared as encoded.
    Value(V),
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<V> {
    /// The value.
    pub value: V,
    /// The version that it got when it was written.
    pub version: Version,
}

/// The kind of a named structure in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// A [`Table`](crate::Table).
    Hash,
    /// An [`OrderedTable`](crate::OrderedTable).
    Ordered,
    /// A [`Log`](crate::Log).
    Log,
    /// A [`Lock`](crate::Lock).
    Lock,
    /// A [`Counter`](crate::Counter).
    Counter,
}

impl Kind {
    /// Whether it holds keys and values of the program: a table of either kind.
    #[must_use]
    pub fn is_table(self) -> bool {
        matches!(self, Kind::Hash | Kind::Ordered)
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Hash => "hash",
            Kind::Ordered => "ordered",
            Kind::Log => "log",
            Kind::Lock => "lock",
            Kind::Counter => "counter",
        }
    }
}

/// The properties of a table, fixed when it is created.
///
/// ```
/// use dapple_store::{Durability, TableOptions};
///
/// let sessions = TableOptions { durability: Some(Durability::Process), expiry: true };
/// assert_ne!(sessions, TableOptions::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// The durability; `None` means the strongest that the engine has.
    pub durability: Option<Durability>,
    /// Whether values may have a time at which they expire. Counting such a table costs a scan.
    pub expiry: bool,
}

/// The limits of a store.
///
/// ```
/// let mut options = dapple_store::StoreOptions::default();
/// options.partitions = 4;
/// assert_eq!(options.queue_len_max, 1024);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreOptions {
    /// The number of partitions of a new store, 1 to 1024; 0 means one per core, or in a simulation one per worker. A store keeps its
    /// number.
    pub partitions: u32,
    /// The most writes that wait in one partition; a further one is refused.
    pub queue_len_max: usize,
    /// The most bytes of keys and values that wait in one partition; a further write is refused.
    pub queue_bytes_max: usize,
    /// The time that an operation may take, unless its table handle has another limit.
    pub limit: Duration,
    /// How long [`open`](crate::Store::open) waits while another store has the same files: one of a process that
    /// is ending, or one that was dropped a moment ago and has a last call of its engine to finish.
    pub in_use_limit: Duration,
    /// The memory for cached records in one partition, bytes.
    pub cache_bytes: usize,
    /// The most recent changes that one partition keeps for watchers.
    pub history_len_max: usize,
    /// The memory for them in one partition, bytes.
    pub history_bytes_max: usize,
    /// The longest encoded key, bytes.
    pub key_len_max: usize,
    /// The longest encoded value, bytes.
    pub value_len_max: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            partitions: 0,
            queue_len_max: 1024,
            queue_bytes_max: 64 << 20,
            limit: Duration::from_secs(10),
            in_use_limit: Duration::from_secs(5),
            cache_bytes: 8 << 20,
            history_len_max: 4096,
            history_bytes_max: 2 << 20,
            key_len_max: 4 << 10,
            value_len_max: 16 << 20,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
