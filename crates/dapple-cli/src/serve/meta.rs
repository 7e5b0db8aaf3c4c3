//! The metadata of a file without its content, with header values made once.

use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use dapple_http::conditional::Validators;
use http::header::{ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use rustix::fs::{AtFlags, FileType, Stat, Statx, StatxFlags};
use rustix::io::Errno;

use crate::http::SharedHead;

/// Identifies one state of one file. Equal stamps mean equal content (but see [`State::certain`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    /// Size in bytes.
    pub(crate) len: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// The state of a file, and whether its content certainly matches it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) stamp: Stamp,
    /// Whether the content certainly belongs to the state with that stamp: the file did not change
    /// during the read, nor so recently that another change could have the same time stamp.
    /// Uncertain content is read again at the next check, and has an `ETag` that is never used
    /// again.
    pub(crate) certain: bool,
}

/// The metadata of one representation, made once for all its replies.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) content_type: HeaderValue,
    pub(crate) etag: HeaderValue,
    /// When it last changed, in whole seconds since 1970; `None` for a page that is not a file.
    pub(crate) modified_s: Option<u64>,
    /// Whether the same content may have encoded variants.
    pub(crate) negotiable: bool,
    /// The generation of the rules by which the fields were made.
    pub(crate) generation: u64,
    /// The fields of `200` and `206`.
    pub(crate) head: Arc<SharedHead>,
    /// The same for `304`; most pages never need it.
    unchanged: OnceLock<Arc<SharedHead>>,
}

impl Stamp {
    /// The current state of an open file. The kernel answers from memory, without asking a server
    /// of a network file system, so this does not wait; the answer is at least as new as the
    /// opening of the file.
    pub(crate) fn of(file: impl AsFd) -> Result<Stamp, Errno> {
        Ok(Stamp::and_kind_of(file)?.0)
    }

    /// The same, and the type of the file.
    pub(crate) fn and_kind_of(file: impl AsFd) -> Result<(Stamp, FileType), Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        match rustix::fs::statx(&file, c"", flags, StatxFlags::BASIC_STATS) {
            Ok(statx) => Ok((Stamp::of_statx(&statx), FileType::from_raw_mode(u32::from(statx.stx_mode)))),
            // A sandbox may not know the call.
            Err(Errno::NOSYS | Errno::PERM) => {
                let stat = rustix::fs::fstat(file)?;
                Ok((Stamp::of_stat(&stat), FileType::from_raw_mode(stat.st_mode)))
            }
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

    /// When it last changed, in whole seconds since 1970.
    pub(crate) fn modified_s(&self) -> u64 {
        time(self.modified).as_secs()
    }

    /// Whether this state is older than `other`.
    pub(crate) fn is_older_than(&self, other: &Stamp) -> bool {
        self.modified < other.modified
    }

    /// Whether the last change is so old that a later one must have another time stamp: the
    /// kernel's clock for time stamps ticks every few milliseconds, and two changes within one tick
    /// look the same.
    fn is_settled(&self) -> bool {
        let changed = SystemTime::UNIX_EPOCH + time(self.changed);
        SystemTime::now().duration_since(changed).is_ok_and(|age| age >= TICK_MAX)
    }
}

impl State {
    /// The state of a file, given whether it was seen `unchanged` around the read.
    pub(crate) fn new(stamp: Stamp, unchanged: bool) -> State {
        State { stamp, certain: unchanged && stamp.is_settled() }
    }

    /// The inner part of its entity tag.
    pub(crate) fn tag(&self) -> String {
        let mut tag = format!("{:x}-{:x}", self.stamp.len, time(self.stamp.modified).as_nanos());
        if !self.certain {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            tag.push_str(&format!("-{:x}", now.as_nanos()));
        }
        tag
    }
}

impl Meta {
    /// The metadata for these fields, some of which are copied for comparisons.
    pub(crate) fn new(headers: HeaderMap, modified_s: Option<u64>, negotiable: bool, generation: u64) -> Meta {
        let value = |name| headers.get(name).cloned().unwrap_or(HeaderValue::from_static(""));
        Meta {
            content_type: value(CONTENT_TYPE),
            etag: value(ETAG),
            modified_s,
            negotiable,
            generation,
            head: Arc::new(SharedHead::new(headers)),
            unchanged: OnceLock::new(),
        }
    }

    /// The fields of a `304`: what a cache needs to keep using its copy, without the description of
    /// the content (RFC 9110, 15.4.5).
    pub(crate) fn unchanged(&self) -> &Arc<SharedHead> {
        self.unchanged.get_or_init(|| {
            let describes = [ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_TYPE, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS];
            let headers = self.head.headers.iter().filter(|(name, _)| !describes.contains(name));
            Arc::new(SharedHead::new(headers.map(|(name, value)| (name.clone(), value.clone())).collect()))
        })
    }

    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators { etag: Some(self.etag.as_bytes()), modified_s: self.modified_s }
    }
}

/// Time since 1970; earlier times count as 1970, and times that HTTP cannot write (after 9999) as
/// its last second.
fn time((seconds, nanoseconds): (i64, u64)) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(SECONDS_MAX);
    Duration::new(seconds, nanoseconds.min(999_999_999) as u32)
}

/// Twice the longest tick of the kernel's coarse clock (100 Hz), for safety.
const TICK_MAX: Duration = Duration::from_millis(20);

/// 9999-12-31 23:59:59.
const SECONDS_MAX: u64 = 253_402_300_799;
