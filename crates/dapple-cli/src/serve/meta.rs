//! What is known about a file without its content, with the header values made once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dapple::fs::File;
use http::HeaderValue;
use rustix::fs::{AtFlags, Stat, Statx, StatxFlags};
use rustix::io::Errno;

use super::reply;
use crate::http::SharedHead;

/// What identifies one state of one file. Equal stamps, equal content (but see [`Meta::certain`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    /// Size in bytes.
    pub(crate) len: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// A file's validators and type, as they stand in a response.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    pub(crate) stamp: Stamp,
    /// Whether the content that goes with this is surely all of one state, and that the one of the stamp: it was not
    /// changed while being read, nor so recently that another change could hide behind the same time stamp. What is not
    /// certain is read again at the next check, and has an `ETag` that nothing else ever has.
    pub(crate) certain: bool,
    pub(crate) content_type: HeaderValue,
    pub(crate) etag: HeaderValue,
    pub(crate) last_modified: HeaderValue,
    /// These three and what else all replies with this content say.
    pub(crate) head: Arc<SharedHead>,
    /// The same time in whole seconds since 1970, to compare with `If-Modified-Since`.
    pub(crate) modified_s: u64,
}

impl Stamp {
    /// The present state of an open file. The kernel asks nobody for this (no server of a network file system, that is), so it does
    /// not wait; what it knows is at least as new as the opening of the file.
    pub(crate) fn of(file: &File) -> Result<Stamp, Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        match rustix::fs::statx(file, c"", flags, StatxFlags::BASIC_STATS) {
            Ok(statx) => Ok(Stamp::of_statx(&statx)),
            // A sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => Ok(Stamp::of_stat(&rustix::fs::fstat(file)?)),
            Err(error) => Err(error),
        }
    }

    fn of_statx(statx: &Statx) -> Stamp {
        Stamp {
            device: rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor),
            inode: statx.stx_ino,
            len: statx.stx_size,
            modified: (statx.stx_mtime.tv_sec, u64::from(statx.stx_mtime.tv_nsec)),
            changed: (statx.stx_ctime.tv_sec, u64::from(statx.stx_ctime.tv_nsec)),
        }
    }

    fn of_stat(stat: &Stat) -> Stamp {
        Stamp {
            device: stat.st_dev,
            inode: stat.st_ino,
            len: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether the last change is old enough that a later one must show in the time stamps: the kernel's clock for
    /// them ticks every few milliseconds, and two changes within one tick look like one.
    fn is_settled(&self) -> bool {
        let changed = SystemTime::UNIX_EPOCH + time(self.changed);
        SystemTime::now().duration_since(changed).is_ok_and(|age| age >= TICK_MAX)
    }
}

impl Meta {
    /// Makes the header values for a file in the state `stamp`, whose content was seen `unchanged` around it.
    pub(crate) fn new(content_type: HeaderValue, stamp: Stamp, unchanged: bool) -> Meta {
        let modified = time(stamp.modified);
        let certain = unchanged && stamp.is_settled();
        let mut etag = format!("\"{:x}-{:x}", stamp.len, modified.as_nanos());
        if !certain {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            etag.push_str(&format!("-{:x}", now.as_nanos()));
        }
        etag.push('"');
        let last_modified = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + modified);
        let etag = HeaderValue::try_from(etag).expect("hexadecimal digits and quotes are header characters");
        let last_modified = HeaderValue::try_from(last_modified).expect("an HTTP date is made of header characters");
        let head = Arc::new(reply::shared_head(&content_type, &etag, &last_modified));
        Meta { stamp, certain, content_type, etag, last_modified, head, modified_s: modified.as_secs() }
    }
}

/// Time since 1970; what lies before counts as 1970, what HTTP cannot write (after 9999) as its last second.
fn time((seconds, nanoseconds): (i64, u64)) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(SECONDS_MAX);
    Duration::new(seconds, nanoseconds.min(999_999_999) as u32)
}

/// The longest tick of the kernel's coarse clock (100 Hz), with as much again for safety.
const TICK_MAX: Duration = Duration::from_millis(20);

/// 9999-12-31 23:59:59.
const SECONDS_MAX: u64 = 253_402_300_799;
