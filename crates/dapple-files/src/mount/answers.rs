//! Attributes and errors, as the kernel takes them.

use std::time::{Duration, SystemTime};

use dapple::time::Instant;
use fuser::{Errno, FileAttr, FileType, INodeNo};

use super::Shared;
use crate::tree::{Attributes, FileTime, Kind, NewTime};

impl Shared {
    /// Attributes for the kernel.
    pub(super) fn attr(&self, number: u64, attributes: &Attributes) -> FileAttr {
        let (uid, gid) = self.owner.unwrap_or((attributes.user, attributes.group));
        FileAttr {
            ino: INodeNo(number),
            size: attributes.len,
            blocks: attributes.blocks,
            atime: attributes.accessed.to_system_time(),
            mtime: attributes.modified.to_system_time(),
            ctime: attributes.changed.to_system_time(),
            crtime: attributes.changed.to_system_time(),
            kind: match attributes.kind {
                Kind::File => FileType::RegularFile,
                Kind::Directory => FileType::Directory,
                Kind::Link => FileType::Symlink,
                Kind::Pipe => FileType::NamedPipe,
                Kind::Socket => FileType::Socket,
                Kind::Device => FileType::CharDevice,
            },
            perm: attributes.mode as u16,
            nlink: attributes.links,
            uid,
            gid,
            rdev: 0,
            blksize: 128 << 10,
            flags: 0,
        }
    }
}

/// The attributes of a name that is free.
pub(super) fn no_attr() -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

pub(super) fn errno(number: i32) -> Errno {
    Errno::from_i32(number)
}

pub(super) fn new_time(time: fuser::TimeOrNow) -> NewTime {
    match time {
        fuser::TimeOrNow::Now => NewTime::Now,
        fuser::TimeOrNow::SpecificTime(time) => NewTime::At(FileTime::from_system_time(time)),
    }
}

impl super::Open {
    /// The beginning of the file may have changed.
    pub(super) fn forget_first(&mut self) {
        self.first.clear();
        self.is_whole = false;
        self.first_until = Instant::now();
    }

    /// The bytes of a read, if the beginning that came with the opening has them.
    pub(super) fn read_first(&self, offset: u64, len: usize) -> Option<bytes::Bytes> {
        if self.first.is_empty() || self.first_until <= Instant::now() {
            return None;
        }
        let start = usize::try_from(offset).ok()?.min(self.first.len());
        let end = start.saturating_add(len);
        // Beyond the whole file there is nothing to ask for.
        (end <= self.first.len() || self.is_whole).then(|| self.first.slice(start..end.min(self.first.len())))
    }
}

/// No time at all.
pub(super) const NOW: Duration = Duration::ZERO;
