//! An open file.

use std::fmt;
use std::fs::Metadata;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags};

use super::open_options::OpenOptions;
use crate::blocking::run;

/// An open file, read and written at offsets: it has no position, so any number of tasks may share it, and a clone is
/// another handle to the same open file.
///
/// ```
/// use dapple_io::fs::File;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let path = std::env::temp_dir().join(format!("dapple-io-file-{}", std::process::id()));
///     let file = File::create(&path).await?;
///     file.write_all_at(0, "hello, world").await?;
///     let file = File::open(&path).await?;
///     assert_eq!(file.read_at(7, 100).await?, b"world");
///     assert_eq!(file.read_at(12, 100).await?, b"", "the end");
///     dapple_io::fs::remove_file(&path).await
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct File(Arc<std::fs::File>);

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::open`].
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for reading and writing, after making or emptying it.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::create`].
    pub async fn create(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.open(path).await
    }

    /// Takes a file over from the standard library.
    pub fn from_std(file: std::fs::File) -> File {
        File(Arc::new(file))
    }

    /// Reads up to `len` bytes from `offset`; fewer when the file ends there, or when fewer are in the kernel's cache, and
    /// none exactly at the end of the file (or for `len` 0).
    ///
    /// Up to 64 KiB that the kernel has in its cache are read on the spot; the rest goes to the pool.
    ///
    /// # Errors
    ///
    /// As [`FileExt::read_at`]; things without offsets, such as pipes, are `NotSeekable`.
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        if let Some(cached) = self.read_cached_at(offset, len.min(INLINE_MAX))? {
            return Ok(cached);
        }
        let file = self.0.clone();
        run(move || {
            let mut buf = vec![0; len];
            let count = retry(|| file.read_at(&mut buf, offset))?;
            buf.truncate(count);
            Ok(buf)
        })
        .await
    }

    /// Reads exactly `len` bytes from `offset`.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the file ends first; otherwise as [`read_at`](Self::read_at).
    pub async fn read_exact_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let file = self.0.clone();
        run(move || {
            let mut buf = vec![0; len];
            file.read_exact_at(&mut buf, offset)?;
            Ok(buf)
        })
        .await
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    ///
    /// As [`FileExt::write_all_at`]; a part may have been written.
    pub async fn write_all_at(&self, offset: u64, data: impl Into<Vec<u8>>) -> io::Result<()> {
        let (file, data) = (self.0.clone(), data.into());
        run(move || file.write_all_at(&data, offset)).await
    }

    /// Makes the file this long, cutting it off or filling it with zeros.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::set_len`].
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        let file = self.0.clone();
        run(move || file.set_len(len)).await
    }

    /// Waits until data and metadata are on the disk.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::sync_all`]. After an error it is not known what is on the disk.
    pub async fn sync_all(&self) -> io::Result<()> {
        let file = self.0.clone();
        run(move || file.sync_all()).await
    }

    /// Waits until the data, and the metadata needed to find it, are on the disk.
    ///
    /// # Errors
    ///
    /// As [`sync_all`](Self::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        let file = self.0.clone();
        run(move || file.sync_data()).await
    }

    /// Size, kind and times.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::metadata`].
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let file = self.0.clone();
        run(move || file.metadata()).await
    }

    /// The file of the standard library, whose calls block.
    pub fn as_std(&self) -> &std::fs::File {
        &self.0
    }

    /// Reads what is in the kernel's cache, without waiting for a disk. `None` when nothing is, or nobody knows.
    fn read_cached_at(&self, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        let mut buf = vec![0; len];
        let mut slices = [IoSliceMut::new(&mut buf)];
        match rustix::io::preadv2(&*self.0, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => {
                buf.truncate(count);
                Ok(Some(buf))
            }
            // Not in the cache, or this file system or container cannot say.
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Repeats a call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Bytes that a worker copies from the kernel's cache by itself: about 10 us of work, less than a trip to the pool and
/// back.
const INLINE_MAX: usize = 64 * 1024;
