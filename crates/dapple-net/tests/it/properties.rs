//! A property for any packets: nothing panics, and every list stays within its limit. A fuzz target searches for bytes that break it; the
//! tests replay its corpus.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use dapple_io::net::{TcpListener, UdpSocket};
use dapple_net::{Device, Network, OnNetwork, Received, Settings};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpPacket, UdpPacket, UdpRepr};

/// A property: panics if it does not hold.
pub(crate) type Property = fn(&[u8]);

/// All properties, by the names of their fuzz targets.
pub(crate) const ALL: &[(&str, Property)] = &[("packets", packets)];

/// The input is a list of steps of eight bytes. Each makes one packet, broken or good, of a few connections, and the last numbers that the
/// network has sent let good ones go further than the first.
fn packets(input: &[u8]) {
    let device = Arc::new(Recorder::default());
    let mut settings = Settings::new(OWN.into(), 24);
    settings.addresses.push((OWN6.into(), 64));
    (settings.half_open_max, settings.connections_max, settings.time_wait_max) = (3, 4, 2);
    (settings.backlog_max, settings.receive_buffer, settings.datagram_buffer) = (3, 4096, 500);
    let network = Network::new(vec![device.clone()], settings).unwrap();
    let runtime = dapple_io::runtime_builder().workers(1).network(network.clone()).build().unwrap();
    let _entered = runtime.enter();
    let _sockets = (TcpListener::bind("[::]:80").unwrap(), UdpSocket::bind("0.0.0.0:80").unwrap());
    for step in input.chunks(STEP) {
        let mut padded = [0; STEP];
        padded[..step.len()].copy_from_slice(step);
        let packet = device.packet(&padded, input);
        network.take_in(&packet, padded[0] & 0x80 != 0);
        let stats = network.stats();
        assert!(stats.half_open <= 3 && stats.connections <= 4 && stats.time_wait <= 2, "{stats:?}");
    }
}

/// Notes the numbers of the segments that the network sends.
#[derive(Default)]
struct Recorder {
    /// The next number of the network's, and the next that it expects, by the port of the other side.
    numbers: Mutex<HashMap<u16, (u32, u32)>>,
}

impl Recorder {
    /// The packet of a step.
    fn packet(&self, step: &[u8; STEP], input: &[u8]) -> Vec<u8> {
        let [kind, flags, port, seq, ack, len, window, seed] = *step;
        let payload = &input[..usize::from(len).min(input.len())];
        match kind & 0x0f {
            // As it comes.
            0 => payload.to_vec(),
            1 => datagram(port, payload),
            kind => {
                let (from, to): (IpAddr, IpAddr) =
                    if kind & 1 == 0 { (OTHER.into(), OWN.into()) } else { (OTHER6.into(), OWN6.into()) };
                let port = 1000 + u16::from(port % 4);
                let (next, expected) = self.numbers.lock().unwrap().get(&port).copied().unwrap_or_default();
                let numbers = (shifted(expected, seq), shifted(next, ack));
                let mut packet = segment((from, to), (port, flags), numbers, (window, payload));
                // Sometimes a bit is wrong.
                let at = usize::from(seed) % (packet.len() * 4);
                if let Some(byte) = packet.get_mut(at) {
                    *byte ^= 1 << (seed % 8);
                }
                packet
            }
        }
    }
}

impl Device for Recorder {
    fn mtu(&self) -> usize {
        1500
    }

    fn poll_receive(&self, _cx: &mut Context<'_>, _buf: &mut [u8]) -> Poll<io::Result<Received>> {
        Poll::Pending
    }

    fn send(&self, packet: &[u8], _segment_len: Option<u16>) -> io::Result<()> {
        let (start, protocol) = if packet[0] >> 4 == 4 { (20, packet[9]) } else { (40, packet[6]) };
        if protocol == 6 {
            let segment = TcpPacket::new_checked(&packet[start..]).expect("it sends whole segments");
            let next = segment.seq_number() + segment.segment_len();
            let numbers = (next.0 as u32, segment.ack_number().0 as u32);
            self.numbers.lock().unwrap().insert(segment.dst_port(), numbers);
        }
        Ok(())
    }
}

/// A number close to another one.
fn shifted(number: u32, by: u8) -> u32 {
    number.wrapping_add_signed(i32::from(by as i8))
}

fn segment(
    ips: (IpAddr, IpAddr),
    (port, flags): (u16, u8),
    numbers: (u32, u32),
    (window, payload): (u8, &[u8]),
) -> Vec<u8> {
    let (from, to) = (IpAddress::from(ips.0), IpAddress::from(ips.1));
    let ip = IpRepr::new(from, to, IpProtocol::Tcp, 20 + payload.len(), 64);
    let checksums = ChecksumCapabilities::default();
    let mut packet = vec![0; ip.buffer_len()];
    ip.emit(&mut packet[..], &checksums);
    let start = ip.header_len();
    packet[start..start + 2].copy_from_slice(&port.to_be_bytes());
    packet[start + 2..start + 4].copy_from_slice(&80_u16.to_be_bytes());
    packet[start + 4..start + 8].copy_from_slice(&numbers.0.to_be_bytes());
    packet[start + 8..start + 12].copy_from_slice(&numbers.1.to_be_bytes());
    packet[start + 12..start + 14].copy_from_slice(&[0x50, flags & 0x3f]);
    packet[start + 14] = window;
    packet[start + 20..].copy_from_slice(payload);
    TcpPacket::new_unchecked(&mut packet[start..]).fill_checksum(&from, &to);
    packet
}

fn datagram(port: u8, payload: &[u8]) -> Vec<u8> {
    let (from, to): (IpAddress, IpAddress) = (IpAddr::from(OTHER).into(), IpAddr::from(OWN).into());
    let udp = UdpRepr { src_port: 1000, dst_port: 80 + u16::from(port & 1) };
    let ip = IpRepr::new(from, to, IpProtocol::Udp, udp.header_len() + payload.len(), 64);
    let checksums = ChecksumCapabilities::default();
    let mut packet = vec![0; ip.buffer_len()];
    ip.emit(&mut packet[..], &checksums);
    let mut inner = UdpPacket::new_unchecked(&mut packet[ip.header_len()..]);
    let fill = |buf: &mut [u8]| buf.copy_from_slice(payload);
    udp.emit(&mut inner, &from, &to, payload.len(), fill, &checksums);
    packet
}

const STEP: usize = 8;
const OWN: [u8; 4] = [10, 7, 0, 1];
const OTHER: [u8; 4] = [10, 7, 0, 2];
const OWN6: [u8; 16] = [0xfd, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const OTHER6: [u8; 16] = [0xfd, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

#[cfg(test)]
mod tests {
    #[test]
    fn properties_hold_for_all_that_was_found() {
        crate::replay::all(super::ALL);
    }

    #[test]
    fn properties_hold_for_random_packets() {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for _ in 0..100 {
            // Mostly small steps from the right numbers, with plain flags.
            let steps = (0..40).flat_map(|_| {
                let flags = [2, 16, 24, 17, 4][usize::from(next() % 5)];
                let near = |value: u8| if value < 200 { 0 } else { value };
                [2 + next() % 2, flags, next(), near(next()), near(next()), next() % 60, next(), 0xff]
            });
            super::packets(&steps.collect::<Vec<u8>>());
        }
    }
}
