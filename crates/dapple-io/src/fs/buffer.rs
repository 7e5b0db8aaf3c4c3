//! Memory for reads and writes that bypass the kernel's cache.

use std::alloc::{self, Layout};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::driver::uring::Ring;
use crate::lock::Mutex;

/// Bytes at an address that `O_DIRECT` accepts: a multiple of 4096.
///
/// ```
/// use dapple_io::fs::AlignedBuf;
///
/// let mut buf = AlignedBuf::new(8192);
/// buf[..5].copy_from_slice(b"hello");
/// buf.set_len(4096);
/// assert_eq!((buf.len(), buf.capacity()), (4096, 8192));
/// ```
pub struct AlignedBuf {
    /// `None` if it is empty.
    place: Option<BufferSlot>,
    len: usize,
}

struct BufferSlot {
    region: Arc<Region>,
    start: NonNull<u8>,
    /// Its index in the pool.
    index: usize,
}

/// A fixed number of [`AlignedBuf`]s in one piece of memory. Each worker's ring registers it with
/// the kernel at the first use: then the kernel need not look up and pin the pages for every call.
/// Without io_uring, or beyond the limit on locked memory, the buffers are used as plain memory. A
/// dropped buffer is free again.
///
/// A clone is another handle to the same buffers.
///
/// ```
/// use dapple_io::fs::BufferPool;
///
/// let pool = BufferPool::new(16, 4096)?;
/// let buf = pool.take().expect("all are free");
/// assert_eq!(buf.len(), 4096);
/// assert_eq!(pool.available(), 15);
/// drop(buf);
/// assert_eq!(pool.available(), 16);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct BufferPool {
    region: Arc<Region>,
    buf_len: usize,
}

/// One allocation.
pub(crate) struct Region {
    start: NonNull<u8>,
    layout: Layout,
    /// Not 0, and never reused.
    id: u64,
    /// Bytes of one buffer.
    stride: usize,
    /// Free buffers. `None` for the region of a single buffer, which is not worth registering.
    free: Option<Mutex<Vec<usize>>>,
    /// The rings in which it is registered.
    rings: Mutex<Vec<Weak<Ring>>>,
}

// SAFETY: a region is only an address; buffers access its bytes, and each buffer is the only one
// with its index.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}
// SAFETY: the only access to its bytes, which are plain memory.
unsafe impl Send for BufferSlot {}
// SAFETY: a shared place only gives shared references to bytes.
unsafe impl Sync for BufferSlot {}

impl AlignedBuf {
    /// Zeroed bytes.
    ///
    /// # Panics
    ///
    /// If `len` exceeds `isize::MAX`. Aborts if there is no memory, as `Vec` does.
    pub fn new(len: usize) -> AlignedBuf {
        let place = (len > 0).then(|| {
            let region = Arc::new(Region::new(1, len, false));
            BufferSlot { start: region.start, region, index: 0 }
        });
        AlignedBuf { place, len }
    }

    /// The largest length.
    pub fn capacity(&self) -> usize {
        self.place.as_ref().map_or(0, |place| place.region.stride)
    }

    /// Sets the length. Added bytes hold former contents, or zeros.
    ///
    /// # Panics
    ///
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes in a buffer of {}", self.capacity());
        self.len = len;
    }

    pub(crate) fn registered_region(&self) -> Option<&Region> {
        let region = &self.place.as_ref()?.region;
        region.free.is_some().then_some(region)
    }
}

impl Default for AlignedBuf {
    /// An empty buffer without capacity.
    fn default() -> Self {
        AlignedBuf::new(0)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            // SAFETY: the region lives as long as the place; these bytes of it belong to this
            // buffer alone and were zeroed at the start; `len` is at most the stride.
            Some(place) => unsafe { slice::from_raw_parts(place.start.as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.place {
            // SAFETY: as in `deref`, and the buffer is borrowed mutably.
            Some(place) => unsafe { slice::from_raw_parts_mut(place.start.as_ptr(), self.len) },
            None => &mut [],
        }
    }
}

impl Drop for BufferSlot {
    fn drop(&mut self) {
        if let Some(free) = &self.region.free {
            free.lock().push(self.index);
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).field("capacity", &self.capacity()).finish()
    }
}

impl BufferPool {
    /// A pool of `count` buffers of `buf_len` bytes each, rounded up to a multiple of 4096.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if there would be no bytes, or more than 1 GiB in all, the most that the
    /// kernel registers in one piece.
    pub fn new(count: usize, buf_len: usize) -> io::Result<BufferPool> {
        let total = buf_len.checked_next_multiple_of(ALIGNMENT).and_then(|stride| stride.checked_mul(count));
        match total {
            Some(1..=REGION_MAX) => Ok(BufferPool { region: Arc::new(Region::new(count, buf_len, true)), buf_len }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a pool of {count} buffers of {buf_len} bytes: it must have 1 byte to 1 GiB in all"),
            )),
        }
    }

    /// A buffer with its full length and the contents that its last user left; `None` if none is
    /// free.
    pub fn take(&self) -> Option<AlignedBuf> {
        let index = self.region.free.as_ref()?.lock().pop()?;
        // SAFETY: the index is below the count, so the address is inside of the region.
        let start = unsafe { self.region.start.add(index * self.region.stride) };
        Some(AlignedBuf { place: Some(BufferSlot { region: self.region.clone(), start, index }), len: self.buf_len })
    }

    /// Number of free buffers.
    pub fn available(&self) -> usize {
        self.region.free.as_ref().map_or(0, |free| free.lock().len())
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool").field("buf_len", &self.buf_len).field("available", &self.available()).finish()
    }
}

impl Region {
    fn new(count: usize, buf_len: usize, is_pool: bool) -> Region {
        let stride = buf_len.checked_next_multiple_of(ALIGNMENT).expect("a length that memory can have");
        let total = stride.checked_mul(count).expect("a length that memory can have");
        let layout = Layout::from_size_align(total, ALIGNMENT).expect("a length that memory can have");
        // SAFETY: callers ensure that the size is not 0.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        // Relaxed: it only has to be unique.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let free = is_pool.then(|| Mutex::new((0..count).rev().collect()));
        Region { start, layout, id, stride, free, rings: Mutex::default() }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }

    pub(crate) fn iovec(&self) -> libc::iovec {
        libc::iovec { iov_base: self.start.as_ptr().cast(), iov_len: self.len() }
    }

    /// Notes that it is in the table of this ring.
    pub(crate) fn note_registration(&self, ring: Weak<Ring>) {
        self.rings.lock().push(ring);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let rings = std::mem::take(&mut *self.rings.lock());
        for ring in rings.iter().filter_map(Weak::upgrade) {
            ring.forget_region(self);
        }
        // SAFETY: allocated with this layout. No buffer is left, so no code reads or writes it, nor
        // does the kernel: each of its requests owns a buffer.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// No device asks for more.
const ALIGNMENT: usize = 4096;

/// The most that the kernel registers in one piece.
const REGION_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_a_pool_do_not_overlap() {
        let pool = BufferPool::new(3, 5000).unwrap();
        let mut bufs: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        assert!(pool.take().is_none());
        for (i, buf) in bufs.iter_mut().enumerate() {
            assert_eq!((buf.len(), buf.capacity(), buf.as_ptr() as usize % 4096), (5000, 8192, 0));
            buf.set_len(8192);
            buf.fill(i as u8);
        }
        for (i, buf) in bufs.iter().enumerate() {
            assert!(buf.iter().all(|byte| *byte == i as u8));
        }
        drop(pool);
        drop(bufs);
    }

    #[test]
    fn an_impossible_pool_is_refused() {
        for (count, len) in [(0, 4096), (1, 0), (usize::MAX, 4096), (1, usize::MAX), (1 << 19, 4096)] {
            assert_eq!(BufferPool::new(count, len).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    #[should_panic(expected = "10 bytes in a buffer of 0")]
    fn an_empty_buffer_has_no_room() {
        AlignedBuf::default().set_len(10);
    }
}
