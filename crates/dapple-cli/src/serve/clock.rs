//! How long what the caches know is taken for true.

pub(crate) use crate::http::clock::now_ms;

/// How long a page or a file handle is served without a look at the file system. A changed file is to show within one
/// second: this, the look itself, and room for one look that was given up half-way.
pub(crate) const FRESH_MS: u64 = 400;
