//! An open file.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use dapple_sched::consume_budget;
use rustix::fs::{AtFlags, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use super::buffer::AlignedBuf;
use super::cached;
use super::engine;
use super::metadata::Metadata;
use super::open_options::OpenOptions;
use super::simulated::OnDisk;
use crate::blocking::run;
use crate::driver::uring::{self, Call, Here, INLINE_MAX, Memory, Request};
use crate::environment;

/// An open file, read and written at offsets. It has no position, so any number of tasks may share
/// it, and a clone is another handle to the same open file.
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
pub struct File(Arc<Inner>);

struct Inner {
    origin: Origin,
    /// Whether reads and writes bypass the kernel's cache.
    is_direct: bool,
    /// Whether it has offsets; io_uring would read a pipe whatever offset it gets.
    has_offsets: bool,
    /// See [`File::direct_alignment`]; asked for once.
    alignment: OnceLock<u64>,
}

enum Origin {
    Kernel(std::fs::File),
    Simulated(OnDisk),
}

impl Inner {
    /// # Panics
    /// If it is on a simulated disk: what needs a descriptor is refused there.
    fn kernel(&self) -> &std::fs::File {
        match &self.origin {
            Origin::Kernel(file) => file,
            Origin::Simulated(_) => environment::refuse_on_disk(super::FILE),
        }
    }
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Cancel safety
    ///
    /// Safe: when dropped, it leaves no file open.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::open`].
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for reading and writing, after making or emptying it.
    ///
    /// # Cancel safety
    ///
    /// If dropped, it leaves no file open, but may have created or emptied one.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::create`].
    pub async fn create(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        options.open(path).await
    }

    pub(super) fn from_disk(file: OnDisk) -> File {
        let origin = Origin::Simulated(file);
        File(Arc::new(Inner { origin, is_direct: false, has_offsets: true, alignment: OnceLock::new() }))
    }

    /// The file on a simulated disk, if it is there.
    fn on_disk(&self) -> Option<&OnDisk> {
        match &self.0.origin {
            Origin::Kernel(_) => None,
            Origin::Simulated(file) => Some(file),
        }
    }

    /// Takes a file over from the standard library.
    pub fn from_std(file: std::fs::File) -> File {
        environment::refuse(super::FILE);
        // Neither call waits. If they fail, so will every use of the file.
        let is_direct = rustix::fs::fcntl_getfl(&file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
        let has_offsets = rustix::fs::seek(&file, SeekFrom::Current(0)) != Err(Errno::SPIPE);
        File(Arc::new(Inner { origin: Origin::Kernel(file), is_direct, has_offsets, alignment: OnceLock::new() }))
    }

    /// Reads up to `len` bytes from `offset`; fewer if the file ends there, or if fewer are in the
    /// kernel's cache, and none at the end of the file (or for `len` 0).
    ///
    /// Up to 64 KiB in the kernel's cache are read at once. Cancel safe: everything lost can be
    /// read again.
    ///
    /// # Errors
    ///
    /// As [`FileExt::read_at`]; files without offsets, such as pipes, are `NotSeekable`. For
    /// `O_DIRECT` see [`read_buf_at`](Self::read_buf_at).
    pub async fn read_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        if self.is_direct() {
            let (count, buf) = self.read_buf_at(offset, AlignedBuf::new(len)).await;
            return Ok(buf[..count?].to_vec());
        }
        if let Some(file) = self.on_disk() {
            return file.read_at(offset, len).await;
        }
        consume_budget().await;
        let mut buf = Vec::new();
        if cached::fill(self, offset, &mut buf, len.min(INLINE_MAX))? {
            return Ok(buf);
        }
        let mut buf = zeroed(buf, len);
        if let Some(ring) = self.ring()? {
            let (count, memory) = self.transfer(&ring, Call::Read, offset, Memory::Heap(buf), 0).await;
            let mut read = memory.into_vec();
            read.truncate(count?);
            return Ok(read);
        }
        let file = self.0.clone();
        run(move || {
            let count = retry(|| file.kernel().read_at(&mut buf, offset))?;
            buf.truncate(count);
            Ok(buf)
        })
        .await
    }

    /// Reads exactly `len` bytes from `offset`. Cancel safe, as [`read_at`](Self::read_at).
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the file ends first; otherwise as [`read_at`](Self::read_at).
    pub async fn read_exact_at(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        if self.is_direct() || self.on_disk().is_some() {
            let read = self.read_at(offset, len).await?;
            return if read.len() == len { Ok(read) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        consume_budget().await;
        let mut buf = Vec::new();
        if len <= INLINE_MAX && cached::fill(self, offset, &mut buf, len)? && buf.len() == len {
            return Ok(buf);
        }
        let mut buf = zeroed(buf, len);
        if let Some(ring) = self.ring()? {
            let (count, memory) = self.transfer_all(&ring, Call::Read, offset, Memory::Heap(buf), len).await;
            return if count? == len { Ok(memory.into_vec()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        let file = self.0.clone();
        run(move || {
            file.kernel().read_exact_at(&mut buf, offset)?;
            Ok(buf)
        })
        .await
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Cancel safety
    ///
    /// The write may happen, as a whole or in part, even if the future is dropped. The data stays
    /// with the call until the kernel is done with it.
    ///
    /// # Errors
    ///
    /// As [`FileExt::write_all_at`]; a part may have been written.
    pub async fn write_all_at(&self, offset: u64, data: impl Into<Vec<u8>>) -> io::Result<()> {
        let data = data.into();
        let len = data.len();
        if let Some(file) = self.on_disk() {
            return file.write_all_at(offset, data).await;
        }
        if self.is_direct() {
            let mut buf = AlignedBuf::new(len);
            buf.copy_from_slice(&data);
            let (count, _) = self.write_buf_at(offset, buf).await;
            return if count? == len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) };
        }
        if let Some(ring) = self.ring()? {
            let (count, _) = self.transfer_all(&ring, Call::Write, offset, Memory::Heap(data), len).await;
            return if count? == len { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) };
        }
        let file = self.0.clone();
        run(move || file.kernel().write_all_at(&data, offset)).await
    }

    /// Sets the file's length, by cutting it off or filling it with zeros.
    ///
    /// # Cancel safety
    ///
    /// It happens even if the future is dropped, except while it waits for room in the blocking
    /// pool; only the result is lost.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::set_len`].
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        if let Some(file) = self.on_disk() {
            return file.set_len(len).await;
        }
        let file = self.0.clone();
        run(move || file.kernel().set_len(len)).await
    }

    /// Waits until data and metadata are on the disk.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, it is unknown whether the data is on the disk; call again.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::sync_all`]. After an error the contents of the disk are unknown.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.sync(false).await
    }

    /// Waits until the data, and the metadata needed to find it, are on the disk.
    ///
    /// # Cancel safety
    ///
    /// As [`sync_all`](Self::sync_all).
    ///
    /// # Errors
    ///
    /// As [`sync_all`](Self::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    async fn sync(&self, data_only: bool) -> io::Result<()> {
        if let Some(file) = self.on_disk() {
            return file.sync().await;
        }
        if let Some(ring) = uring::here() {
            return engine::repeat(|| ring.perform(Request::sync(self.clone(), data_only))).await.map(drop);
        }
        let file = self.0.clone();
        run(move || if data_only { file.kernel().sync_data() } else { file.kernel().sync_all() }).await
    }

    /// Size, kind and times. Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::metadata`].
    pub async fn metadata(&self) -> io::Result<Metadata> {
        if let Some(file) = self.on_disk() {
            return file.metadata().await.map(Metadata::from);
        }
        if let Some(ring) = uring::here() {
            // Only the standard library's own call can make its `Metadata`. The server of a network
            // file system has just answered, so this need not wait for it.
            engine::repeat(|| ring.perform(Request::stat(self.clone()))).await?;
            return self.0.kernel().metadata().map(Metadata::from);
        }
        let file = self.0.clone();
        run(move || file.kernel().metadata()).await.map(Metadata::from)
    }

    /// The file of the standard library; its calls block.
    pub fn as_std(&self) -> &std::fs::File {
        self.0.kernel()
    }

    /// Whether it was opened to bypass the kernel's cache.
    pub fn is_direct(&self) -> bool {
        self.0.is_direct
    }

    pub(super) fn has_offsets(&self) -> bool {
        self.0.has_offsets
    }

    /// The ring that reads and writes here, if there is one.
    pub(super) fn ring(&self) -> io::Result<Option<Here>> {
        let ring = uring::here();
        if ring.is_some() && !self.0.has_offsets {
            return Err(Errno::SPIPE.into());
        }
        Ok(ring)
    }

    /// The alignment of offsets and lengths.
    pub(super) fn direct_alignment(&self) -> u64 {
        *self.0.alignment.get_or_init(|| {
            // Linux 6.1 and later supports this, and asks no other machine.
            let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
            let told = rustix::fs::statx(self.0.kernel(), c"", flags, StatxFlags::DIOALIGN).ok();
            let alignment = told.map_or(0, |told| told.stx_dio_offset_align);
            if alignment == 0 { SECTOR } else { u64::from(alignment) }
        })
    }

    /// One read or write of all bytes from `start`, again if it was interrupted.
    pub(super) async fn transfer(
        &self,
        ring: &Here,
        call: Call,
        offset: u64,
        mut memory: Memory,
        start: usize,
    ) -> (io::Result<usize>, Memory) {
        loop {
            let request = Request { call, file: Some(self.clone()), memory, start, offset };
            let (result, back) = ring.perform(request).await;
            memory = back;
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return (result.map(|count| count as usize), memory),
            }
        }
    }

    /// Reads or writes until `len` bytes are done, or no more are possible.
    async fn transfer_all(
        &self,
        ring: &Here,
        call: Call,
        offset: u64,
        mut memory: Memory,
        len: usize,
    ) -> (io::Result<usize>, Memory) {
        let mut done = 0;
        while done < len {
            let (result, back) = self.transfer(ring, call, offset.saturating_add(done as u64), memory, done).await;
            memory = back;
            match result {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) => return (Err(error), memory),
            }
        }
        (Ok(done), memory)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.kernel().as_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.origin {
            Origin::Kernel(file) => file.fmt(f),
            Origin::Simulated(_) => f.write_str("File (simulated)"),
        }
    }
}

/// `len` zeros, if possible in the given memory.
fn zeroed(mut buf: Vec<u8>, len: usize) -> Vec<u8> {
    if buf.capacity() < len {
        return vec![0; len];
    }
    buf.clear();
    buf.resize(len, 0);
    buf
}

/// Repeats a call that a signal interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The alignment for `O_DIRECT` if the kernel does not tell it.
const SECTOR: u64 = 512;
