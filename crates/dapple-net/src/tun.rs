//! TUN interfaces: packets come from the kernel's network and go to it.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_io::net::TunQueue;
use smoltcp::wire::{IpAddress, IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet, checksum};

use crate::device::{Device, Received};
use crate::network::Network;
use crate::settings::Settings;

/// A TUN interface and the addresses of a network on it, as a command line names them: `tun:NAME,ADDRESS/PREFIX[,ADDRESS/PREFIX…]`.
///
/// ```
/// let tun: dapple_net::Tun = "tun:web0,10.7.0.1/24,fd07::1/64".parse().unwrap();
/// assert_eq!((tun.name.as_str(), tun.settings.addresses.len()), ("web0", 2));
/// assert!("tun:web0".parse::<dapple_net::Tun>().is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Tun {
    /// The name of the interface.
    pub name: String,
    /// Addresses and limits.
    pub settings: Settings,
}

impl Tun {
    /// Opens the interface, or makes it, with this many queues, and a network on it. Each queue gets a color of its own. An interface that
    /// was made for one queue is opened with one.
    ///
    /// The kernel's end needs an address and to be up: `ip addr add 10.7.0.2/24 dev NAME` and `ip link set NAME up`.
    ///
    /// # Errors
    /// Those of [`TunQueue::open`] and [`Network::new`].
    pub fn open(self, queues: usize) -> io::Result<Network> {
        let opened = TunQueue::open(&self.name, queues);
        let queues = match opened {
            // The kernel's answer for several queues of an interface that has one.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && queues > 1 => TunQueue::open(&self.name, 1)?,
            opened => opened?,
        };
        let devices = queues.into_iter().map(|queue| Arc::new(TunDevice { queue }) as Arc<dyn Device>);
        Network::new(devices.collect(), self.settings)
    }
}

impl FromStr for Tun {
    type Err = String;

    fn from_str(text: &str) -> Result<Tun, String> {
        let shape = || format!("{text:?} is not of the form tun:NAME,ADDRESS/PREFIX");
        let (name, addresses) = text.strip_prefix("tun:").and_then(|rest| rest.split_once(',')).ok_or_else(shape)?;
        let addresses = addresses.split(',').map(address).collect::<Result<Vec<_>, String>>()?;
        let Some((first, rest)) = addresses.split_first() else { return Err(shape()) };
        if name.is_empty() {
            return Err(shape());
        }
        let mut settings = Settings::new(first.0, first.1);
        settings.addresses.extend_from_slice(rest);
        Ok(Tun { name: name.to_owned(), settings })
    }
}

/// An address with the length of its prefix.
fn address(text: &str) -> Result<(IpAddr, u8), String> {
    let parsed = text.split_once('/').and_then(|(ip, len)| Some((ip.parse().ok()?, len.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not an address with the length of its prefix, such as 10.7.0.1/24"))
}

/// One queue. The kernel cuts long segments, and fills in checksums.
struct TunDevice {
    queue: TunQueue,
}

impl Device for TunDevice {
    fn mtu(&self) -> usize {
        self.queue.mtu()
    }

    fn segments_up_to(&self) -> Option<usize> {
        Some(PACKET_MAX)
    }

    fn start(&self) -> io::Result<()> {
        self.queue.attach()
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        let mut header = [0; HEADER_LEN];
        let len = ready!(self.queue.poll_receive(cx, &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buf)]))?;
        let is_checked = header[0] & (NEEDS_CHECKSUM | CHECKSUM_VALID) != 0;
        Poll::Ready(Ok(Received { len: len.saturating_sub(HEADER_LEN), is_checked }))
    }

    fn send(&self, packet: &[u8], segment_len: Option<u16>) -> io::Result<()> {
        let Some(segment) = Segment::of(packet) else {
            return self.queue.send(&[IoSlice::new(&[0; HEADER_LEN]), IoSlice::new(packet)]);
        };
        let (before, rest) = packet.split_at(segment.start + TCP_CHECKSUM_AT);
        let header = segment.header(segment_len);
        let sum = segment.pseudo_sum.to_be_bytes();
        self.queue.send(&[IoSlice::new(&header), IoSlice::new(before), IoSlice::new(&sum), IoSlice::new(&rest[2..])])
    }
}

/// A segment of TCP in a packet, which leaves its checksum to the kernel.
struct Segment {
    is_ipv4: bool,
    /// Where it begins.
    start: usize,
    /// The length of all headers.
    headers_len: usize,
    /// The part of the checksum that the kernel does not compute.
    pseudo_sum: u16,
}

impl Segment {
    fn of(packet: &[u8]) -> Option<Segment> {
        if packet.is_empty() {
            return None;
        }
        let (is_ipv4, start, from, to, protocol) = match IpVersion::of_packet(packet).ok()? {
            IpVersion::Ipv4 => {
                let ip = Ipv4Packet::new_unchecked(packet.get(..20)?);
                let (from, to): (IpAddress, IpAddress) = (ip.src_addr().into(), ip.dst_addr().into());
                (true, usize::from(ip.header_len()), from, to, ip.next_header())
            }
            IpVersion::Ipv6 => {
                let ip = Ipv6Packet::new_unchecked(packet.get(..40)?);
                (false, 40, ip.src_addr().into(), ip.dst_addr().into(), ip.next_header())
            }
        };
        if protocol != IpProtocol::Tcp || packet.len() < start + TCP_HEADER_MIN {
            return None;
        }
        let headers_len = start + usize::from(packet[start + 12] >> 4) * 4;
        let len = u32::try_from(packet.len() - start).ok()?;
        Some(Segment { is_ipv4, start, headers_len, pseudo_sum: checksum::pseudo_header(&from, &to, protocol, len) })
    }

    /// The kernel's `virtio_net_hdr`, in the byte order of this machine.
    fn header(&self, segment_len: Option<u16>) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[0] = NEEDS_CHECKSUM;
        if let Some(segment_len) = segment_len {
            header[1] = if self.is_ipv4 { CUT_TCP_IPV4 } else { CUT_TCP_IPV6 };
            header[4..6].copy_from_slice(&segment_len.to_ne_bytes());
        }
        // No header of a packet is this long.
        header[2..4].copy_from_slice(&(self.headers_len as u16).to_ne_bytes());
        header[6..8].copy_from_slice(&(self.start as u16).to_ne_bytes());
        header[8..10].copy_from_slice(&(TCP_CHECKSUM_AT as u16).to_ne_bytes());
        header
    }
}

/// `struct virtio_net_hdr`.
const HEADER_LEN: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const CUT_TCP_IPV4: u8 = 1;
const CUT_TCP_IPV6: u8 = 4;
const TCP_HEADER_MIN: usize = 20;
const TCP_CHECKSUM_AT: usize = 16;
/// The longest packet of IPv4.
const PACKET_MAX: usize = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_asks_for_its_checksum() {
        let mut packet = vec![0; 60];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[12..20].copy_from_slice(&[10, 7, 0, 1, 10, 7, 0, 2]);
        packet[32] = 0x50;
        let segment = Segment::of(&packet).unwrap();
        assert_eq!((segment.is_ipv4, segment.start, segment.headers_len), (true, 20, 40));
        // The words of both addresses, the protocol, and the 40 bytes of the segment.
        assert_eq!(segment.pseudo_sum, 0x0a07 + 0x0001 + 0x0a07 + 0x0002 + 6 + 40);
        let header = segment.header(Some(1460));
        assert_eq!((header[0], header[1]), (NEEDS_CHECKSUM, CUT_TCP_IPV4));
        assert_eq!(u16::from_ne_bytes([header[4], header[5]]), 1460);
        packet[9] = 17;
        assert!(Segment::of(&packet).is_none(), "not TCP");
        (0..40).for_each(|len| assert!(Segment::of(&packet[..len]).is_none()));
    }

    #[test]
    fn wrong_texts_are_refused_with_a_sentence() {
        for text in ["tun", "tap:x,10.7.0.1/24", "tun:x", "tun:,10.7.0.1/24", "tun:x,10.7.0.1", "tun:x,10.7.0.1/24,"] {
            let error = text.parse::<Tun>().unwrap_err();
            assert!(error.contains(" is not "), "{error}");
        }
    }
}
