//! What is known about a file without its content, with the header values made once.

use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use dapple_http::conditional::Validators;
use http::header::{ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_TYPE, ETAG, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue};
use rustix::fs::{AtFlags, FileType, Stat, Statx, StatxFlags};
use rustix::io::Errno;

use crate::http::SharedHead;

/// What identifies one state of one file. Equal stamps, equal content (but see [`State::certain`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    /// Size in bytes.
    pub(crate) len: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// The state of a file, and whether its content surely is all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    pub(crate) stamp: Stamp,
    /// Whether the content that goes with this is surely all of one state, and that the one of the stamp: it was not
    /// changed while being read, nor so recently that another change could hide behind the same time stamp. What is not
    /// certain is read again at the next check, and has an `ETag` that nothing else ever has.
    pub(crate) certain: bool,
}

/// What the replies with one representation say about it, made once for all of them.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) content_type: HeaderValue,
    pub(crate) etag: HeaderValue,
    /// When it was changed, in whole seconds since 1970; nothing for what is no file.
    pub(crate) modified_s: Option<u64>,
    /// Whether there may be others of the same content, with a coding.
    pub(crate) negotiable: bool,
    /// Of the rules by which the fields were made.
    pub(crate) generation: u64,
    /// The fields of `200` and `206`.
    pub(crate) head: Arc<SharedHead>,
    /// The same for `304`; most pages never need it.
    unchanged: OnceLock<Arc<SharedHead>>,
}

impl Stamp {
    /// The present state of an open file. The kernel asks nobody for this (no server of a network file system, that is), so it does
    /// not wait; what it knows is at least as new as the opening of the file.
    pub(crate) fn of(file: impl AsFd) -> Result<Stamp, Errno> {
        Ok(Stamp::and_kind_of(file)?.0)
    }

    /// The same, and what kind of file it is.
    pub(crate) fn and_kind_of(file: impl AsFd) -> Result<(Stamp, FileType), Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        match rustix::fs::statx(&file, c"", flags, StatxFlags::BASIC_STATS) {
            Ok(statx) => Ok((Stamp::of_statx(&statx), FileType::from_raw_mode(u32::from(statx.stx_mode)))),
            // A sandbox that does not know the call.
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

    /// When it was changed, in whole seconds since 1970.
    pub(crate) fn modified_s(&self) -> u64 {
        time(self.modified).as_secs()
    }

    /// Whether this was changed before `other` was.
    pub(crate) fn is_older_than(&self, other: &Stamp) -> bool {
        self.modified < other.modified
    }

    /// Whether the last change is old enough that a later one must show in the time stamps: the kernel's clock for
    /// them ticks every few milliseconds, and two changes within one tick look like one.
    fn is_settled(&self) -> bool {
        let changed = SystemTime::UNIX_EPOCH + time(self.changed);
        SystemTime::now().duration_since(changed).is_ok_and(|age| age >= TICK_MAX)
    }
}

impl State {
    /// The state of a file whose content was seen `unchanged` around it.
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
    /// What goes with these fields, of which some are named once more, to compare with.
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

    /// The fields of a `304`: what a cache needs to go on with its copy, and not what describes the content (RFC 9110, 15.4.5).
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

/// Time since 1970; what lies before counts as 1970, what HTTP cannot write (after 9999) as its last second.
fn time((seconds, nanoseconds): (i64, u64)) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(SECONDS_MAX);
    Duration::new(seconds, nanoseconds.min(999_999_999) as u32)
}

/// The longest tick of the kernel's coarse clock (100 Hz), with as much again for safety.
const TICK_MAX: Duration = Duration::from_millis(20);

/// 9999-12-31 23:59:59.
const SECONDS_MAX: u64 = 253_402_300_799;
