//! Questions for the hardware address of a host on the link, and answers: ARP (RFC 826) and neighbor discovery (RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, Icmpv6Message,
    Icmpv6Packet, Icmpv6Repr, IpProtocol, Ipv6Packet, Ipv6Repr, NdiscNeighborFlags, NdiscRepr,
};

/// The content of a frame, as far as it is about hardware addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The host `from`, at `link`, asks for the hardware address of `about`. A host that only looks whether an address is free has no
    /// address yet.
    Question { about: IpAddr, from: Option<IpAddr>, link: EthernetAddress },
    /// The host `about` is at `link`.
    Answer { about: IpAddr, link: EthernetAddress },
    /// Another one, or a broken one.
    Other,
}

/// The message in a frame; `None` for a frame with a packet for the network.
pub(crate) fn parse(protocol: EthernetProtocol, sender: EthernetAddress, payload: &[u8]) -> Option<Message> {
    match protocol {
        EthernetProtocol::Arp => Some(parse_arp(payload).unwrap_or(Message::Other)),
        EthernetProtocol::Ipv4 => None,
        EthernetProtocol::Ipv6 => {
            let ip = Ipv6Packet::new_checked(payload).ok()?;
            let kind = Icmpv6Message::from(*ip.payload().first()?);
            // Routers are named by the settings, so their announcements say nothing new.
            let is_discovery = ip.next_header() == IpProtocol::Icmpv6 && is_discovery(kind);
            is_discovery.then(|| parse_discovery(&ip, sender).unwrap_or(Message::Other))
        }
        EthernetProtocol::Unknown(_) => Some(Message::Other),
    }
}

fn is_discovery(kind: Icmpv6Message) -> bool {
    use Icmpv6Message::{NeighborAdvert, NeighborSolicit, Redirect, RouterAdvert, RouterSolicit};
    matches!(kind, NeighborAdvert | NeighborSolicit | Redirect | RouterAdvert | RouterSolicit)
}

fn parse_arp(payload: &[u8]) -> Option<Message> {
    let ArpRepr::EthernetIpv4 { operation, source_hardware_addr, source_protocol_addr, target_protocol_addr, .. } =
        ArpRepr::parse(&ArpPacket::new_checked(payload).ok()?).ok()?
    else {
        return None;
    };
    let link = source_hardware_addr;
    match operation {
        ArpOperation::Request => {
            let from = (!source_protocol_addr.is_unspecified()).then_some(source_protocol_addr.into());
            Some(Message::Question { about: target_protocol_addr.into(), from, link })
        }
        ArpOperation::Reply => Some(Message::Answer { about: source_protocol_addr.into(), link }),
        ArpOperation::Unknown(_) => None,
    }
}

fn parse_discovery(ip: &Ipv6Packet<&[u8]>, sender: EthernetAddress) -> Option<Message> {
    // No router has passed it on.
    if ip.hop_limit() != HOP_LIMIT {
        return None;
    }
    let packet = Icmpv6Packet::new_checked(ip.payload()).ok()?;
    let all = ChecksumCapabilities::default();
    let Icmpv6Repr::Ndisc(message) = Icmpv6Repr::parse(&ip.src_addr(), &ip.dst_addr(), &packet, &all).ok()? else {
        return None;
    };
    let link_of = |raw: Option<smoltcp::wire::RawHardwareAddress>| match raw {
        Some(raw) => (raw.len() == 6).then(|| EthernetAddress::from_bytes(raw.as_bytes())),
        None => Some(sender),
    };
    match message {
        NdiscRepr::NeighborSolicit { target_addr, lladdr } => {
            let from = (!ip.src_addr().is_unspecified()).then_some(ip.src_addr().into());
            Some(Message::Question { about: target_addr.into(), from, link: link_of(lladdr)? })
        }
        NdiscRepr::NeighborAdvert { target_addr, lladdr, .. } => {
            Some(Message::Answer { about: target_addr.into(), link: link_of(lladdr)? })
        }
        _ => None,
    }
}

/// A frame that asks for the hardware address of `about`: `at` the place where it was, or all hosts. Both addresses are of one family.
pub(crate) fn question(link: EthernetAddress, own: IpAddr, about: IpAddr, at: Option<EthernetAddress>) -> Vec<u8> {
    match (own, about) {
        (IpAddr::V6(own), IpAddr::V6(about)) => {
            let [.., a, b, c] = about.octets();
            let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
            let (to, to_link) = at.map_or_else(|| (group, link_of_group(group.into())), |at| (about, at));
            let message = NdiscRepr::NeighborSolicit { target_addr: about, lladdr: Some(link.into()) };
            discovery((link, own), (to_link, to), message)
        }
        (IpAddr::V4(own), IpAddr::V4(about)) => {
            let to = (at.unwrap_or(EthernetAddress::BROADCAST), EthernetAddress([0; 6]));
            arp(ArpOperation::Request, (link, own), to, about)
        }
        _ => Vec::new(),
    }
}

/// A frame that says that `own` is at `link`: to the host that asked, or to all.
pub(crate) fn answer(link: EthernetAddress, own: IpAddr, to: Option<(IpAddr, EthernetAddress)>) -> Vec<u8> {
    match own {
        IpAddr::V6(own) => {
            let (to, to_link, solicited) = match to {
                Some((IpAddr::V6(to), to_link)) => (to, to_link, NdiscNeighborFlags::SOLICITED),
                _ => (ALL_NODES, link_of_group(ALL_NODES.into()), NdiscNeighborFlags::empty()),
            };
            let flags = solicited | NdiscNeighborFlags::OVERRIDE;
            let message = NdiscRepr::NeighborAdvert { flags, target_addr: own, lladdr: Some(link.into()) };
            discovery((link, own), (to_link, to), message)
        }
        IpAddr::V4(own) => match to {
            Some((IpAddr::V4(to), to_link)) => arp(ArpOperation::Reply, (link, own), (to_link, to_link), to),
            _ => {
                let all = EthernetAddress::BROADCAST;
                arp(ArpOperation::Reply, (link, own), (all, all), own)
            }
        },
    }
}

/// The hardware address of a group of hosts, or of all for the broadcast address.
pub(crate) fn link_of_group(group: IpAddr) -> EthernetAddress {
    match group {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, b, c, d] = group.octets();
            EthernetAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V4(_) => EthernetAddress::BROADCAST,
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            EthernetAddress([0x33, 0x33, a, b, c, d])
        }
    }
}

fn arp(
    operation: ArpOperation,
    (link, own): (EthernetAddress, Ipv4Addr),
    (to, target): (EthernetAddress, EthernetAddress),
    about: Ipv4Addr,
) -> Vec<u8> {
    let message = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: link,
        source_protocol_addr: own,
        target_hardware_addr: target,
        target_protocol_addr: about,
    };
    framed(link, to, EthernetProtocol::Arp, message.buffer_len(), |payload| {
        message.emit(&mut ArpPacket::new_unchecked(payload));
    })
}

fn discovery(
    (link, from): (EthernetAddress, Ipv6Addr),
    (to_link, to): (EthernetAddress, Ipv6Addr),
    message: NdiscRepr<'_>,
) -> Vec<u8> {
    let message = Icmpv6Repr::Ndisc(message);
    let ip = Ipv6Repr {
        src_addr: from,
        dst_addr: to,
        next_header: IpProtocol::Icmpv6,
        payload_len: message.buffer_len(),
        hop_limit: HOP_LIMIT,
    };
    let len = ip.buffer_len() + message.buffer_len();
    framed(link, to_link, EthernetProtocol::Ipv6, len, |payload| {
        let mut packet = Ipv6Packet::new_unchecked(payload);
        ip.emit(&mut packet);
        let mut inner = Icmpv6Packet::new_unchecked(packet.payload_mut());
        message.emit(&from, &to, &mut inner, &ChecksumCapabilities::default());
    })
}

fn framed(
    from: EthernetAddress,
    to: EthernetAddress,
    protocol: EthernetProtocol,
    len: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let head = EthernetRepr { src_addr: from, dst_addr: to, ethertype: protocol };
    let mut frame = vec![0; head.buffer_len() + len];
    head.emit(&mut EthernetFrame::new_unchecked(&mut frame[..]));
    fill(&mut frame[head.buffer_len()..]);
    frame
}

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// That of packets which have come through no router.
const HOP_LIMIT: u8 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: EthernetAddress = EthernetAddress([2, 0xda, 10, 7, 0, 1]);
    const THERE: EthernetAddress = EthernetAddress([2, 0xda, 10, 7, 0, 2]);

    fn parsed(frame: &[u8]) -> (EthernetAddress, Option<Message>) {
        let frame = EthernetFrame::new_checked(frame).unwrap();
        (frame.dst_addr(), parse(frame.ethertype(), frame.src_addr(), frame.payload()))
    }

    #[test]
    fn questions_and_answers_are_understood_again() {
        for (here, there) in [("10.7.0.1", "10.7.0.2"), ("fd07::1", "fd07::2")] {
            let (here, there): (IpAddr, IpAddr) = (here.parse().unwrap(), there.parse().unwrap());
            let (to, asked) = parsed(&question(HERE, here, there, None));
            assert!(to.is_multicast(), "to all, or to a group");
            assert_eq!(asked, Some(Message::Question { about: there, from: Some(here), link: HERE }));
            assert_eq!(parsed(&question(HERE, here, there, Some(THERE))).0, THERE);
            let answered = Message::Answer { about: there, link: THERE };
            assert_eq!(parsed(&answer(THERE, there, Some((here, HERE)))), (HERE, Some(answered)));
            let (to, announced) = parsed(&answer(THERE, there, None));
            assert!(to.is_multicast() && announced == Some(answered));
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_none() {
        let good = [
            question(HERE, "10.7.0.1".parse().unwrap(), "10.7.0.2".parse().unwrap(), None),
            question(HERE, "fd07::1".parse().unwrap(), "fd07::2".parse().unwrap(), None),
            answer(HERE, "fd07::1".parse().unwrap(), None),
        ];
        for frame in &good {
            for len in 14..frame.len() {
                let _ = parsed(&frame[..len]);
            }
            for at in 12..frame.len() {
                for bit in 0..8 {
                    let mut frame = frame.clone();
                    frame[at] ^= 1 << bit;
                    let _ = parsed(&frame);
                }
            }
        }
        // A router has passed it on.
        let mut frame = good[1].clone();
        frame[14 + 7] = 254;
        assert_eq!(parsed(&frame).1, Some(Message::Other));
    }
}
