//! Calls for the ring of the current worker.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::file::File;
use super::metadata::Metadata;
use super::place::PathRoot;
use crate::descriptors::is_shortage;
use crate::driver::uring::{self, INLINE_MAX, Operation, Request};

/// Performs a call until no signal interrupts it; its memory is not needed afterwards.
pub(super) async fn repeat(mut perform: impl FnMut() -> Operation) -> io::Result<u32> {
    loop {
        match perform().await.0 {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Opens a file. `None` if there is no ring here, or the standard library has an error for the
/// path.
pub(super) async fn open(path: &Path, flags: i32, mode: u32) -> Option<io::Result<std::fs::File>> {
    open_in(PathRoot::default(), path, flags, mode).await
}

/// As `open`, from another directory.
pub(super) async fn open_in(place: PathRoot, path: &Path, flags: i32, mode: u32) -> Option<io::Result<std::fs::File>> {
    let path = path.as_os_str().as_bytes();
    if path.contains(&0) {
        return None;
    }
    let ring = uring::here()?;
    // `openat2` refuses what `openat` only ignores.
    let large = if place.resolve == 0 { libc::O_LARGEFILE } else { 0 };
    let flags = flags | libc::O_CLOEXEC | large;
    let opened = repeat(|| ring.perform(Request::open(place.dir.clone(), path, flags, mode, place.resolve))).await;
    // SAFETY: the kernel has just opened it for this call, and no other code knows it.
    Some(opened.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) }.into()))
}

/// Looks up the file at a path; `flags` say how far to follow links. `None` if there is no ring
/// here, or no descriptor; the standard library needs neither.
pub(super) async fn metadata(path: &Path, flags: i32) -> Option<io::Result<Metadata>> {
    match open(path, libc::O_PATH | flags, 0).await? {
        Ok(file) => Some(File::from_std(file).metadata().await),
        Err(error) if is_shortage(&error) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Reads a file with offsets to its end.
pub(super) async fn read_to_end(file: &File) -> io::Result<Vec<u8>> {
    let mut read = file.read_at(0, INLINE_MAX).await?;
    let mut part_len = INLINE_MAX;
    // A short read does not mean the end: reads of files in /proc can be short before it.
    while !read.is_empty() {
        let part = file.read_at(read.len() as u64, part_len).await?;
        if part.is_empty() {
            break;
        }
        read.extend_from_slice(&part);
        part_len = (part_len * 2).min(PART_MAX);
    }
    Ok(read)
}

/// The part of a long file that is read at once.
const PART_MAX: usize = 1024 * 1024;
