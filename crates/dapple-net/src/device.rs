//! The border to what carries packets.

use std::io;
use std::task::{Context, Poll};

/// Carries IP packets, without a link header, to and from a network: a TUN device, a link in memory, or one of a program's own.
///
/// A network sends from many threads at once, and receives in one task for each device.
pub trait Device: Send + Sync + 'static {
    /// The longest packet, in bytes, at least 1,280.
    fn mtu(&self) -> usize;

    /// The longest packet that [`send`](Self::send) cuts into segments itself; `None` if it does not cut. Such a device also fills in
    /// checksums of TCP. By default `None`.
    fn segments_up_to(&self) -> Option<usize> {
        None
    }

    /// Called once, in the runtime of the network, before anything is sent or received. By default does nothing.
    ///
    /// # Errors
    /// The device is of no use.
    fn start(&self) -> io::Result<()> {
        Ok(())
    }

    /// Takes the next packet into `buf`, which has room for [`mtu`](Self::mtu) and for [`segments_up_to`](Self::segments_up_to) bytes.
    ///
    /// # Errors
    /// The device is of no more use.
    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>>;

    /// Sends one packet. With `segment_len`, the device cuts the payload of its TCP segment into pieces of at most that length.
    ///
    /// # Errors
    /// The packet is lost, as packets may be: `WouldBlock` if there is no room now.
    fn send(&self, packet: &[u8], segment_len: Option<u16>) -> io::Result<()>;
}

/// A packet that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its length.
    pub len: usize,
    /// Whether the checksum of its payload needs no more check: the device has checked it, or the packet has not left this machine.
    pub is_checked: bool,
}
