//! A record of the log: 128 bytes, as in the thesis, with a checksum of its own.

use crate::digest::checksum;
use crate::frame::{DIGEST_LEN, Digest};

/// The facts of a task when it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The number that its client gave it.
    pub(crate) id: u64,
    /// Its first digest.
    pub(crate) digest: Digest,
}

/// Appends the record of an entry: the magic, its place in the log, the time (microseconds since
/// 1970), the client's number, the first digest, zeros, and the MD5 of all that.
pub(super) fn encode(entry: &Entry, sequence: u64, time_us: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(MAGIC);
    for number in [sequence, time_us, entry.id] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(&entry.digest);
    out.resize(start + CHECKED_LEN, 0);
    let check = checksum(&out[start..]);
    out.extend_from_slice(&check);
}

/// The place in the log that a record states, if it is a valid record.
pub(super) fn sequence(record: &[u8]) -> Option<u64> {
    let (checked, check) = record.split_at_checked(CHECKED_LEN)?;
    let is_whole = checked.starts_with(MAGIC) && check == checksum(checked);
    let number = checked[MAGIC.len()..].first_chunk().filter(|_| is_whole)?;
    Some(u64::from_be_bytes(*number))
}

/// The magic bytes of a record.
pub(super) const MAGIC: &[u8; 8] = b"DSIGLOG1";

/// The length of a record in bytes.
pub(super) const RECORD_LEN: usize = 128;

const CHECKED_LEN: usize = RECORD_LEN - DIGEST_LEN;
