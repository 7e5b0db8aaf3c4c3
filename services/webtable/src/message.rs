//! The messages between front ends and hosts of tables.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A request to a host of tables.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// The file at a path, without a body that is longer than `body_len_max`.
    File { path: String, body_len_max: usize },
    /// Replaces the file at a path, or removes it, if it is still the one that is expected.
    Change { path: String, expected: Expected, file: Option<File> },
    /// The rows from one key on, up to another one.
    Rows { first: String, end: String },
    /// Sets rows, or removes those of `None`, all at one moment, if the check of a key holds.
    ChangeRows { check: (String, Expected), rows: Changes },
}

/// An answer. Other outcomes are errors of the stage: a refusal has certainly not run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    File(Option<(Stamp, File)>),
    Rows(Vec<Row>),
    /// The change is on the disk; the stamp is that of a new file.
    Changed(Stamp),
    /// A check did not hold, and nothing has changed.
    Conflict,
    /// The change may have been made, or not.
    Unknown,
    /// No store can keep such a key or value, for this reason.
    Unfit(String),
}

/// The key, the version and the value of a row.
pub(crate) type Row = (String, u64, String);
/// Rows with their new values.
pub(crate) type Changes = Vec<(String, Option<String>)>;

/// The present state that a change expects.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Expected {
    Any,
    Absent,
    Version(u64),
}

/// A file in the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct File {
    /// The value of `Content-Type`.
    pub(crate) kind: String,
    /// Seconds since 1970; the host sets it.
    pub(crate) modified_s: u64,
    pub(crate) body: Bytes,
}

/// The identity of a file's content. The time tells files of a store that was made anew from those before.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// The version in the store.
    pub(crate) version: u64,
    pub(crate) modified_s: u64,
    /// The length of the body, which an answer may lack.
    pub(crate) len: usize,
}

/// The longest file, in bytes.
pub(crate) const FILE_LEN_MAX: usize = 4 << 20;
/// The longest message: a file, and what is around it.
pub(crate) const MESSAGE_LEN_MAX: usize = FILE_LEN_MAX + (64 << 10);
