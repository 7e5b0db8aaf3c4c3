//! `bench syn-flood`: beginnings of connections from addresses that never answer.

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use crate::machine::end_with_parent;

/// Arguments of the hidden command.
#[derive(clap::Args)]
pub(crate) struct FloodArgs {
    /// The server
    to: SocketAddrV4,
    /// Packets a second
    #[arg(long)]
    per_s: u32,
}

/// Sends until it is ended, from random addresses of 10.7.0.0/16, which the interface leads nowhere.
pub(crate) fn run_flood(args: &FloodArgs) -> Result<()> {
    end_with_parent()?;
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW))).context("a flood needs root")?;
    let to = socket2::SockAddr::from(SocketAddrV4::new(*args.to.ip(), 0));
    let mut number = 0u32;
    let begin = Instant::now();
    loop {
        let due = (begin.elapsed().as_secs_f64() * f64::from(args.per_s)) as u32;
        while number < due {
            // A full queue of the interface loses packets, as a wire would.
            let _ = socket.send_to(&beginning(number, args.to), &to);
            number += 1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The packet: IPv4 and TCP with SYN. The kernel fills in the checksum of IPv4.
fn beginning(number: u32, to: SocketAddrV4) -> [u8; LEN] {
    // A multiplier of a linear congruential generator: all addresses and ports come.
    let mixed = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
    let from = Ipv4Addr::new(10, 7, mixed[0].max(1), mixed[1]);
    let mut packet = [0; LEN];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(LEN as u16).to_be_bytes());
    packet[8] = 64;
    packet[9] = TCP;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    let tcp = &mut packet[20..];
    tcp[0..2].copy_from_slice(&(1024 | u16::from_be_bytes([mixed[2], mixed[3]])).to_be_bytes());
    tcp[2..4].copy_from_slice(&to.port().to_be_bytes());
    tcp[4..8].copy_from_slice(&number.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = SYN;
    tcp[14..16].copy_from_slice(&64_240u16.to_be_bytes());
    let sum = checksum(&packet, TCP);
    packet[36..38].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// That of the segment in a packet (RFC 9293, section 3.1), with its own field zero.
fn checksum(packet: &[u8; LEN], protocol: u8) -> u16 {
    let words = packet[12..].chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum::<u32>() + u32::from(protocol) + (LEN - 20) as u32;
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// `IPPROTO_RAW`: packets with their own header of IPv4.
const RAW: i32 = 255;
const TCP: u8 = 6;
const SYN: u8 = 2;
const LEN: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_has_the_checksum_of_its_segment() {
        let to = "10.7.0.1:80".parse().unwrap();
        for number in [0, 1, 77_777, u32::MAX] {
            let packet = beginning(number, to);
            // With the field filled in, the sum of a right segment is zero.
            assert_eq!(checksum(&packet, TCP), 0, "{packet:?}");
            assert_eq!(packet[16..20], [10, 7, 0, 1]);
        }
    }
}
