//! Ethernet interfaces by packet sockets: packets in frames, to and from the hosts on a link.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use dapple_io::net::PacketQueue;
use dapple_io::time::Instant;
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol};

use crate::device::{Device, Received};
use crate::neighbors::{Neighbors, Way};
use crate::offload::{self, HEADER_LEN, PACKET_MAX};
use crate::ports::lock;
use crate::resolution::parse;
use crate::settings::Settings;

/// Opens the interface with this many queues, which know the same hosts.
pub(crate) fn open(name: &str, queues: usize, settings: &Settings) -> io::Result<Vec<Arc<dyn Device>>> {
    let Some((first, _)) = settings.addresses.first() else { return Ok(Vec::new()) };
    let link = link_for(*first);
    let queues = PacketQueue::open(name, queues, link.0)?;
    let neighbors = Neighbors::new(link, settings.addresses.clone(), settings.routers.clone());
    let neighbors = Arc::new(Mutex::new(neighbors));
    let device = |queue| Arc::new(EthernetDevice { queue, link, neighbors: neighbors.clone() }) as Arc<dyn Device>;
    Ok(queues.into_iter().map(device).collect())
}

/// A hardware address of the range for local use. It is the same after a restart, so that the hosts on the link need not learn another one,
/// and no other host has it, as none has the address of the network.
fn link_for(address: IpAddr) -> EthernetAddress {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            [a, b, c, d]
        }
    };
    EthernetAddress([0x02, 0xda, a, b, c, d])
}

/// One queue. The kernel cuts long segments, and fills in checksums.
struct EthernetDevice {
    queue: PacketQueue,
    link: EthernetAddress,
    neighbors: Arc<Mutex<Neighbors>>,
}

impl EthernetDevice {
    fn send_packet(&self, to: EthernetAddress, packet: &[u8], segment_len: Option<u16>) -> io::Result<()> {
        let protocol: u16 = match packet.first().map(|byte| byte >> 4) {
            Some(6) => EthernetProtocol::Ipv6.into(),
            _ => EthernetProtocol::Ipv4.into(),
        };
        let mut head = [0; FRAME_HEAD];
        head[..6].copy_from_slice(to.as_bytes());
        head[6..12].copy_from_slice(self.link.as_bytes());
        head[12..].copy_from_slice(&protocol.to_be_bytes());
        offload::send(&head, packet, segment_len, |parts| self.queue.send(parts))
    }

    /// A question or an answer. If it is lost, it is asked again.
    fn send_frame(&self, frame: &[u8]) {
        let _ = offload::send(frame, &[], None, |parts| self.queue.send(parts));
    }

    /// Whether the frame holds a packet for the network.
    fn take_in(&self, head: &[u8; FRAME_HEAD], payload: &[u8]) -> bool {
        let head = EthernetFrame::new_unchecked(&head[..]);
        let Some(message) = parse(head.ethertype(), head.src_addr(), payload) else { return true };
        let (answer, released) = lock(&self.neighbors).take_in(message, Instant::now());
        if let Some(answer) = answer {
            self.send_frame(&answer);
        }
        let (to, held) = released.unwrap_or_default();
        for packet in held {
            let _ = self.send_packet(to, &packet.packet, packet.segment_len);
        }
        false
    }
}

impl Device for EthernetDevice {
    fn mtu(&self) -> usize {
        self.queue.mtu()
    }

    fn segments_up_to(&self) -> Option<usize> {
        Some(PACKET_MAX)
    }

    fn start(&self) -> io::Result<()> {
        self.queue.attach()?;
        for frame in lock(&self.neighbors).announcements() {
            self.send_frame(&frame);
        }
        Ok(())
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        loop {
            let (mut header, mut head) = ([0; HEADER_LEN], [0; FRAME_HEAD]);
            let parts = &mut [&mut header[..], &mut head, &mut *buf].map(IoSliceMut::new);
            let len = ready!(self.queue.poll_receive(cx, parts))?;
            let Some(payload) = len.checked_sub(HEADER_LEN + FRAME_HEAD).and_then(|len| buf.get(..len)) else {
                continue;
            };
            if self.take_in(&head, payload) {
                return Poll::Ready(Ok(Received { len: payload.len(), is_checked: offload::is_checked(&header) }));
            }
        }
    }

    fn send(&self, packet: &[u8], segment_len: Option<u16>) -> io::Result<()> {
        let (way, question) = lock(&self.neighbors).way(packet, segment_len, Instant::now());
        if let Some(question) = question {
            self.send_frame(&question);
        }
        match way {
            Way::To(link) => self.send_packet(link, packet, segment_len),
            Way::Held => Ok(()),
            Way::Lost => Err(ErrorKind::HostUnreachable.into()),
        }
    }
}

const FRAME_HEAD: usize = 14;
