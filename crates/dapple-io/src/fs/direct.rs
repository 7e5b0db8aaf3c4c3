//! Reads and writes that return their memory.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::buffer::AlignedBuf;
use super::file::{File, retry};
use crate::blocking::run;
use crate::driver::uring::{Call, Memory};
use crate::lock::Mutex;

impl File {
    /// Reads into `buf` from `offset`: as many bytes as it is long, fewer at the end of the file.
    /// Returns the number of bytes and the buffer, even after an error. The buffer's length stays.
    ///
    /// For files opened with [`OpenOptions::direct`](super::OpenOptions::direct), where the device
    /// writes into the buffer itself, and for all others. Buffers of a
    /// [`BufferPool`](super::BufferPool) cost the kernel least.
    ///
    /// Cancel safe: everything lost can be read again; the buffer is freed, or free again in its
    /// pool, once the kernel is done with it. An empty buffer is returned only if the runtime ended
    /// and the kernel still had the buffer.
    ///
    /// ```
    /// use dapple_io::fs::{AlignedBuf, File, OpenOptions};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let path = std::env::temp_dir().join(format!("dapple-io-direct-{}", std::process::id()));
    ///     dapple_io::fs::write(&path, vec![7; 10_000]).await?;
    ///     // Not every file system has O_DIRECT.
    ///     if let Ok(file) = OpenOptions::new().read(true).direct(true).open(&path).await {
    ///         let (count, buf) = file.read_buf_at(8192, AlignedBuf::new(4096)).await;
    ///         assert_eq!(&buf[..count?], vec![7; 10_000 - 8192]);
    ///     }
    ///     dapple_io::fs::remove_file(&path).await
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the buffer is empty or if, with `O_DIRECT`, offset or length are not
    /// multiples of the device's alignment; the message says which. `NotSeekable` for pipes and
    /// similar files.
    pub async fn read_buf_at(&self, offset: u64, buf: AlignedBuf) -> (io::Result<usize>, AlignedBuf) {
        self.transfer_buf(Call::Read, offset, buf).await
    }

    /// Writes `buf` at `offset`. Returns the number of bytes written and the buffer, even after an
    /// error.
    ///
    /// As [`read_buf_at`](Self::read_buf_at), except that it may happen although the future is
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// It may happen, wholly or in part, although the future is dropped. The buffer is freed, or
    /// free again in its pool, once the kernel is done with it.
    ///
    /// # Errors
    ///
    /// As [`read_buf_at`](Self::read_buf_at).
    pub async fn write_buf_at(&self, offset: u64, buf: AlignedBuf) -> (io::Result<usize>, AlignedBuf) {
        self.transfer_buf(Call::Write, offset, buf).await
    }

    async fn transfer_buf(&self, call: Call, offset: u64, buf: AlignedBuf) -> (io::Result<usize>, AlignedBuf) {
        // A simulated disk has no buffers of the kernel: this refuses it here, and not in the pool.
        self.as_std();
        let ring = match self.check(offset, &buf).and_then(|()| self.ring()) {
            Ok(ring) => ring,
            Err(error) => return (Err(error), buf),
        };
        if let Some(ring) = ring {
            let (result, memory) = self.transfer(&ring, call, offset, Memory::Aligned(buf), 0).await;
            return (result, memory.into_aligned());
        }
        // A job that is dropped unrun leaves the buffer here.
        let kept = Arc::new(Mutex::new(Some(buf)));
        let (file, taken) = (self.clone(), kept.clone());
        let job = move || {
            let mut buf = taken.lock().take().unwrap_or_default();
            let result = match call {
                Call::Write => retry(|| file.as_std().write_at(&buf, offset)),
                _ => retry(|| file.as_std().read_at(&mut buf, offset)),
            };
            Ok((result, buf))
        };
        match run(job).await {
            Ok(answer) => answer,
            Err(error) => (Err(error), kept.lock().take().unwrap_or_default()),
        }
    }

    /// Finds the mistake if the kernel would only say "invalid argument".
    fn check(&self, offset: u64, buf: &AlignedBuf) -> io::Result<()> {
        let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if buf.is_empty() {
            return invalid("the buffer is empty: there is nothing to read or write".to_owned());
        }
        if !self.is_direct() {
            return Ok(());
        }
        let alignment = self.direct_alignment();
        for (what, value) in [("the offset", offset), ("the length of the buffer", buf.len() as u64)] {
            if value % alignment != 0 {
                return invalid(format!(
                    "{what}, {value}, is not a multiple of {alignment}: O_DIRECT on this file needs that"
                ));
            }
        }
        Ok(())
    }
}
