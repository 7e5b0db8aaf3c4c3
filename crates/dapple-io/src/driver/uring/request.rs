//! A request to the kernel, together with all the memory that it touches meanwhile.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use io_uring::{opcode, squeue, types};

use crate::fs::{AlignedBuf, File};

/// One call. It owns the memory that the kernel reads and writes, so the ring keeps the request
/// until the completion.
pub(crate) struct Request {
    pub(crate) call: Call,
    /// Kept open until the completion. For [`Call::Open`] the directory, unless it is the current
    /// one.
    pub(crate) file: Option<File>,
    pub(crate) memory: Memory,
    /// The first byte to read or write in the memory.
    pub(crate) start: usize,
    /// The position in the file.
    pub(crate) offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The memory is the path with a zero at its end, after the argument of `openat2`, which is
    /// used if `resolve` is not 0.
    Open {
        flags: i32,
        mode: u32,
        resolve: u64,
    },
    /// Of the file; the kernel's answer is dropped, see `File::metadata`. The memory is the room
    /// for it.
    Stat,
    Read,
    Write,
    Sync {
        data_only: bool,
    },
}

/// Memory at an address that does not change when this value is moved.
pub(crate) enum Memory {
    None,
    Heap(Vec<u8>),
    Aligned(AlignedBuf),
}

impl Call {
    /// Whether dropping the future revokes it. A call that changes the file continues, as it does
    /// in the pool: half a write is worse than an unwanted one.
    pub(crate) fn is_revocable(self) -> bool {
        !matches!(self, Call::Write | Call::Sync { .. })
    }
}

impl Request {
    /// A call that needs neither memory nor an offset.
    pub(crate) fn sync(file: File, data_only: bool) -> Self {
        Request { call: Call::Sync { data_only }, file: Some(file), memory: Memory::None, start: 0, offset: 0 }
    }

    pub(crate) fn stat(file: File) -> Self {
        let memory = Memory::Heap(vec![0; size_of::<libc::statx>()]);
        Request { call: Call::Stat, file: Some(file), memory, start: 0, offset: 0 }
    }

    /// `path` must contain no zero.
    pub(crate) fn open(dir: Option<File>, path: &[u8], flags: i32, mode: u32, resolve: u64) -> Self {
        debug_assert!(!path.contains(&0));
        // `struct open_how`: copied byte by byte, so it needs no alignment.
        let how = [flags as u32 as u64, u64::from(mode), resolve];
        let memory = how.into_iter().flat_map(u64::to_ne_bytes).chain(path.iter().copied()).chain([0]).collect();
        Request {
            call: Call::Open { flags, mode, resolve },
            file: dir,
            memory: Memory::Heap(memory),
            start: OPEN_HOW_LEN,
            offset: 0,
        }
    }

    /// The entry of the submission queue. It points into the memory of this request, which must
    /// live, and be touched by no other code, until the completion. `registered` is the place of
    /// the memory in the ring's table of buffers.
    pub(super) fn entry(&mut self, registered: Option<u16>) -> squeue::Entry {
        let fd = types::Fd(self.file.as_ref().map_or(libc::AT_FDCWD, |file| file.as_std().as_raw_fd()));
        let (start, offset) = (self.start, self.offset);
        let all = self.memory.bytes();
        let how = all.as_ptr();
        let bytes = all.get_mut(start..).unwrap_or_default();
        // As the kernel's own calls do: the next call reads or writes the rest.
        let len = bytes.len().min(LEN_MAX) as u32;
        let ptr = bytes.as_mut_ptr();
        let entry = match (self.call, registered) {
            (Call::Read, Some(index)) => opcode::ReadFixed::new(fd, ptr, len, index).offset(offset).build(),
            (Call::Read, None) => opcode::Read::new(fd, ptr, len).offset(offset).build(),
            (Call::Write, Some(index)) => opcode::WriteFixed::new(fd, ptr, len, index).offset(offset).build(),
            (Call::Write, None) => opcode::Write::new(fd, ptr, len).offset(offset).build(),
            (Call::Sync { data_only }, _) => {
                let flags = if data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
                opcode::Fsync::new(fd).flags(flags).build()
            }
            (Call::Open { flags, mode, resolve: 0 }, _) => {
                opcode::OpenAt::new(fd, ptr.cast_const().cast()).flags(flags).mode(mode).build()
            }
            (Call::Open { .. }, _) => opcode::OpenAt2::new(fd, ptr.cast_const().cast(), how.cast()).build(),
            (Call::Stat, _) => {
                debug_assert!(bytes.len() >= size_of::<libc::statx>());
                opcode::Statx::new(fd, c"".as_ptr(), ptr.cast())
                    .flags(libc::AT_EMPTY_PATH)
                    .mask(libc::STATX_BASIC_STATS)
                    .build()
            }
        };
        match self.takes_a_thread(len as usize) {
            true => entry.flags(squeue::Flags::ASYNC),
            false => entry,
        }
    }

    /// Whether a kernel thread must do it, although the kernel would first try it on the worker.
    fn takes_a_thread(&self, len: usize) -> bool {
        match self.call {
            // The worker would wait while the kernel copies from its cache.
            Call::Read | Call::Write => len > INLINE_MAX && self.file.as_ref().is_some_and(|file| !file.is_direct()),
            // That try adds O_NONBLOCK, with which a named pipe opens even without a process at its
            // other end. A caller that sets it wants that.
            Call::Open { flags, .. } => flags & (libc::O_PATH | libc::O_NONBLOCK) == 0,
            Call::Stat | Call::Sync { .. } => false,
        }
    }

    /// Handles the result of a completion that no task waits for.
    pub(super) fn discard(self, result: i32) {
        if matches!(self.call, Call::Open { .. }) && result >= 0 {
            // SAFETY: the kernel has just opened this descriptor for us, and no other code knows
            // it.
            drop(unsafe { OwnedFd::from_raw_fd(result) });
        }
    }
}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Memory::None => &mut [],
            Memory::Heap(bytes) => bytes,
            Memory::Aligned(buf) => buf,
        }
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Memory::Heap(bytes) => bytes,
            Memory::None | Memory::Aligned(_) => Vec::new(),
        }
    }

    /// An empty buffer if the memory was no such buffer.
    pub(crate) fn into_aligned(self) -> AlignedBuf {
        match self {
            Memory::Aligned(buf) => buf,
            Memory::None | Memory::Heap(_) => AlignedBuf::default(),
        }
    }
}

/// The most bytes that the worker copies to or from the kernel's cache, about 10 us of work; a
/// kernel thread does more.
pub(crate) const INLINE_MAX: usize = 64 * 1024;

/// `struct open_how`.
const OPEN_HOW_LEN: usize = 3 * size_of::<u64>();

/// The most that the kernel reads or writes in one call (`MAX_RW_COUNT`).
const LEN_MAX: usize = 0x7fff_f000;
