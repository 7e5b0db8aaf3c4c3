//! Look-ups in the served directory that do not wait: they answer from the kernel's caches, without
//! the ring or the pool. For all other cases they report that they would wait, and the caller takes
//! a way that does not block the worker.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use dapple::fs::read_cached_at;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use super::disk::{FileHandle, Root};
use super::meta::{Stamp, State};

/// The result of a look-up that does not wait.
pub(super) enum AtOnce {
    /// The same file as before.
    Unchanged,
    /// A regular file, read completely.
    Read(State, Bytes),
    /// A regular file, open for reading: it is long, or the kernel does not have its content in
    /// memory.
    Opened(FileHandle),
    Directory,
    /// Nothing that can be served.
    Nothing,
}

impl Root {
    /// Looks `name` up. Stops if the file is in the state `known`. Reads files up to `len_max` if
    /// the kernel has them in memory. `None` if the look-up needs the disk, or the kernel cannot
    /// say whether it would.
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
        // If the file has become a pipe or a terminal meanwhile, this does not wait either.
        let file = self.open_at_once(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY).ok()?;
        let content = (seen_stamp.len <= len_max).then(|| read_at_once(&file, seen_stamp.len)).flatten();
        // It must be the same file, not only a similar one.
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

/// Reads a file of this length. If the kernel does not have it all, the kernel starts to read it.
fn read_at_once(file: &OwnedFd, len: u64) -> Option<Bytes> {
    let content = read_cached_at(file, 0, len as usize).ok()??;
    (content.len() as u64 == len).then(|| Bytes::from(content))
}
