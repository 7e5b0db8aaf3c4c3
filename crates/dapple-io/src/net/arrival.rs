//! The time at which data that is read from a connection reached this machine.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The arrival of the bytes that a connection's I/O traits read last.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    is_wanted: AtomicBool,
    /// Nanoseconds of the system's clock, as the kernel noted them; 0 if it did not.
    at_ns: AtomicU64,
}

impl Arrival {
    /// Relaxed, as everywhere here: one thread reads the connection and asks, and nothing else
    /// depends on it.
    pub(super) fn want(&self, is_wanted: bool) {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
        // The last time does not apply to the next read.
        self.at_ns.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, at: Option<Duration>) {
        let at_ns = at.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(0));
        self.at_ns.store(at_ns, Ordering::Relaxed);
    }

    /// How long ago the bytes came, if known. Zero if the system's clock was set back since.
    pub(super) fn ago(&self) -> Option<Duration> {
        let at_ns = self.at_ns.load(Ordering::Relaxed);
        // REAL: it is compared with times that the kernel notes.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        (at_ns > 0).then(|| now.saturating_sub(Duration::from_nanos(at_ns)))
    }
}

/// Makes the kernel note when packets of this socket, or of those accepted from it later, reach
/// this machine.
pub(super) fn note_arrivals(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for as long as the reference lives; the kernel reads
    // `size_of(on)` bytes of `on`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads as `read` does; also returns when the last of these bytes arrived, if the kernel has noted
/// it.
pub(super) fn read(socket: impl AsFd, buf: &mut [MaybeUninit<u8>]) -> io::Result<(usize, Option<Duration>)> {
    let mut part = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut control = Control([0; CONTROL_LEN]);
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_LEN as _;
    // SAFETY: the descriptor is open as long as the reference lives; `message` names memory that is
    // borrowed until this function returns, with its true sizes, and the kernel only writes bytes
    // to it, which are valid values of both types.
    let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has set `msg_controllen` to the length that it wrote, at most the room, in
    // the form that these macros read; `message` and `control` live on. The first header, if there
    // is one, is within `control` and aligned.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Ok((len, None));
    }
    // SAFETY: not null, see above.
    let (level, kind, header_len) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
    // SAFETY: it computes a number.
    let expected_len = unsafe { libc::CMSG_LEN(size_of::<libc::timespec>() as u32) };
    if level != libc::SOL_SOCKET || kind != libc::SCM_TIMESTAMPNS || header_len < expected_len as usize {
        return Ok((len, None));
    }
    // SAFETY: a header of this level, type and length is followed by a `timespec`, within
    // `control`; its alignment is not guaranteed.
    let time: libc::timespec = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
    let secs = u64::try_from(time.tv_sec).ok();
    Ok((len, secs.map(|secs| Duration::new(secs, time.tv_nsec as u32))))
}

/// Aligned as headers of control messages are.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// More than the one message needs.
const CONTROL_LEN: usize = 64;
