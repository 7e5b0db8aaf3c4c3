//! Options for opening a file.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::engine;
use super::file::File;
use super::place::{PathRoot, waiting};
use super::simulated::{self, Access, OnDisk};
use super::{FILE, with_path};
use crate::environment::{self, DiskOpen};

/// Options for opening a file, as in [`std::fs::OpenOptions`], from which they can be converted.
///
/// Options converted from those of the standard library open files in the blocking pool, because
/// their flags cannot be read.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    std: std::fs::OpenOptions,
    /// The same, for io_uring.
    known: Option<Known>,
    /// Flags that the standard library has no option for.
    more: i32,
    regular_only: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
}

impl OpenOptions {
    /// Options that allow nothing yet.
    #[expect(clippy::new_without_default, reason = "no option is a good default")]
    pub fn new() -> Self {
        OpenOptions { std: std::fs::OpenOptions::new(), known: Some(Known::default()), more: 0, regular_only: false }
    }

    /// Allows reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.std.read(read);
        self.set(|known| known.read = read)
    }

    /// Allows writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.std.write(write);
        self.set(|known| known.write = write)
    }

    /// Makes every write go to the end, whatever its offset.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.std.append(append);
        self.set(|known| known.append = append)
    }

    /// Empties the file.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.std.truncate(truncate);
        self.set(|known| known.truncate = truncate)
    }

    /// Makes the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.std.create(create);
        self.set(|known| known.create = create)
    }

    /// Makes the file, and fails if it exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.std.create_new(create_new);
        self.set(|known| known.create_new = create_new)
    }

    /// Makes reads and writes bypass the kernel's cache, straight between the device and the
    /// program's memory (`O_DIRECT`). Offsets and lengths must then be multiples of the device's
    /// alignment, 512 or 4096; see [`File::read_buf_at`]. Replaces flags set by `custom_flags` of
    /// the standard library.
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.set_more(libc::O_DIRECT, direct)
    }

    /// Does not wait in the open call: a FIFO opens even without a process at its other end, and a
    /// terminal does not become this process's own (`O_NONBLOCK`, which is removed afterwards, and
    /// `O_NOCTTY`). Replaces flags set by `custom_flags` of the standard library.
    pub fn nonblocking(&mut self, nonblocking: bool) -> &mut Self {
        self.set_more(libc::O_NONBLOCK | libc::O_NOCTTY, nonblocking)
    }

    /// Opens the file only for its metadata: it cannot be read, and opening has no effects on it
    /// (`O_PATH`). Replaces flags set by `custom_flags` of the standard library.
    pub fn path_only(&mut self, path_only: bool) -> &mut Self {
        self.set_more(libc::O_PATH, path_only)
    }

    /// Whether to open a symbolic link's target at the end of the path; `false` refuses it
    /// (`O_NOFOLLOW`). Default: `true`. Replaces flags set by `custom_flags` of the standard
    /// library.
    pub fn follow_link(&mut self, follow_link: bool) -> &mut Self {
        self.set_more(libc::O_NOFOLLOW, !follow_link)
    }

    /// Opens regular files only, and does not affect others, such as pipes, devices and
    /// directories: it looks before it opens, and checks that it opened the same file. Without
    /// io_uring, one job in the pool does both.
    ///
    /// Others are errors: `IsADirectory`, or `InvalidInput`. If the file is replaced at that
    /// moment, the error is `NotFound`.
    pub fn regular_only(&mut self, regular_only: bool) -> &mut Self {
        self.regular_only = regular_only;
        self
    }

    pub(super) fn is_regular_only(&self) -> bool {
        self.regular_only
    }

    fn set_more(&mut self, flags: i32, on: bool) -> &mut Self {
        self.more = if on { self.more | flags } else { self.more & !flags };
        self.std.custom_flags(self.more);
        self
    }

    /// The flags of the open call. `None` if they are unknown, or invalid.
    pub(super) fn flags(&self) -> Option<i32> {
        Some(self.known.and_then(Known::flags)? | self.more)
    }

    /// Opens a file. Cancel safe: if dropped, it leaves no file open, but may have created or
    /// emptied one.
    ///
    /// # Errors
    ///
    /// As [`std::fs::OpenOptions::open`]; `InvalidInput`, with a text, if the file system has no
    /// `O_DIRECT`.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        if let Some(disk) = simulated::disk() {
            let Some((how, access)) = self.on_disk() else { environment::refuse_on_disk(FILE) };
            return Ok(File::from_disk(OnDisk::open(disk, path.as_ref(), how, access).await?));
        }
        let opened = match self.flags() {
            Some(flags) if self.regular_only => {
                Some(PathRoot::default().open_regular(path.as_ref(), flags, 0o666).await)
            }
            None if self.regular_only => {
                let text = "regular_only needs options that make sense, and that were set with the methods of dapple's OpenOptions";
                Some(Err(io::Error::new(io::ErrorKind::InvalidInput, text)))
            }
            Some(flags) => engine::open(path.as_ref(), flags, 0o666).await,
            None => None,
        };
        let opened = match opened {
            Some(opened) => opened,
            None => {
                let options = self.std.clone();
                with_path(path, move |path| options.open(path)).await
            }
        };
        self.finish(opened)
    }

    /// The same for a simulated disk, which has regular files and directories only. `None` for flags that it does not know.
    fn on_disk(&self) -> Option<(DiskOpen, Access)> {
        let Known { read, write, append, truncate, create, create_new } = self.known?;
        self.flags().filter(|_| self.more & !(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW) == 0)?;
        let writes = write || append;
        Some((
            DiskOpen { writes, create, create_new, truncate: truncate && !create_new },
            Access { reads: read, writes, appends: append },
        ))
    }

    /// The work after the open call.
    pub(super) fn finish(&self, opened: io::Result<std::fs::File>) -> io::Result<File> {
        let opened = match self.more & libc::O_NONBLOCK {
            0 => opened,
            _ => opened.and_then(waiting),
        };
        opened.map(File::from_std).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) if self.more & libc::O_DIRECT != 0 => {
                io::Error::new(io::ErrorKind::InvalidInput, "this file system has no O_DIRECT, or not for this file")
            }
            _ => error,
        })
    }

    fn set(&mut self, set: impl FnOnce(&mut Known)) -> &mut Self {
        if let Some(known) = &mut self.known {
            set(known);
        }
        self
    }
}

impl Known {
    /// As in the standard library. `None` if it refuses them.
    fn flags(self) -> Option<i32> {
        let access = match (self.read, self.write, self.append) {
            (true, false, false) => libc::O_RDONLY,
            (false, true, false) => libc::O_WRONLY,
            (true, true, false) => libc::O_RDWR,
            (false, _, true) => libc::O_WRONLY | libc::O_APPEND,
            (true, _, true) => libc::O_RDWR | libc::O_APPEND,
            (false, false, false) => return None,
        };
        let makes = self.create || self.create_new;
        let writes = self.write || self.append;
        if (makes && !writes) || (self.truncate && !self.create_new && (self.append || !self.write)) {
            return None;
        }
        let creation = match (self.create, self.truncate, self.create_new) {
            (_, _, true) => libc::O_CREAT | libc::O_EXCL,
            (create, truncate, false) => {
                (if create { libc::O_CREAT } else { 0 }) | (if truncate { libc::O_TRUNC } else { 0 })
            }
        };
        Some(access | creation)
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    fn from(options: std::fs::OpenOptions) -> Self {
        OpenOptions { std: options, known: None, more: 0, regular_only: false }
    }
}
