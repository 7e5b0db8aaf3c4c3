//! Looks at the served directory that do not wait: what the kernel has in its caches is told on the spot, without a visit to the
//! ring or the pool. Of everything else it says that it would wait, and then it is done in a way that does not hold the worker up.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use dapple::fs::read_cached_at;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::disk::{FileHandle, Root};
use super::meta::{Stamp, State};

/// What a name stands for.
pub(super) enum AtOnce {
    /// The file that is known already.
    Unchanged,
    /// A regular file, read as a whole.
    Read(State, Bytes),
    /// A regular file, open for reading: it is long, or its content is not in the kernel's cache.
    Opened(FileHandle),
    Directory,
    /// Nothing that is served.
    Nothing,
}

impl Root {
    /// Looks `name` up; where the file is in the state `known`, that is all. Files up to `len_max` are read if the kernel has them.
    /// `None`: telling what the name stands for takes the disk, or the kernel cannot say whether it would.
    pub(super) fn look_at_once(&self, name: &[u8], known: Option<Stamp>, len_max: u64) -> Option<AtOnce> {
        let seen = match self.open_at_once(name, OFlags::PATH) {
            Ok(seen) => seen,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP | Errno::NAMETOOLONG) => {
                return Some(AtOnce::Nothing);
            }
            Err(_) => return None,
        };
        let (seen_stamp, kind) = Stamp::and_kind_of(&seen).ok()?;
        match kind {
            FileType::RegularFile => {}
            FileType::Directory => return Some(AtOnce::Directory),
            _ => return Some(AtOnce::Nothing),
        }
        if known == Some(seen_stamp) {
            return Some(AtOnce::Unchanged);
        }
        // If it has become a pipe or a terminal meanwhile, it does not wait either.
        let file = self.open_at_once(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?;
        let content = (seen_stamp.len <= len_max).then(|| read_at_once(&file, seen_stamp.len)).flatten();
        // The same file, and not only a file like it.
        let (after, kind) = Stamp::and_kind_of(&file).ok()?;
        if after != seen_stamp || kind != FileType::RegularFile {
            return None;
        }
        let state = State::new(after, true);
        match content {
            Some(content) => Some(AtOnce::Read(state, content)),
            None => FileHandle::of_opened(file, state).ok().map(AtOnce::Opened),
        }
    }

    fn open_at_once(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = match self.follow {
            true => ResolveFlags::CACHED,
            false => ResolveFlags::CACHED | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        };
        openat2(&self.dir, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }
}

/// Reads a file of this length. The kernel begins to read what it does not have, also where it says so.
fn read_at_once(file: &OwnedFd, len: u64) -> Option<Bytes> {
    let content = read_cached_at(file, 0, len as usize).ok()??;
    (content.len() as u64 == len).then(|| Bytes::from(content))
}
