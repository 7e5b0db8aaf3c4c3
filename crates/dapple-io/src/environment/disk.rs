//! The disk of a simulated machine.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A disk in place of the kernel's files. Each call runs as a function of the blocking pool of its machine, so it takes simulated time, and a
/// crash may come before it. Files are known by numbers, which stay valid until a crash, also where the file is renamed or removed.
pub trait Disk: Send + Sync + 'static {
    /// How much later than usual the next call happens.
    fn late(&self) -> Duration;

    /// Opens a file or a directory, and returns its number.
    ///
    /// # Errors
    /// As [`std::fs::OpenOptions::open`].
    fn open(&self, path: &Path, how: DiskOpen) -> io::Result<u64>;

    /// Reads up to `len` bytes; none at the end of the file.
    ///
    /// # Errors
    /// The disk fails, or it is a directory.
    fn read_at(&self, file: u64, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// Writes all of `bytes` at `offset`; at the end of the file, if that is `None`.
    ///
    /// # Errors
    /// The disk fails or is full, or the file would become too long.
    fn write_at(&self, file: u64, offset: Option<u64>, bytes: &[u8]) -> io::Result<()>;

    /// Cuts a file off, or fills it with zeros.
    ///
    /// # Errors
    /// As [`Disk::write_at`].
    fn set_len(&self, file: u64, len: u64) -> io::Result<()>;

    /// From now on a crash keeps what was written to this file; for a directory, its names.
    ///
    /// # Errors
    /// The disk fails; which writes a crash keeps is unknown then, also after a later call that succeeds.
    fn sync(&self, file: u64) -> io::Result<()>;

    /// Renames a file or directory, and replaces a file of the new name.
    ///
    /// # Errors
    /// As [`std::fs::rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes a directory, and its parents if `all` is set.
    ///
    /// # Errors
    /// As [`std::fs::create_dir`] and [`std::fs::create_dir_all`].
    fn create_dir(&self, path: &Path, all: bool) -> io::Result<()>;

    /// Tells of the file or directory at a path.
    ///
    /// # Errors
    /// As [`std::fs::metadata`].
    fn metadata(&self, path: &Path) -> io::Result<DiskMetadata>;

    /// Tells of an open file or directory.
    ///
    /// # Errors
    /// The disk fails.
    fn metadata_of(&self, file: u64) -> io::Result<DiskMetadata>;

    /// The names in a directory, in no order, and whether each is a directory.
    ///
    /// # Errors
    /// As [`std::fs::read_dir`].
    fn read_dir(&self, path: &Path) -> io::Result<Vec<(OsString, bool)>>;

    /// Removes the name of a file, or an empty directory.
    ///
    /// # Errors
    /// As [`std::fs::remove_file`] and [`std::fs::remove_dir`].
    fn remove(&self, path: &Path, is_dir: bool) -> io::Result<()>;
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskOpen {
    /// For writing, too, which no directory allows.
    pub writes: bool,
    /// Make it if it does not exist.
    pub create: bool,
    /// Make it, and fail if it exists.
    pub create_new: bool,
    /// Empty it.
    pub truncate: bool,
}

/// Facts about a file or directory on a [`Disk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskMetadata {
    /// It is a directory.
    pub is_dir: bool,
    /// The size of a file, in bytes; 0 for a directory.
    pub len: u64,
    /// The last change of its contents, by the wall clock of its machine.
    pub modified: SystemTime,
}
