//! Packet sockets: the frames of an Ethernet interface for a network in user space.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use socket2::{SockFilter, SockRef};

use super::{Queue, ask, check, mtu};

/// One queue of the frames that come to a hardware address of one's own on an Ethernet interface, such as a veth. Each read takes a frame,
/// each write gives one.
///
/// Frames begin with the ten bytes of the kernel's `virtio_net_hdr` (`PACKET_VNET_HDR`), as on a TUN interface with offload, and the 14
/// bytes of Ethernet follow: a frame may have up to 64 KiB that the kernel has not cut into segments, and its checksum may be missing.
///
/// The address is another one than the interface's. So the kernel leaves these frames alone: it neither answers nor forwards them. Frames
/// with the tag of a VLAN are left out.
pub struct PacketQueue {
    queue: Queue,
    name: String,
    index: libc::c_int,
    mtu: usize,
}

impl PacketQueue {
    /// Opens queues of the interface with this name for frames to `address`, to groups, and to all.
    ///
    /// The kernel spreads connections over the queues (`PACKET_FANOUT`). They end with their descriptors; the interface stays.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that is empty or has more than 15 bytes, for an address that is the interface's or a group's, and for an
    /// interface that is not of Ethernet. `NotFound` if there is no interface with this name. `PermissionDenied` without the right
    /// (`CAP_NET_RAW`).
    pub fn open(name: &str, queues: usize, address: [u8; 6]) -> io::Result<Vec<PacketQueue>> {
        let index = index_of(name)?;
        check_address(name, address)?;
        let mut group = None;
        let queues = (0..queues).map(|_| {
            let fd = listening_to_nothing(index)?;
            if queues > 1 {
                join(&fd, &mut group)?;
            }
            Ok(PacketQueue { queue: Queue::new(fd), name: name.to_owned(), index, mtu: mtu(name)? })
        });
        let queues = queues.collect::<io::Result<Vec<_>>>()?;
        // Only now: each queue would have received all frames before it joined the others.
        for queue in &queues {
            SockRef::from(&queue.queue.fd).attach_filter(&filter(address))?;
        }
        Ok(queues)
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The longest packet that the interface carries, in bytes, without the header of Ethernet, when the queue was opened.
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

    /// Receives the next frame, after ten bytes about it, and returns the number of bytes. The part that does not fit is lost. While the
    /// interface is down, nothing comes.
    ///
    /// # Errors
    ///
    /// `NotConnected` before [`attach`](Self::attach). The interface is gone, or the runtime has shut down.
    pub fn poll_receive(&self, cx: &mut Context<'_>, bufs: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        self.queue.poll_receive(cx, bufs, |error| match error {
            // The kernel's word that the interface went down, and perhaps that it is gone.
            Errno::NETDOWN => index_of(&self.name).is_ok_and(|index| index == self.index),
            // A frame for which these ten bytes have no words.
            Errno::INVAL => true,
            _ => false,
        })
    }

    /// Sends one frame, after ten bytes about it. Never waits; needs no runtime.
    ///
    /// # Errors
    ///
    /// The kernel does not take the frame: `WouldBlock` for lack of room, and where the interface is down.
    pub fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.queue.send(bufs)
    }
}

impl fmt::Debug for PacketQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketQueue").field("name", &self.name).field("fd", &self.queue.fd).finish_non_exhaustive()
    }
}

fn index_of(name: &str) -> io::Result<libc::c_int> {
    let answer = ask(name, libc::SIOCGIFINDEX).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => io::Error::new(io::ErrorKind::NotFound, format!("there is no interface {name}")),
        _ => error,
    })?;
    // SAFETY: the call has set this field; any bytes are a valid integer.
    Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
}

fn check_address(name: &str, address: [u8; 6]) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let answer = ask(name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the call has set this field; any bytes are a valid address.
    let own = unsafe { answer.ifr_ifru.ifru_hwaddr };
    if own.sa_family != libc::ARPHRD_ETHER {
        return refuse(format!("{name} is not an Ethernet interface"));
    }
    let is_own = own.sa_data.iter().zip(address).all(|(byte, other)| *byte as u8 == other);
    if is_own || address[0] & 1 != 0 {
        return refuse(format!("{address:02x?} is not a hardware address of one's own on {name}"));
    }
    Ok(())
}

/// A socket that is bound to the interface, with a filter that lets nothing through.
fn listening_to_nothing(index: libc::c_int) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    let socket = SockRef::from(&fd);
    socket.attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)])?;
    // As much as the system allows.
    socket.set_recv_buffer_size(BUFFER)?;
    socket.set_send_buffer_size(BUFFER)?;
    set(&fd, PACKET_VNET_HDR, &1_i32)?;
    set(&fd, PACKET_IGNORE_OUTGOING, &1_i32)?;
    // Frames to an address that is not the interface's pass a network card, too.
    set(&fd, PACKET_ADD_MEMBERSHIP, &PacketMembership { index, kind: PACKET_MR_PROMISC, len: 0, address: [0; 8] })?;
    // SAFETY: the structure consists of integers, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is one of its family, and has that length.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(fd)
}

/// Joins the sockets that share the frames; the first one gets a number for them from the kernel.
fn join(fd: &OwnedFd, group: &mut Option<i32>) -> io::Result<()> {
    if let Some(group) = group {
        return set(fd, PACKET_FANOUT, group);
    }
    set(fd, PACKET_FANOUT, &(PACKET_FANOUT_FLAG_UNIQUEID << 16))?;
    let mut given: i32 = 0;
    let mut len = size_of_val(&given) as libc::socklen_t;
    let place = (&raw mut given).cast();
    // SAFETY: the kernel writes at most `len` bytes to an integer that has as many.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_PACKET, PACKET_FANOUT, place, &raw mut len) })?;
    // Its upper half says how frames are spread: zero, by a hash of both ends.
    *group = Some(given & 0xffff);
    Ok(())
}

fn set<T>(fd: &impl AsFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let (place, len) = (std::ptr::from_ref(value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the kernel reads `len` bytes of a value that has as many.
    check(unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), libc::SOL_PACKET, option, place, len) })
}

/// The program of the kernel's filter that lets frames to this address, to groups and to all pass, but for those of a VLAN.
fn filter([a, b, c, d, e, f]: [u8; 6]) -> [SockFilter; 10] {
    let vlan_tag_present = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;
    [
        SockFilter::new(LOAD_BYTE, 0, 0, vlan_tag_present),
        SockFilter::new(JUMP_IF_EQUAL, 0, 6, 0),
        SockFilter::new(LOAD_BYTE, 0, 0, 0),
        SockFilter::new(JUMP_IF_SET, 5, 0, 1),
        SockFilter::new(LOAD_WORD, 0, 0, 0),
        SockFilter::new(JUMP_IF_EQUAL, 0, 2, u32::from_be_bytes([a, b, c, d])),
        SockFilter::new(LOAD_HALF, 0, 0, 4),
        SockFilter::new(JUMP_IF_EQUAL, 1, 0, u32::from(u16::from_be_bytes([e, f]))),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

/// `struct packet_mreq`.
#[repr(C)]
struct PacketMembership {
    index: libc::c_int,
    kind: u16,
    len: u16,
    address: [u8; 8],
}

const BUFFER: usize = 4 << 20;

// Of `linux/if_packet.h`, which the crate `libc` does not have.
const PACKET_ADD_MEMBERSHIP: libc::c_int = 1;
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_FANOUT: libc::c_int = 18;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const PACKET_MR_PROMISC: u16 = 1;
const PACKET_FANOUT_FLAG_UNIQUEID: i32 = 0x2000;

// Instructions of the filter.
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_SET: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
