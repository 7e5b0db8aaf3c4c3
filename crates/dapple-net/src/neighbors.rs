//! The hardware addresses of the hosts on a link.
//!
//! | state of a host | packets to it | left when |
//! |---|---|---|
//! | unknown | | a packet to it: asked |
//! | asked | up to [`HELD_MAX`] wait; a question a second | it answers, or asks for an address of ours: known. No answer, and room is needed: unknown |
//! | known | go | nothing from it for [`FRESH`]: it is asked while packets go; after [`QUESTIONS_MAX`] in vain: asked |

use std::net::IpAddr;
use std::time::Duration;

use dapple_io::time::Instant;
use dapple_sched::environment::HashMap;
use smoltcp::wire::{EthernetAddress, IpCidr};

use crate::resolution::{Message, answer, link_of_group, question};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Neighbors {
    /// The hardware address of the network itself.
    link: EthernetAddress,
    own: Vec<(IpAddr, u8)>,
    routers: Vec<IpAddr>,
    known: HashMap<IpAddr, Known>,
    asked: HashMap<IpAddr, Asked>,
}

#[derive(Debug)]
struct Known {
    link: EthernetAddress,
    confirmed: Instant,
    /// Questions since then, and when the last one went.
    questions: u32,
    last_question: Instant,
}

#[derive(Debug)]
struct Asked {
    at: Instant,
    held: Vec<Held>,
}

/// A packet that waits for the hardware address of its host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) packet: Vec<u8>,
    pub(crate) segment_len: Option<u16>,
}

/// Packets that may go now, and the place of their host.
pub(crate) type Released = (EthernetAddress, Vec<Held>);

/// The fate of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It goes to this place.
    To(EthernetAddress),
    /// It waits.
    Held,
    /// There is no way to its host, or no room for it to wait.
    Lost,
}

impl Neighbors {
    pub(crate) fn new(link: EthernetAddress, own: Vec<(IpAddr, u8)>, routers: Vec<IpAddr>) -> Neighbors {
        Neighbors { link, own, routers, known: HashMap::default(), asked: HashMap::default() }
    }

    /// The way of a packet, and a frame to send before it.
    pub(crate) fn way(&mut self, packet: &[u8], segment_len: Option<u16>, now: Instant) -> (Way, Option<Vec<u8>>) {
        let Some(to) = destination(packet) else { return (Way::Lost, None) };
        if to.is_multicast() || self.is_broadcast(to) {
            return (Way::To(link_of_group(to)), None);
        }
        let Some(hop) = self.next_hop(to) else { return (Way::Lost, None) };
        match self.known_way(hop, now) {
            Some((link, question)) => (Way::To(link), question),
            None => self.ask(hop, Held { packet: packet.to_vec(), segment_len }, now),
        }
    }

    /// Takes a message in. Returns the answer to it, and packets that may go now, with the place of their host.
    pub(crate) fn take_in(&mut self, message: Message, now: Instant) -> (Option<Vec<u8>>, Option<Released>) {
        match message {
            Message::Question { about, from, link } if self.is_own(about) && link.is_unicast() => {
                let from = from.filter(|from| self.next_hop(*from) == Some(*from));
                // It is about to talk to us.
                let released = from.and_then(|from| self.learn(from, link, now));
                (Some(answer(self.link, about, from.map(|from| (from, link)))), released)
            }
            Message::Answer { about, link } if link.is_unicast() && !self.is_own(about) => {
                let is_wanted = self.known.contains_key(&about) || self.asked.contains_key(&about);
                (None, is_wanted.then(|| self.learn(about, link, now)).flatten())
            }
            _ => (None, None),
        }
    }

    /// Frames that tell all hosts where the addresses of the network are.
    pub(crate) fn announcements(&self) -> Vec<Vec<u8>> {
        self.own.iter().map(|(ip, _)| answer(self.link, *ip, None)).collect()
    }

    /// Whether a packet to this address is for all hosts.
    fn is_broadcast(&self, to: IpAddr) -> bool {
        let IpAddr::V4(to) = to else { return false };
        to.is_broadcast()
            || self.own.iter().any(|(ip, prefix_len)| match IpCidr::new((*ip).into(), *prefix_len) {
                IpCidr::Ipv4(cidr) => cidr.broadcast() == Some(to),
                IpCidr::Ipv6(_) => false,
            })
    }

    /// The host on the link that takes packets to this address.
    fn next_hop(&self, to: IpAddr) -> Option<IpAddr> {
        let contains = |(ip, len): &(IpAddr, u8)| IpCidr::new((*ip).into(), *len).contains_addr(&to.into());
        let is_link_local = matches!(to, IpAddr::V6(to) if to.is_unicast_link_local());
        if is_link_local || self.own.iter().any(contains) {
            return Some(to);
        }
        self.routers.iter().find(|router| router.is_ipv4() == to.is_ipv4()).copied()
    }

    fn known_way(&mut self, hop: IpAddr, now: Instant) -> Option<(EthernetAddress, Option<Vec<u8>>)> {
        let known = self.known.get_mut(&hop)?;
        let is_due = |since: Instant, after| now.saturating_duration_since(since) >= after;
        if !is_due(known.confirmed, FRESH) || (known.questions > 0 && !is_due(known.last_question, PAUSE)) {
            return Some((known.link, None));
        }
        if known.questions >= QUESTIONS_MAX {
            self.known.remove(&hop);
            return None;
        }
        (known.questions, known.last_question) = (known.questions + 1, now);
        let link = known.link;
        let own = self.own_for(hop)?;
        Some((link, Some(question(self.link, own, hop, Some(link)))))
    }

    fn ask(&mut self, hop: IpAddr, packet: Held, now: Instant) -> (Way, Option<Vec<u8>>) {
        let Some(own) = self.own_for(hop) else { return (Way::Lost, None) };
        if let Some(asked) = self.asked.get_mut(&hop) {
            let is_due = now.saturating_duration_since(asked.at) >= PAUSE;
            if is_due {
                // Those of a second ago are sent again by TCP.
                (asked.at, asked.held) = (now, Vec::new());
            }
            let has_room = asked.held.len() < HELD_MAX;
            if has_room {
                asked.held.push(packet);
            }
            let way = if has_room { Way::Held } else { Way::Lost };
            return (way, is_due.then(|| question(self.link, own, hop, None)));
        }
        if self.asked.len() >= ASKED_MAX {
            self.asked.retain(|_, asked| now.saturating_duration_since(asked.at) < PAUSE);
        }
        if self.asked.len() >= ASKED_MAX {
            return (Way::Lost, None);
        }
        self.asked.insert(hop, Asked { at: now, held: vec![packet] });
        (Way::Held, Some(question(self.link, own, hop, None)))
    }

    fn learn(&mut self, ip: IpAddr, link: EthernetAddress, now: Instant) -> Option<Released> {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&ip) {
            // Any one: it is asked again when it is needed.
            let any = self.known.keys().next().copied()?;
            self.known.remove(&any);
        }
        self.known.insert(ip, Known { link, confirmed: now, questions: 0, last_question: now });
        self.asked.remove(&ip).map(|asked| (link, asked.held))
    }

    /// The address that asks for a host: one with a prefix that the host is in, or one of its family.
    fn own_for(&self, hop: IpAddr) -> Option<IpAddr> {
        let of_family = || self.own.iter().filter(|(ip, _)| ip.is_ipv4() == hop.is_ipv4());
        let near = of_family().find(|(ip, len)| IpCidr::new((*ip).into(), *len).contains_addr(&hop.into()));
        near.or_else(|| of_family().next()).map(|(ip, _)| *ip)
    }

    fn is_own(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|(own, _)| *own == ip)
    }
}

/// The address that a packet goes to.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?)),
        6 => Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(24..40)?).ok()?)),
        _ => None,
    }
}

/// How long a host is believed to be where it was.
const FRESH: Duration = Duration::from_secs(30);
/// Between two questions for one host.
const PAUSE: Duration = Duration::from_secs(1);
const QUESTIONS_MAX: u32 = 3;
/// Packets that wait for one host.
const HELD_MAX: usize = 8;
/// Hosts that have not answered yet.
const ASKED_MAX: usize = 256;
const KNOWN_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: EthernetAddress = EthernetAddress([2, 0xda, 10, 7, 0, 1]);
    const THERE: EthernetAddress = EthernetAddress([2, 0xda, 10, 7, 0, 2]);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn neighbors() -> Neighbors {
        Neighbors::new(HERE, vec![(ip("10.7.0.1"), 24), (ip("fd07::1"), 64)], vec![ip("10.7.0.254")])
    }

    fn packet(to: &str) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = if ip(to).is_ipv4() { 0x45 } else { 0x60 };
        match ip(to) {
            IpAddr::V4(to) => packet[16..20].copy_from_slice(&to.octets()),
            IpAddr::V6(to) => packet[24..40].copy_from_slice(&to.octets()),
        }
        packet
    }

    fn answered(about: &str) -> Message {
        Message::Answer { about: ip(about), link: THERE }
    }

    #[test]
    fn packets_wait_for_the_answer() {
        let (mut neighbors, now) = (neighbors(), Instant::now());
        for to in ["10.7.0.2", "fd07::2"] {
            let (way, asked) = neighbors.way(&packet(to), Some(7), now);
            assert!(way == Way::Held && asked.is_some());
            assert_eq!(neighbors.way(&packet(to), None, now), (Way::Held, None), "one question a second");
            let (_, released) = neighbors.take_in(answered(to), now);
            let (link, held) = released.unwrap();
            assert_eq!((link, held.len(), held[0].segment_len), (THERE, 2, Some(7)));
            assert_eq!(neighbors.way(&packet(to), None, now), (Way::To(THERE), None));
        }
    }

    #[test]
    fn few_packets_wait_and_few_hosts_are_asked() {
        let (mut neighbors, now) = (neighbors(), Instant::now());
        let held = (0..100).filter(|_| neighbors.way(&packet("10.7.0.2"), None, now).0 == Way::Held).count();
        assert_eq!(held, HELD_MAX);
        for host in 0..10_000 {
            neighbors.way(&packet(&format!("fd07::{host:x}:2")), None, now);
        }
        assert_eq!(neighbors.asked.len(), ASKED_MAX);
        let later = now + PAUSE;
        assert!(neighbors.way(&packet("10.7.0.3"), None, later).1.is_some(), "those without an answer make room");
    }

    #[test]
    fn a_host_that_no_longer_answers_is_forgotten() {
        let (mut neighbors, mut now) = (neighbors(), Instant::now());
        neighbors.way(&packet("10.7.0.2"), None, now);
        neighbors.take_in(answered("10.7.0.2"), now);
        now += FRESH;
        for _ in 0..QUESTIONS_MAX {
            let (way, asked) = neighbors.way(&packet("10.7.0.2"), None, now);
            assert!(way == Way::To(THERE) && asked.is_some());
            assert!(neighbors.way(&packet("10.7.0.2"), None, now).1.is_none());
            now += PAUSE;
        }
        let (way, asked) = neighbors.way(&packet("10.7.0.2"), None, now);
        assert!(way == Way::Held && asked.is_some(), "all are asked");
    }

    #[test]
    fn far_hosts_are_behind_the_router_of_their_family() {
        let (mut neighbors, now) = (neighbors(), Instant::now());
        assert_eq!(neighbors.way(&packet("192.0.2.1"), None, now).0, Way::Held);
        assert!(neighbors.take_in(answered("10.7.0.254"), now).1.is_some());
        assert_eq!(neighbors.way(&packet("192.0.2.2"), None, now).0, Way::To(THERE));
        assert_eq!(neighbors.way(&packet("2001:db8::1"), None, now), (Way::Lost, None));
        for (to, link) in [
            ("10.7.0.255", [0xff; 6]),
            ("255.255.255.255", [0xff; 6]),
            ("239.129.2.3", [1, 0, 0x5e, 1, 2, 3]),
            ("ff02::1:2", [0x33, 0x33, 0, 1, 0, 2]),
        ] {
            assert_eq!(neighbors.way(&packet(to), None, now).0, Way::To(EthernetAddress(link)), "{to}");
        }
    }

    #[test]
    fn only_own_addresses_are_answered_for_and_only_what_was_asked_is_learned() {
        let (mut neighbors, now) = (neighbors(), Instant::now());
        let asks = |about: &str, from: &str| Message::Question { about: ip(about), from: Some(ip(from)), link: THERE };
        assert_eq!(neighbors.take_in(asks("10.7.0.3", "10.7.0.2"), now), (None, None));
        assert_eq!(neighbors.take_in(answered("10.7.0.9"), now), (None, None));
        assert!(neighbors.known.is_empty());
        assert!(neighbors.take_in(asks("10.7.0.1", "10.7.0.2"), now).0.is_some());
        assert_eq!(neighbors.way(&packet("10.7.0.2"), None, now).0, Way::To(THERE));
        // One that is not on the link is not believed.
        assert!(neighbors.take_in(asks("10.7.0.1", "192.0.2.1"), now).0.is_some());
        assert_eq!(neighbors.known.len(), 1);
        for host in 0..2 * KNOWN_MAX {
            neighbors.take_in(asks("fd07::1", &format!("fd07::{host:x}:2")), now);
        }
        assert_eq!(neighbors.known.len(), KNOWN_MAX);
    }
}
