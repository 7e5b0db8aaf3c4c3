//! The one look at a packet that decides where it goes.

use std::net::SocketAddr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, IpVersion, Ipv4Packet, Ipv6Packet, TcpPacket, UdpPacket, UdpRepr};

/// Both ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tuple {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// A packet, as far as its headers and checksums tell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// A segment of TCP. `is_syn`: it begins a connection.
    Segment { tuple: Tuple, is_syn: bool },
    /// A datagram of UDP.
    Datagram { to: SocketAddr, from: SocketAddr, payload: &'a [u8] },
    /// Another protocol, or a fragment.
    Other,
    /// It is cut short, or a checksum is wrong.
    Broken,
}

/// Looks at a packet. Unless `is_checked`, it verifies the checksum of TCP and UDP; that of IPv4's header always.
pub(crate) fn look(packet: &[u8], is_checked: bool) -> Kind<'_> {
    look_at(packet, is_checked).unwrap_or(Kind::Broken)
}

fn look_at(packet: &[u8], is_checked: bool) -> smoltcp::wire::Result<Kind<'_>> {
    if packet.is_empty() {
        return Err(smoltcp::wire::Error);
    }
    match IpVersion::of_packet(packet)? {
        IpVersion::Ipv4 => {
            let packet = Ipv4Packet::new_checked(packet)?;
            if !packet.verify_checksum() {
                return Err(smoltcp::wire::Error);
            }
            if packet.more_frags() || packet.frag_offset() != 0 {
                return Ok(Kind::Other);
            }
            let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
            look_inside(packet.next_header(), from, to, packet.payload(), is_checked)
        }
        IpVersion::Ipv6 => {
            let packet = Ipv6Packet::new_checked(packet)?;
            let (from, to) = (packet.src_addr().into(), packet.dst_addr().into());
            look_inside(packet.next_header(), from, to, packet.payload(), is_checked)
        }
    }
}

fn look_inside(
    protocol: IpProtocol,
    from: IpAddress,
    to: IpAddress,
    payload: &[u8],
    is_checked: bool,
) -> smoltcp::wire::Result<Kind<'_>> {
    match protocol {
        IpProtocol::Tcp => {
            let segment = TcpPacket::new_checked(payload)?;
            if !is_checked && !segment.verify_checksum(&from, &to) {
                return Err(smoltcp::wire::Error);
            }
            let local = SocketAddr::new(to.into(), segment.dst_port());
            let remote = SocketAddr::new(from.into(), segment.src_port());
            let is_syn = segment.syn() && !segment.ack() && !segment.rst() && !segment.fin();
            Ok(Kind::Segment { tuple: Tuple { local, remote }, is_syn })
        }
        IpProtocol::Udp => {
            let datagram = UdpPacket::new_checked(payload)?;
            if !is_checked && !datagram.verify_checksum(&from, &to) {
                return Err(smoltcp::wire::Error);
            }
            let to = SocketAddr::new(to.into(), datagram.dst_port());
            let from = SocketAddr::new(from.into(), datagram.src_port());
            Ok(Kind::Datagram { to, from, payload: datagram.payload() })
        }
        _ => Ok(Kind::Other),
    }
}

/// The packet of a datagram. Both addresses are of one family.
pub(crate) fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let udp = UdpRepr { src_port: from.port(), dst_port: to.port() };
    let (source, target) = (IpAddress::from(from.ip()), IpAddress::from(to.ip()));
    let ip = IpRepr::new(source, target, IpProtocol::Udp, udp.header_len() + payload.len(), HOP_LIMIT);
    let checksums = ChecksumCapabilities::default();
    let mut packet = vec![0; ip.buffer_len()];
    ip.emit(&mut packet[..], &checksums);
    let mut inner = UdpPacket::new_unchecked(&mut packet[ip.header_len()..]);
    let fill = |buf: &mut [u8]| buf.copy_from_slice(payload);
    udp.emit(&mut inner, &source, &target, payload.len(), fill, &checksums);
    packet
}

/// The bytes of a packet that are not a datagram's own.
pub(crate) fn datagram_overhead(to: SocketAddr) -> usize {
    if to.is_ipv4() { 28 } else { 48 }
}

const HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_datagram_is_found_again() {
        for (from, to) in [("10.7.0.1:53", "10.7.0.2:4000"), ("[fd07::1]:53", "[fd07::2]:4000")] {
            let packet = datagram(addr(from), addr(to), b"hello");
            let expected = Kind::Datagram { to: addr(to), from: addr(from), payload: b"hello" };
            assert_eq!(look(&packet, false), expected);
        }
    }

    #[test]
    fn a_wrong_checksum_is_found_unless_the_device_has_checked() {
        let mut packet = datagram(addr("10.7.0.1:53"), addr("10.7.0.2:4000"), b"hello");
        *packet.last_mut().unwrap() ^= 1;
        assert_eq!(look(&packet, false), Kind::Broken);
        assert!(matches!(look(&packet, true), Kind::Datagram { .. }));
        packet[8] ^= 1;
        assert_eq!(look(&packet, true), Kind::Broken, "the header of IPv4 has a checksum of its own");
    }

    #[test]
    fn cut_packets_are_broken() {
        let packet = datagram(addr("10.7.0.1:53"), addr("10.7.0.2:4000"), b"hello");
        (0..packet.len()).for_each(|len| assert_eq!(look(&packet[..len], true), Kind::Broken, "{len} bytes"));
    }
}
