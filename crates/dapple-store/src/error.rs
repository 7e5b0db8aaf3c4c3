//! The errors of a store: not applied, unknown, unavailable.

use std::time::Duration;

use dapple_tower::{Reason, Refused};

use crate::Version;

/// The result of an operation that got no reply, in three cases that callers must tell apart.
///
/// ```
/// use dapple_store::{Error, Refusal};
///
/// fn may_repeat(error: &Error) -> bool {
///     match error {
///         Error::NotApplied(_) => false,      // repeating gives the same answer
///         Error::Unknown { .. } => false,     // ask `Store::outcome` first
///         Error::Unavailable(_) => true,      // not applied; later it may work
///         _ => false,
///     }
/// }
/// assert!(!may_repeat(&Error::NotApplied(Refusal::NoSuchTable("users".into()))));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operation did nothing, and would do nothing if it were repeated now.
    #[error("not applied: {0}")]
    NotApplied(#[from] Refusal),
    /// The write may have been applied; `Store::outcome` takes the id.
    #[error("unknown whether operation {id} was applied: {reason}")]
    Unknown {
        /// The operation, for `Store::outcome`.
        id: OperationId,
        /// The reason why the outcome is not known.
        reason: String,
    },
    /// The operation did nothing; it may succeed after the time in the refusal.
    #[error("unavailable: {0}")]
    Unavailable(#[from] Refused),
}

/// The reason why an operation was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The condition of a write did not hold.
    #[error("the condition does not hold: {}", current.map_or("the key has no value".to_owned(), |version| format!("the value has version {version}")))]
    Conflict {
        /// The version of the key, if there is a value.
        current: Option<Version>,
    },
    /// The table was destroyed. A new table of the same name is another one: open it.
    #[error("table `{0}` was destroyed")]
    Destroyed(String),
    /// There is no table of that name.
    #[error("there is no table `{0}`")]
    NoSuchTable(String),
    /// There is a table of that name.
    #[error("table `{0}` exists already")]
    TableExists(String),
    /// The table is of another kind than the caller opens it as.
    #[error("`{table}` is of kind {is}, not {wanted}")]
    WrongKind {
        /// The name of the table.
        table: String,
        /// Its kind: `hash`, `ordered`, `log`, `lock` or `counter`.
        is: &'static str,
        /// The requested kind.
        wanted: &'static str,
    },
    /// A name, key or value is longer than the store allows.
    #[error("the {part} has {len} bytes, and {len_max} are the most")]
    TooLong {
        /// `name`, `key`, `value` or `sum of the values before the batch`.
        part: &'static str,
        /// Its length, bytes.
        len: usize,
        /// The limit, bytes.
        len_max: usize,
    },
    /// A key or value cannot be encoded, or the stored bytes are of another type.
    #[error("{0}")]
    Codec(String),
    /// A watcher was slower than the history is long, and missed changes. Or the history begins
    /// after the cursor, as it does when the store was reopened or got another number of
    /// partitions. Read the table again, then watch from `resume`.
    #[error("changes were missed: they are older than the history that is kept")]
    Lagged {
        /// The moment from which the changes can be had.
        resume: crate::Cursor,
    },
    /// A log was trimmed beyond the position that is read.
    #[error("the log begins at position {first}: the entries before it were trimmed")]
    Trimmed {
        /// The first position that is left.
        first: u64,
    },
    /// The token that guards the write is not that of the newest holder of its lock.
    #[error("the lock has a newer holder: token {} is past, {} is the newest", token.0, newest.0)]
    Fenced {
        /// The token of the write.
        token: crate::Token,
        /// The newest one that was issued.
        newest: crate::Token,
    },
    /// A number would leave its range.
    #[error("the counter would leave the range of 64-bit integers")]
    Overflow,
    /// The closure of [`modify`](crate::Table::modify) panicked.
    #[error("the closure that changes the value panicked")]
    Panicked,
    /// The engine or the table cannot do that.
    #[error("{0}")]
    Unsupported(String),
    /// The engine's file is damaged, in use, of another version, or cannot be read.
    #[error("{0}")]
    Engine(#[from] crate::engine::Failure),
}

/// Identifies a write with an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct OperationId {
    pub(crate) partition: u32,
    pub(crate) number: u64,
}

/// The later outcome of a write that was unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The write was applied and has its table's durability.
    Applied,
    /// The write was not applied and will not be.
    NotApplied,
    /// The store does not know: the partition stopped after an error, or the id is too old or of another process.
    Unknown,
}

impl std::fmt::Display for OperationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.partition, self.number)
    }
}

/// An operation that was refused for now.
pub(crate) fn unavailable(reason: Reason, retry_after: Duration) -> Error {
    Error::Unavailable(Refused::new(reason, retry_after))
}
