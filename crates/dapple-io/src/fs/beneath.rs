//! Several blocking calls below one directory, in one visit to the pool.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::FILE;
use super::dir::{ATTEMPTS_MAX, Dir};
use crate::blocking::run;
use crate::environment;

/// A directory that a job of [`Dir::run_beneath`] works in. Its calls block.
///
/// A symbolic link is never followed, not even one that leads back inside: a path through a link fails with `ELOOP`
/// (`FilesystemLoop`), and the last name of a path may be the link itself. So a link that another program swaps in between two calls
/// leads nowhere.
pub struct Beneath {
    dir: Dir,
    /// Only names that the kernel has in memory.
    is_cached_only: bool,
}

impl Dir {
    /// Runs a job in the blocking pool that works below this directory: for calls on names, such as `mkdirat` and `renameat2`, and for
    /// several of them in one visit.
    ///
    /// ```
    /// use dapple_io::fs::Dir;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// let found = runtime.block_on(async {
    ///     let dir = Dir::open("/proc").await?;
    ///     let path = std::path::Path::new("sys/kernel/ostype");
    ///     dir.run_beneath(move |beneath| std::io::read_to_string(beneath.open(path, libc::O_RDONLY, 0)?)).await
    /// })?;
    /// assert_eq!(found, "Linux\n");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Cancel safety
    ///
    /// The job happens as a whole even if the future is dropped, except while it waits for room in the blocking pool: then not at all.
    ///
    /// # Errors
    ///
    /// Errors of the job; there is no runtime here; the queue of the pool is full.
    pub async fn run_beneath<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Beneath) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        environment::refuse(FILE);
        let beneath = Beneath { dir: self.clone(), is_cached_only: false };
        run(move || job(&beneath)).await
    }

    /// As [`run_beneath`](Self::run_beneath), for a job that only opens files without making them, and looks at what it opened: it runs
    /// at once, without the pool, if the kernel has all names in memory (`RESOLVE_CACHED`, Linux 5.12). The job may be run twice, and
    /// must return the error `WouldBlock` of [`Beneath::open`] if it meets one.
    ///
    /// # Cancel safety
    ///
    /// As [`run_beneath`](Self::run_beneath).
    ///
    /// # Errors
    ///
    /// As [`run_beneath`](Self::run_beneath).
    pub async fn look_beneath<T: Send + 'static>(
        &self,
        job: impl Fn(&Beneath) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        environment::refuse(FILE);
        match job(&Beneath { dir: self.clone(), is_cached_only: true }) {
            // The kernel knows no RESOLVE_CACHED, or would have to wait for the disk.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINVAL)) => {
                self.run_beneath(job).await
            }
            done => done,
        }
    }
}

impl Beneath {
    /// Opens a file by a relative path; `.` is the directory itself. `flags` are those of `open(2)`, `mode` counts if a file is made.
    ///
    /// # Errors
    ///
    /// `CrossesDevices` (`EXDEV`) for a path that leads out, and for an absolute one; `ELOOP` for one through a link; `Unsupported`
    /// (`ENOSYS`) before Linux 5.6; `WouldBlock` if renames elsewhere disturb it repeatedly; other errors of the kernel.
    pub fn open(&self, path: impl AsRef<Path>, flags: i32, mode: u32) -> io::Result<std::fs::File> {
        let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        resolve.set(ResolveFlags::CACHED, self.is_cached_only);
        let mut attempts = if self.is_cached_only { ATTEMPTS_MAX } else { 1 };
        loop {
            let opened = rustix::fs::openat2(&self.dir, path.as_ref(), flags, Mode::from_raw_mode(mode), resolve);
            match opened {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if attempts < ATTEMPTS_MAX => attempts += 1,
                opened => return Ok(opened?.into()),
            }
        }
    }

    /// Opens the directory that holds the last name of a path, and returns that name, for calls such as `mkdirat`.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the path has no last name (it is empty, or ends with `.` or `..`); otherwise as [`open`](Self::open).
    pub fn parent<'n>(&self, path: &'n Path) -> io::Result<(std::fs::File, &'n OsStr)> {
        let bytes = path.as_os_str().as_bytes();
        let (parent, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
            // An absolute path, which `open` refuses.
            Some(0) => (&bytes[..1], &bytes[1..]),
            Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
            None => (&b"."[..], bytes),
        };
        if name.is_empty() || name == b"." || name == b".." {
            let text = format!("{} has no last name: it must not end with `/`, `.` or `..`", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let parent = self.open(OsStr::from_bytes(parent), libc::O_PATH | libc::O_DIRECTORY, 0)?;
        Ok((parent, OsStr::from_bytes(name)))
    }
}

impl AsFd for Beneath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl fmt::Debug for Beneath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beneath").field("dir", &self.dir).finish_non_exhaustive()
    }
}
