//! Queues of a TUN interface: packets of the kernel's network for a network in user space.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::task::{Context, Poll};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::driver::{Direction, Source, Step};

/// One queue of a TUN interface. Each read takes a whole packet, each write gives one.
///
/// Packets begin with the ten bytes of the kernel's `virtio_net_hdr`, because the interface has offload (`IFF_VNET_HDR`): a packet may be
/// one of up to 64 KiB that the kernel has not cut into segments, and its checksum may be missing.
pub struct TunQueue {
    fd: OwnedFd,
    name: String,
    mtu: usize,
    /// The same queue, registered with a runtime.
    source: OnceLock<Source<OwnedFd>>,
}

impl TunQueue {
    /// Opens queues of the interface with this name; makes it, for as long as they are open, if there is none.
    ///
    /// The kernel spreads connections over the queues. Several need an interface that was made for several, or one that this call makes.
    /// Addresses, routes and the state *up* of the interface are for the administrator to set.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is empty or has more than 15 bytes. `PermissionDenied` without the right (`CAP_NET_ADMIN`, or an
    /// interface that belongs to this user). `NotFound` if the system has no TUN devices. `ResourceBusy` if another process has the
    /// interface.
    pub fn open(name: &str, queues: usize) -> io::Result<Vec<TunQueue>> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.bytes().any(|byte| byte == 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of an interface has 1 to 15 bytes"));
        }
        (0..queues).map(|_| TunQueue::open_one(name, queues > 1)).collect()
    }

    fn open_one(name: &str, is_one_of_several: bool) -> io::Result<TunQueue> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Not a file on a disk: opening it does not block.
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let mut kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if is_one_of_several {
            kind |= libc::IFF_MULTI_QUEUE;
        }
        let mut request = request(name);
        // The flags fit: they are those of a `short`.
        request.ifr_ifru.ifru_flags = kind as libc::c_short;
        // SAFETY: the call reads and writes one `ifreq`, which `request` is.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: the argument of this call is a number.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) })?;
        Ok(TunQueue { fd, name: name.to_owned(), mtu: mtu(name)?, source: OnceLock::new() })
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The longest packet that the interface carries, in bytes, when the queue was opened.
    pub fn mtu(&self) -> usize {
        self.mtu
    }

    /// Registers the queue with the runtime of this thread, for [`poll_receive`](Self::poll_receive). Once more changes nothing.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or no descriptor is left.
    pub fn attach(&self) -> io::Result<()> {
        if self.source.get().is_none() {
            let source = Source::new(self.fd.try_clone()?)?;
            source.comes_from_outside();
            // Another thread may have been faster.
            let _ = self.source.set(source);
        }
        Ok(())
    }

    /// Receives the next packet, with its header of ten bytes, and returns the number of bytes. The part that does not fit is lost.
    ///
    /// # Errors
    ///
    /// `NotConnected` before [`attach`](Self::attach). The interface is gone, or the runtime has shut down.
    pub fn poll_receive(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        let Some(source) = self.source.get() else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        // A packet that is shorter than the buffer says nothing about the next one.
        source.poll_io(cx, Direction::Read, None, |fd| Ok(Step::More(rustix::io::readv(fd, bufs)?)))
    }

    /// Sends one packet, with its header of ten bytes. Never waits; needs no runtime.
    ///
    /// # Errors
    ///
    /// The kernel does not take the packet: `WouldBlock` for lack of room, and where the interface is down.
    pub fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        rustix::io::writev(&self.fd, bufs)?;
        Ok(())
    }
}

impl fmt::Debug for TunQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunQueue").field("name", &self.name).field("fd", &self.fd).finish_non_exhaustive()
    }
}

/// A request to the kernel about an interface. The name is short enough to end with a zero.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: the structure consists of integers and pointers, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

fn mtu(name: &str) -> io::Result<usize> {
    // Any socket of this network namespace will do.
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut request = request(name);
    // SAFETY: the call reads and writes one `ifreq`, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as libc::Ioctl, &raw mut request) })?;
    // SAFETY: the call has set this field; any bytes are a valid integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
