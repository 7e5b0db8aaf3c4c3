//! The start of a path, and opening files from there.

use std::io;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::file::File;
use super::{FILE, engine};
use crate::blocking::run;
use crate::environment;

/// The start of a path, and limits on where it may lead.
#[derive(Clone, Default)]
pub(super) struct PathRoot {
    /// `None`: the current directory.
    pub(super) dir: Option<File>,
    /// The flags of `openat2`, 0 for a path that may lead anywhere.
    pub(super) resolve: u64,
}

impl PathRoot {
    /// Opens a file through the ring of this worker, or in the pool.
    pub(super) async fn open(&self, path: &Path, flags: i32, mode: u32) -> io::Result<std::fs::File> {
        environment::refuse(FILE);
        if let Some(opened) = engine::open_in(self.clone(), path, flags, mode).await {
            return opened;
        }
        let (place, path) = (self.clone(), path.to_owned());
        run(move || place.open_blocking(&path, flags, mode)).await
    }

    /// Opens a file if it is a regular one: looks first, because opening others can have effects.
    /// In the pool, both in one visit.
    pub(super) async fn open_regular(&self, path: &Path, flags: i32, mode: u32) -> io::Result<std::fs::File> {
        environment::refuse(FILE);
        let (look, flags) = (look_flags(flags), flags | NO_WAIT);
        match engine::open_in(self.clone(), path, look, 0).await {
            Some(seen) => {
                let seen = identify(seen, flags)?;
                let opened = self.open(path, flags, mode).await?;
                check(seen, opened).and_then(waiting)
            }
            None => {
                let (place, path) = (self.clone(), path.to_owned());
                run(move || {
                    let seen = identify(place.open_blocking(&path, look, 0), flags)?;
                    check(seen, place.open_blocking(&path, flags, mode)?).and_then(waiting)
                })
                .await
            }
        }
    }

    fn open_blocking(&self, path: &Path, flags: i32, mode: u32) -> io::Result<std::fs::File> {
        let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        let dir = self.dir.as_ref().map_or(CWD, std::os::fd::AsFd::as_fd);
        loop {
            let opened = match self.resolve {
                0 => rustix::fs::openat(dir, path, flags, mode),
                resolve => rustix::fs::openat2(dir, path, flags, mode, ResolveFlags::from_bits_retain(resolve)),
            };
            match opened {
                Err(Errno::INTR) => {}
                opened => return Ok(opened?.into()),
            }
        }
    }
}

/// Identifies the file. `None` if there is none and opening makes one.
fn identify(seen: io::Result<std::fs::File>, flags: i32) -> io::Result<Option<(u64, u64)>> {
    match seen {
        Ok(seen) => regular(&seen).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound && flags & libc::O_CREAT != 0 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Checks that the opened file is the one that was checked before.
fn check(seen: Option<(u64, u64)>, opened: std::fs::File) -> io::Result<std::fs::File> {
    let found = regular(&opened)?;
    match seen.is_none_or(|seen| seen == found) {
        true => Ok(opened),
        false => Err(io::Error::new(io::ErrorKind::NotFound, "the file was replaced while it was opened")),
    }
}

/// Identifies a regular file; others are errors. Does not wait, because the file was just opened.
fn regular(file: &std::fs::File) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((stat.st_dev, stat.st_ino)),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Removes the flag that kept the open call from waiting: with it, some file systems refuse to read
/// data that is not in the kernel's cache.
pub(super) fn waiting(file: std::fs::File) -> io::Result<std::fs::File> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

fn look_flags(flags: i32) -> i32 {
    libc::O_PATH | flags & libc::O_NOFOLLOW
}

/// In case the file has become a pipe or a terminal meanwhile.
const NO_WAIT: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;
