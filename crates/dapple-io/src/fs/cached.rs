//! Reads from the kernel's cache, without waiting for a disk.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Reads up to `len` bytes of a file from `offset`, as far as the kernel has them in its cache;
/// none at the end of the file. `None` if it has none of them, or cannot tell: then it may have
/// begun to read, and a later call waits less.
///
/// Does not wait, but copies at once: 64 KiB take some 10 us. Not for files opened with `O_DIRECT`:
/// there it would wait for the disk.
///
/// ```
/// let path = std::env::temp_dir().join(format!("dapple-io-cached-{}", std::process::id()));
/// std::fs::write(&path, "hello, world")?;
/// let file = std::fs::File::open(&path)?;
/// if let Some(read) = dapple_io::fs::read_cached_at(&file, 7, 100)? {
///     assert_eq!(read, b"world");
/// }
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// As [`read_at`](std::os::unix::fs::FileExt::read_at).
pub fn read_cached_at(file: impl AsFd, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
    crate::environment::refuse(super::FILE);
    let mut buf = Vec::with_capacity(len);
    Ok(fill(file, offset, &mut buf, len)?.then_some(buf))
}

/// As [`read_cached_at`], into given memory: `buf` is empty, and its old contents are not needed.
/// False if nothing was read.
pub(super) fn fill(file: impl AsFd, offset: u64, buf: &mut Vec<u8>, len: usize) -> io::Result<bool> {
    buf.clear();
    buf.reserve_exact(len);
    // Too far for this call; other calls decide whether they can do it.
    let Ok(offset) = libc::off_t::try_from(offset) else { return Ok(false) };
    let part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: the one part that the kernel may write to is the room of `buf`, which has at least
    // `len` bytes and which no other code has during the call. It need not be initialized: the
    // kernel only writes.
    let count = unsafe { libc::preadv2(file.as_fd().as_raw_fd(), &raw const part, 1, offset, libc::RWF_NOWAIT) };
    let Ok(count) = usize::try_from(count) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            // Not in the cache, or this file system or container cannot tell.
            Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM | libc::EINTR) => Ok(false),
            _ => Err(error),
        };
    };
    // SAFETY: the kernel has just written these bytes, and never more than allowed.
    unsafe { buf.set_len(count.min(len)) };
    Ok(true)
}
