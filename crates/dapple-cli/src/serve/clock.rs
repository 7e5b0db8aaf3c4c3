//! How long cached facts about files are trusted.

pub(crate) use crate::http::clock::now_ms;

/// How long a page or a file handle is served without checking the file system. A changed file
/// should show within one second. That second covers this time, the check itself, and one check
/// that was abandoned halfway.
pub(crate) const FRESH_MS: u64 = 400;
