//! Hidden names: those of files that are not whole yet, and of trees that are to be removed.
//!
//! The process that made such a name holds a lock of the file (`flock`), which the kernel gives back when the process ends. So a crash
//! left a name that is old and has a free lock. A listing of the directory removes it.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use dapple_sched::environment::{random, system_now};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::attributes::{Attributes, Kind};
use crate::path::RESERVED_PREFIX;

/// A name that no other file has: of this process by its count, of another by a random number.
pub(super) fn free_name() -> String {
    let count = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("{}{count:x}", own_prefix())
}

/// Marks an open file, or a directory, as one in use. Where the file system has no such locks, only the age of a name protects it.
pub(super) fn hold(file: impl AsFd) {
    let _ = fs::flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Removes what a crash left under a hidden name; a name in use stays.
pub(super) fn sweep(dir: impl AsFd, name: &CStr) {
    let dir = dir.as_fd();
    if name.to_bytes().starts_with(own_prefix().as_bytes()) {
        return;
    }
    let Ok(found) = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Attributes::of(&stat)) else { return };
    let now = system_now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    if !matches!(found.kind, Kind::File | Kind::Directory) || found.modified.seconds > now - AGE_MIN_S {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(dir, name, flags, Mode::empty()) else { return };
    if fs::flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::AGAIN) {
        return;
    }
    match remove_all(dir, name) {
        Ok(()) => tracing::info!(?name, "removed what a crash left"),
        Err(error) => tracing::warn!(?name, %error, "what a crash left cannot be removed"),
    }
}

/// Removes a file, or a directory with all that it holds.
///
/// # Errors
///
/// Errors of the kernel, after which a part may be left; `ELOOP` for a tree that is too deep.
pub(super) fn remove_all(dir: impl AsFd, name: &CStr) -> io::Result<()> {
    remove_level(dir.as_fd(), name, 0)
}

fn remove_level(dir: std::os::fd::BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    if depth >= DEPTH_MAX {
        return Err(Errno::LOOP.into());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = fs::openat(dir, name, flags, Mode::empty())?;
    for entry in fs::Dir::read_from(&below)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            remove_level(below.as_fd(), entry.file_name(), depth + 1)?;
        }
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The beginning of all hidden names of this process.
fn own_prefix() -> &'static str {
    static PREFIX: OnceLock<String> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let reserved = std::str::from_utf8(RESERVED_PREFIX).unwrap_or_default();
        format!("{reserved}{:016x}-", random())
    })
}

static NAMES: AtomicU64 = AtomicU64::new(0);

/// A younger name may be one that its process has made and not locked yet.
const AGE_MIN_S: i64 = 60;

/// Twice as deep as a path in the tree can be.
const DEPTH_MAX: usize = 2 * crate::path::DEPTH_MAX;
