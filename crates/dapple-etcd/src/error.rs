//! The three cases of a failed call.

use std::time::Duration;

/// The reason why a call failed, sorted by the known effect.
///
/// | case | the store has changed | what to do |
/// |---|---|---|
/// | [`NotApplied`](Error::NotApplied) | no | change the request |
/// | [`Unavailable`](Error::Unavailable) | no | try again later |
/// | [`Unknown`](Error::Unknown) | perhaps | read, and decide |
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// etcd, or this client, refused the request. It had no effect, and would be refused again.
    #[error("etcd did not apply the request: {message}")]
    NotApplied {
        /// The kind of refusal.
        reason: Reason,
        /// The words of etcd.
        message: String,
    },
    /// The request may have been applied: its reply did not arrive.
    #[error("it is unknown whether etcd applied the request: {message}")]
    Unknown {
        /// The last event that the client saw.
        message: String,
    },
    /// No member took the request within the deadline. It had no effect.
    #[error("etcd is unavailable: {message}")]
    Unavailable {
        /// The failure of the last attempt.
        message: String,
        /// The time after which another attempt makes sense.
        retry_after: Duration,
    },
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The request makes no sense to etcd, or this is no etcd.
    Malformed,
    /// The user may not do this, the password is wrong, or etcd wants a user.
    Denied,
    /// There is no such lease.
    NoLease,
    /// etcd has forgotten the history before this revision. Read the present state, and watch from its revision on.
    Compacted {
        /// The oldest revision that a read or a watch may start after.
        revision: i64,
    },
    /// The revision lies in the future.
    FutureRevision,
    /// A request above the limit of etcd (1.5 MiB by default), or a reply above the limit of this client.
    TooLarge,
    /// The database has reached its quota (2 GiB by default, 8 GiB at most): only reads and deletes work until it is compacted, defragmented,
    /// and its alarm is disarmed.
    NoSpace,
    /// Another refusal.
    Other,
}

impl Error {
    pub(crate) fn not_applied(reason: Reason, message: impl Into<String>) -> Error {
        Error::NotApplied { reason, message: message.into() }
    }

    /// The words of etcd, or of this client.
    pub(crate) fn message(&self) -> &str {
        match self {
            Error::NotApplied { message, .. } | Error::Unknown { message } | Error::Unavailable { message, .. } => {
                message
            }
        }
    }

    /// The reason of a request that was not applied.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Error::NotApplied { reason, .. } => Some(*reason),
            Error::Unknown { .. } | Error::Unavailable { .. } => None,
        }
    }
}
