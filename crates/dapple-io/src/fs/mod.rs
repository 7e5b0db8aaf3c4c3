//! Files, through the blocking pool.
//!
//! The kernel has no readiness for files: a call takes as long as the disk does. So every call here runs in the bounded pool of
//! [`blocking`](crate::blocking), waits for room there when it is full, and never blocks a worker. Reads of data that
//! the kernel has in its cache are answered on the spot.
//!
//! Cancel safety of all of them: dropping the future loses the result; a call that was handed to the pool still happens.
//! All of them fail with an error when there is no runtime here.
//!
//! ```
//! let runtime = dapple_io::runtime_builder().workers(1).build()?;
//! runtime.block_on(async {
//!     let path = std::env::temp_dir().join(format!("dapple-io-doc-{}", std::process::id()));
//!     dapple_io::fs::write(&path, "hello").await?;
//!     assert_eq!(dapple_io::fs::read(&path).await?, b"hello");
//!     dapple_io::fs::remove_file(&path).await
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod file;
mod open_options;

use std::fs::{DirEntry, Metadata, Permissions};
use std::io;
use std::path::{Path, PathBuf};

use crate::blocking::run;
pub use file::File;
pub use open_options::OpenOptions;

/// Reads a whole file into memory.
///
/// # Errors
///
/// As [`std::fs::read`].
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    with_path(path, |path| std::fs::read(path)).await
}

/// Reads a whole file of UTF-8 text into memory.
///
/// # Errors
///
/// As [`std::fs::read_to_string`].
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    with_path(path, |path| std::fs::read_to_string(path)).await
}

/// Writes a file, replacing what was there.
///
/// # Errors
///
/// As [`std::fs::write`].
pub async fn write(path: impl AsRef<Path>, data: impl Into<Vec<u8>>) -> io::Result<()> {
    let data = data.into();
    with_path(path, move |path| std::fs::write(path, data)).await
}

/// Size, kind and times of what the path leads to.
///
/// # Errors
///
/// As [`std::fs::metadata`].
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    with_path(path, |path| std::fs::metadata(path)).await
}

/// Like [`metadata`], of a symbolic link itself.
///
/// # Errors
///
/// As [`std::fs::symlink_metadata`].
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    with_path(path, |path| std::fs::symlink_metadata(path)).await
}

/// The path without links, `.` and `..`.
///
/// # Errors
///
/// As [`std::fs::canonicalize`].
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    with_path(path, |path| std::fs::canonicalize(path)).await
}

/// Where a symbolic link points.
///
/// # Errors
///
/// As [`std::fs::read_link`].
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    with_path(path, |path| std::fs::read_link(path)).await
}

/// All entries of a directory, in no order. Note that `DirEntry::metadata` blocks; use [`metadata`] with its path.
///
/// # Errors
///
/// As [`std::fs::read_dir`].
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
    with_path(path, |path| std::fs::read_dir(path)?.collect()).await
}

/// Makes a directory.
///
/// # Errors
///
/// As [`std::fs::create_dir`].
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    with_path(path, |path| std::fs::create_dir(path)).await
}

/// Makes a directory and those above it, as far as they are missing.
///
/// # Errors
///
/// As [`std::fs::create_dir_all`].
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    with_path(path, |path| std::fs::create_dir_all(path)).await
}

/// Removes a file.
///
/// # Errors
///
/// As [`std::fs::remove_file`].
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    with_path(path, |path| std::fs::remove_file(path)).await
}

/// Removes an empty directory.
///
/// # Errors
///
/// As [`std::fs::remove_dir`].
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    with_path(path, |path| std::fs::remove_dir(path)).await
}

/// Removes a directory and everything in it.
///
/// # Errors
///
/// As [`std::fs::remove_dir_all`].
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    with_path(path, |path| std::fs::remove_dir_all(path)).await
}

/// Gives a file another name, replacing what had it.
///
/// # Errors
///
/// As [`std::fs::rename`].
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let to = to.as_ref().to_owned();
    with_path(from, move |from| std::fs::rename(from, to)).await
}

/// Copies a file and its permissions; returns the bytes copied.
///
/// # Errors
///
/// As [`std::fs::copy`].
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let to = to.as_ref().to_owned();
    with_path(from, move |from| std::fs::copy(from, to)).await
}

/// Changes who may do what with a file.
///
/// # Errors
///
/// As [`std::fs::set_permissions`].
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    with_path(path, move |path| std::fs::set_permissions(path, permissions)).await
}

/// Runs a call that takes a path in the pool.
async fn with_path<T: Send + 'static>(
    path: impl AsRef<Path>,
    call: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.as_ref().to_owned();
    run(move || call(&path)).await
}
