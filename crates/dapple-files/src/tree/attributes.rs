//! The attributes of a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

/// The identity of a file on the server, whatever its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId {
    /// The device that the file is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, which the tree stores and never follows.
    Link,
    /// A named pipe. It connects programs of one machine, so the tree only keeps its name.
    Pipe,
    /// A socket; likewise.
    Socket,
    /// A device: it can be removed and renamed, and neither made nor opened.
    Device,
}

/// A time, as the server's file system keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileTime {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The identity.
    pub node: NodeId,
    /// The kind.
    pub kind: Kind,
    /// The length in bytes.
    pub len: u64,
    /// The bytes that it takes on the disk, in blocks of 512.
    pub blocks: u64,
    /// The permissions, 0 to 0o7777.
    pub mode: u32,
    /// The number of names.
    pub links: u32,
    /// The owner's number on the server.
    pub user: u32,
    /// The group's number on the server.
    pub group: u32,
    /// The last read, as far as the server's file system notes reads.
    pub accessed: FileTime,
    /// The last change of its data.
    pub modified: FileTime,
    /// The last change of its data or attributes.
    pub changed: FileTime,
}

impl Attributes {
    pub(super) fn of(stat: &Stat) -> Attributes {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            FileType::Fifo => Kind::Pipe,
            FileType::Socket => Kind::Socket,
            _ => Kind::Device,
        };
        let time = |seconds, nanoseconds: u64| FileTime { seconds, nanoseconds: nanoseconds as u32 };
        Attributes {
            node: NodeId { device: stat.st_dev, inode: stat.st_ino },
            kind,
            len: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            mode: stat.st_mode & 0o7777,
            links: stat.st_nlink as u32,
            user: stat.st_uid,
            group: stat.st_gid,
            accessed: time(stat.st_atime, stat.st_atime_nsec),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// A validator that changes with every change of the data: the text of an entity tag, without quotes.
    pub fn tag(&self) -> String {
        let (changed, modified) = (self.changed, self.modified);
        let modified =
            (modified.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(modified.nanoseconds));
        let changed = (changed.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(changed.nanoseconds));
        format!("{:x}-{:x}-{:x}-{:x}", self.node.inode, self.len, modified, changed)
    }
}

impl FileTime {
    /// As the standard library has it; times before 1970 become 1970, and those after 9999, which the
    /// dates of HTTP cannot show, the end of 9999.
    pub fn to_system_time(self) -> SystemTime {
        let seconds = u64::try_from(self.seconds).unwrap_or(0).min(LAST_SECOND);
        let since = Duration::new(seconds, self.nanoseconds.min(999_999_999));
        UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
    }

    /// From the standard library's time.
    pub fn from_system_time(time: SystemTime) -> FileTime {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => FileTime { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
            Err(_) => FileTime::default(),
        }
    }
}

/// The last second of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// Changes of attributes; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeChange {
    /// The new length of a regular file, in bytes.
    pub len: Option<u64>,
    /// The new permissions, 0 to 0o7777.
    pub mode: Option<u32>,
    /// The new owner's number, where the server's user may change it.
    pub user: Option<u32>,
    /// The new group's number, where the server's user may change it.
    pub group: Option<u32>,
    /// The new time of the last read.
    pub accessed: Option<NewTime>,
    /// The new time of the last change of its data.
    pub modified: Option<NewTime>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewTime {
    /// The server's present time.
    Now,
    /// This time.
    At(FileTime),
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name: any bytes but NUL and `/`.
    pub name: Vec<u8>,
    /// The attributes.
    pub attributes: Attributes,
}

/// The room of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All bytes.
    pub total: u64,
    /// The free bytes, those kept for the system's administrator among them.
    pub free: u64,
    /// The bytes that the server may still write.
    pub available: u64,
    /// All files that there may be.
    pub files: u64,
    /// The files that may still be made.
    pub files_free: u64,
    /// The most bytes of a name.
    pub name_len_max: u32,
}

#[cfg(test)]
mod tests {
    use super::FileTime;

    #[test]
    fn every_time_can_be_shown_as_a_date_of_http() {
        for seconds in [i64::MIN, -1, 0, 253_402_300_799, 253_402_300_800, 300_000_000_000, i64::MAX] {
            let shown = httpdate::fmt_http_date(FileTime { seconds, nanoseconds: 999_999_999 }.to_system_time());
            let expected = if seconds <= 0 { "01 Jan 1970" } else { "31 Dec 9999" };
            assert!(shown.contains(expected), "{seconds}: {shown}");
        }
    }
}
