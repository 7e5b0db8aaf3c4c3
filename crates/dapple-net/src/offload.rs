//! The header by which a device leaves checksums and the cutting of segments to the kernel, `struct virtio_net_hdr`.

use std::io::IoSlice;

use smoltcp::wire::{IpAddress, IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet, checksum};

/// The length of the header.
pub(crate) const HEADER_LEN: usize = 10;
/// The longest packet of IPv4.
pub(crate) const PACKET_MAX: usize = 65_535;

/// Whether the checksum of a packet that came with this header needs no check.
pub(crate) fn is_checked(header: &[u8; HEADER_LEN]) -> bool {
    header[0] & (NEEDS_CHECKSUM | CHECKSUM_VALID) != 0
}

/// Calls `send` with the parts of a packet, behind its header and the bytes of its link. The kernel cuts its segment into pieces of at most
/// `segment_len` bytes, and fills in checksums of TCP.
pub(crate) fn send<R>(
    link: &[u8],
    packet: &[u8],
    segment_len: Option<u16>,
    send: impl FnOnce(&[IoSlice<'_>]) -> R,
) -> R {
    let Some(segment) = Segment::of(packet) else {
        return send(&[IoSlice::new(&[0; HEADER_LEN]), IoSlice::new(link), IoSlice::new(packet)]);
    };
    let (before, rest) = packet.split_at(segment.start + TCP_CHECKSUM_AT);
    let header = segment.header(link.len(), segment_len);
    let sum = segment.pseudo_sum.to_be_bytes();
    let parts = [&header[..], link, before, &sum, &rest[2..]];
    send(&parts.map(IoSlice::new))
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
    fn header(&self, link_len: usize, segment_len: Option<u16>) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[0] = NEEDS_CHECKSUM;
        if let Some(segment_len) = segment_len {
            header[1] = if self.is_ipv4 { CUT_TCP_IPV4 } else { CUT_TCP_IPV6 };
            header[4..6].copy_from_slice(&segment_len.to_ne_bytes());
        }
        // No header of a packet is this long.
        header[2..4].copy_from_slice(&((link_len + self.headers_len) as u16).to_ne_bytes());
        header[6..8].copy_from_slice(&((link_len + self.start) as u16).to_ne_bytes());
        header[8..10].copy_from_slice(&(TCP_CHECKSUM_AT as u16).to_ne_bytes());
        header
    }
}

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const CUT_TCP_IPV4: u8 = 1;
const CUT_TCP_IPV6: u8 = 4;
const TCP_HEADER_MIN: usize = 20;
const TCP_CHECKSUM_AT: usize = 16;

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
        let header = segment.header(0, Some(1460));
        assert_eq!((header[0], header[1]), (NEEDS_CHECKSUM, CUT_TCP_IPV4));
        assert_eq!(u16::from_ne_bytes([header[4], header[5]]), 1460);
        let framed = segment.header(14, None);
        assert_eq!(u16::from_ne_bytes([framed[6], framed[7]]), 34);
        packet[9] = 17;
        assert!(Segment::of(&packet).is_none(), "not TCP");
        (0..40).for_each(|len| assert!(Segment::of(&packet[..len]).is_none()));
    }
}
