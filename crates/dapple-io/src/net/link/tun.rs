//! Queues of a TUN interface: packets of the kernel's network for a network in user space.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::task::{Context, Poll};

use rustix::fs::{Mode, OFlags};

use super::{Queue, check, mtu, request};

/// One queue of a TUN interface. Each read takes a whole packet, each write gives one.
///
/// Packets begin with the ten bytes of the kernel's `virtio_net_hdr`, because the interface has offload (`IFF_VNET_HDR`): a packet may be
/// one of up to 64 KiB that the kernel has not cut into segments, and its checksum may be missing.
pub struct TunQueue {
    queue: Queue,
    name: String,
    mtu: usize,
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
        (0..queues).map(|_| TunQueue::open_one(name, queues > 1)).collect()
    }

    fn open_one(name: &str, is_one_of_several: bool) -> io::Result<TunQueue> {
        let mut request = request(name)?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Not a file on a disk: opening it does not block.
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        let mut kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        if is_one_of_several {
            kind |= libc::IFF_MULTI_QUEUE;
        }
        // The flags fit: they are those of a `short`.
        request.ifr_ifru.ifru_flags = kind as libc::c_short;
        // SAFETY: the call reads and writes one `ifreq`, which `request` is.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: the argument of this call is a number.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) })?;
        Ok(TunQueue { name: name.to_owned(), mtu: mtu(name)?, queue: Queue::new(fd) })
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
        self.queue.attach()
    }

    /// Receives the next packet, with its header of ten bytes, and returns the number of bytes. The part that does not fit is lost.
    ///
    /// # Errors
    ///
    /// `NotConnected` before [`attach`](Self::attach). The interface is gone, or the runtime has shut down.
    pub fn poll_receive(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        self.queue.poll_receive(cx, bufs, |_| false)
    }

    /// Sends one packet, with its header of ten bytes. Never waits; needs no runtime.
    ///
    /// # Errors
    ///
    /// The kernel does not take the packet: `WouldBlock` for lack of room, and where the interface is down.
    pub fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.queue.send(bufs)
    }
}

impl fmt::Debug for TunQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunQueue").field("name", &self.name).field("fd", &self.queue.fd).finish_non_exhaustive()
    }
}
