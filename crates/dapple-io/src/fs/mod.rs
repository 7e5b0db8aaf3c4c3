//! Files, through io_uring or the blocking pool.
//!
//! The kernel does not report when a file is ready: a call takes as long as the disk does. So a
//! worker passes its tasks' calls to the kernel through its ring, and continues: opening, reading,
//! writing, syncing, and reading metadata. Many calls cost one system call, and no thread waits for
//! any of them. Reads of data in the kernel's cache are answered at once.
//!
//! The rest runs in the bounded pool of [`blocking`](crate::blocking): operations on names and
//! directories, [`File::set_len`], and [`write()`], which therefore happens as a whole. If the
//! thread is not a worker (as in `Runtime::block_on`), or if the kernel or a container refuses
//! io_uring (one line in the log says so), everything runs in that pool. The results are the same.
//! `DAPPLE_IO_URING=off` in the environment, or [`Config::io_uring`](crate::Config::io_uring),
//! chooses the pool. The kernel gets at most
//! [`Config::file_calls_max`](crate::Config::file_calls_max) calls of a worker at a time; more wait
//! for their turn, in order.
//!
//! In a simulation these use the simulated disk of their machine: [`File`] with its reads, writes, `set_len`, `sync_*` and `metadata`, and the
//! functions of this module, except for links, permissions and [`canonicalize`]. A panic refuses these, [`Dir`] and descriptors.
//!
//! A server that lets strangers name files should open them in a [`Dir`]: no name leads out of it.
//!
//! Cancel safety of all of them: dropping the future loses the result. A call that only reads or
//! opens is canceled; one that changes the file may still happen if it has begun. Memory and files
//! stay with the call until the kernel is done with it, even when the runtime shuts down. A
//! shutdown cancels calls and waits for them for at most two seconds; memory that the kernel still
//! has then is leaked, not freed. All of them fail with an error if there is no runtime here.
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

mod beneath;
mod buffer;
mod cached;
mod changes;
mod dir;
mod direct;
mod engine;
mod file;
mod metadata;
mod open_options;
mod place;
mod simulated;

use std::fs::Permissions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::blocking::run;
use crate::environment;
pub use beneath::Beneath;
pub(crate) use buffer::Region;
pub use buffer::{AlignedBuf, BufferPool};
pub use cached::read_cached_at;
pub use changes::{ForeignChange, ForeignChanges};
pub use dir::Dir;
pub use file::File;
pub use metadata::{DirEntry, Metadata};
pub use open_options::OpenOptions;

/// Reads a whole file into memory.
///
/// # Cancel safety
///
/// Safe: it changes nothing, and can be asked again.
///
/// # Errors
///
/// As [`std::fs::read`].
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    if simulated::disk().is_some() {
        return File::open(path).await?.read_at(0, usize::MAX).await;
    }
    match engine::open(path.as_ref(), libc::O_RDONLY, 0).await {
        Some(opened) => {
            let file = File::from_std(opened?);
            match file.has_offsets() {
                true => engine::read_to_end(&file).await,
                // A pipe or similar file that may take its time.
                false => {
                    run(move || {
                        let mut read = Vec::new();
                        file.as_std().read_to_end(&mut read).map(|_| read)
                    })
                    .await
                }
            }
        }
        None => with_path(path, |path| std::fs::read(path)).await,
    }
}

/// Reads a whole file of UTF-8 text into memory.
///
/// # Cancel safety
///
/// Safe: it changes nothing, and can be asked again.
///
/// # Errors
///
/// As [`std::fs::read_to_string`].
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let read = read(path).await?;
    String::from_utf8(read).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is not valid UTF-8"))
}

/// Writes a file, replacing its contents.
///
/// # Cancel safety
///
/// It happens as a whole even if the future is dropped, except while it waits for room in the
/// blocking pool: then not at all.
///
/// # Errors
///
/// As [`std::fs::write`].
pub async fn write(path: impl AsRef<Path>, data: impl Into<Vec<u8>>) -> io::Result<()> {
    let data = data.into();
    if simulated::disk().is_some() {
        return File::create(path).await?.write_all_at(0, data).await;
    }
    with_path(path, move |path| std::fs::write(path, data)).await
}

/// Size, kind and times of the file that the path leads to.
///
/// # Cancel safety
///
/// Safe: it changes nothing, and can be asked again.
///
/// # Errors
///
/// As [`std::fs::metadata`].
pub async fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    if let Some(disk) = simulated::disk() {
        let path = path.as_ref().to_owned();
        return simulated::call(disk, move |disk| disk.metadata(&path)).await.map(Metadata::from);
    }
    match engine::metadata(path.as_ref(), 0).await {
        Some(metadata) => metadata,
        None => with_path(path, |path| std::fs::metadata(path)).await.map(Metadata::from),
    }
}

/// Like [`metadata`], for a symbolic link itself.
///
/// # Cancel safety
///
/// Safe: it changes nothing, and can be asked again.
///
/// # Errors
///
/// As [`std::fs::symlink_metadata`].
pub async fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    if simulated::disk().is_some() {
        // It has no links.
        return metadata(path).await;
    }
    match engine::metadata(path.as_ref(), libc::O_NOFOLLOW).await {
        Some(metadata) => metadata,
        None => with_path(path, |path| std::fs::symlink_metadata(path)).await.map(Metadata::from),
    }
}

/// The path without links, `.` and `..`.
///
/// # Cancel safety
///
/// Safe: it changes nothing, and can be asked again.
///
/// # Errors
///
/// As [`std::fs::canonicalize`].
pub async fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    with_path(path, |path| std::fs::canonicalize(path)).await
}

/// The target of a symbolic link.
///
/// # Cancel safety
///
/// Safe: it changes nothing, and can be asked again.
///
/// # Errors
///
/// As [`std::fs::read_link`].
pub async fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    with_path(path, |path| std::fs::read_link(path)).await
}

/// All entries of a directory, in no order.
///
/// # Cancel safety
///
/// Safe: it changes nothing, and can be asked again.
///
/// # Errors
///
/// As [`std::fs::read_dir`].
pub async fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<DirEntry>> {
    if let Some(disk) = simulated::disk() {
        let (dir, path) = (path.as_ref().to_owned(), path.as_ref().to_owned());
        let found = simulated::call(disk, move |disk| disk.read_dir(&path)).await?;
        return Ok(found.into_iter().map(|entry| DirEntry::on_disk(&dir, entry)).collect());
    }
    with_path(path, |path| std::fs::read_dir(path)?.map(|entry| entry?.try_into()).collect()).await
}

/// Makes a directory.
///
/// # Cancel safety
///
/// It happens even if the future is dropped, except while it waits for room in the blocking pool;
/// only the result is lost.
///
/// # Errors
///
/// As [`std::fs::create_dir`].
pub async fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    if let Some(disk) = simulated::disk() {
        let path = path.as_ref().to_owned();
        return simulated::call(disk, move |disk| disk.create_dir(&path, false)).await;
    }
    with_path(path, |path| std::fs::create_dir(path)).await
}

/// Makes a directory and its missing parents.
///
/// # Cancel safety
///
/// It happens even if the future is dropped, except while it waits for room in the blocking pool;
/// only the result is lost.
///
/// # Errors
///
/// As [`std::fs::create_dir_all`].
pub async fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    if let Some(disk) = simulated::disk() {
        let path = path.as_ref().to_owned();
        return simulated::call(disk, move |disk| disk.create_dir(&path, true)).await;
    }
    with_path(path, |path| std::fs::create_dir_all(path)).await
}

/// Removes a file.
///
/// # Cancel safety
///
/// It happens even if the future is dropped, except while it waits for room in the blocking pool;
/// only the result is lost.
///
/// # Errors
///
/// As [`std::fs::remove_file`].
pub async fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    if let Some(disk) = simulated::disk() {
        let path = path.as_ref().to_owned();
        return simulated::call(disk, move |disk| disk.remove(&path, false)).await;
    }
    with_path(path, |path| std::fs::remove_file(path)).await
}

/// Removes an empty directory.
///
/// # Cancel safety
///
/// It happens even if the future is dropped, except while it waits for room in the blocking pool;
/// only the result is lost.
///
/// # Errors
///
/// As [`std::fs::remove_dir`].
pub async fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    if let Some(disk) = simulated::disk() {
        let path = path.as_ref().to_owned();
        return simulated::call(disk, move |disk| disk.remove(&path, true)).await;
    }
    with_path(path, |path| std::fs::remove_dir(path)).await
}

/// Removes a directory and everything in it.
///
/// # Cancel safety
///
/// It happens even if the future is dropped, except while it waits for room in the blocking pool;
/// only the result is lost.
///
/// # Errors
///
/// As [`std::fs::remove_dir_all`].
pub async fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    if let Some(disk) = simulated::disk() {
        return simulated::remove_all(disk, path.as_ref()).await;
    }
    with_path(path, |path| std::fs::remove_dir_all(path)).await
}

/// Renames a file, replacing one with the new name.
///
/// # Cancel safety
///
/// It happens even if the future is dropped, except while it waits for room in the blocking pool;
/// only the result is lost.
///
/// # Errors
///
/// As [`std::fs::rename`].
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let to = to.as_ref().to_owned();
    if let Some(disk) = simulated::disk() {
        let from = from.as_ref().to_owned();
        return simulated::call(disk, move |disk| disk.rename(&from, &to)).await;
    }
    with_path(from, move |from| std::fs::rename(from, to)).await
}

/// Copies a file and its permissions; returns the number of bytes copied.
///
/// # Cancel safety
///
/// It happens even if the future is dropped, except while it waits for room in the blocking pool;
/// only the result is lost.
///
/// # Errors
///
/// As [`std::fs::copy`].
pub async fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    let to = to.as_ref().to_owned();
    if simulated::disk().is_some() {
        let contents = read(from).await?;
        let len = contents.len() as u64;
        return write(to, contents).await.map(|()| len);
    }
    with_path(from, move |from| std::fs::copy(from, to)).await
}

/// Changes the permissions of a file.
///
/// # Cancel safety
///
/// It happens even if the future is dropped, except while it waits for room in the blocking pool;
/// only the result is lost.
///
/// # Errors
///
/// As [`std::fs::set_permissions`].
pub async fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    with_path(path, move |path| std::fs::set_permissions(path, permissions)).await
}

/// The name in the refusal of a simulation.
const FILE: &str = "a file";

/// Runs a call that takes a path in the pool.
async fn with_path<T: Send + 'static>(
    path: impl AsRef<Path>,
    call: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    environment::refuse(FILE);
    let path = path.as_ref().to_owned();
    run(move || call(&path)).await
}
