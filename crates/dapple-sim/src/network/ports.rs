//! Sockets that are bound to the ports of a host.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use dapple_io::environment::{Readiness, Ready};

use crate::world::{Event, World};

/// A listening socket.
pub(crate) struct ListenPort {
    /// Connections that wait to be accepted.
    pub(crate) waiting: VecDeque<u64>,
    pub(crate) readiness: Option<Readiness>,
    pub(crate) refuses: bool,
}

/// A socket for datagrams.
pub(crate) struct DatagramPort {
    pub(crate) waiting: VecDeque<(Vec<u8>, SocketAddr)>,
    pub(crate) readiness: Option<Readiness>,
    pub(crate) peer: Option<SocketAddr>,
}

impl World {
    /// Sends a datagram, which may be lost, come twice, or be overtaken.
    pub(crate) fn send_datagram(&mut self, host: usize, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let Some(target) = self.host_at(host, to.ip()) else { return };
        let local = host == target;
        let (loss, twice, late) = (self.network.loss, self.network.duplication, self.network.reordering);
        if !local && (self.random.chance(loss) || self.cuts.contains_key(&(host, target))) {
            return;
        }
        for _ in 0..if !local && self.random.chance(twice) { 2 } else { 1 } {
            let mut latency = self.latency(host, target);
            if !local && self.random.chance(late) {
                latency += self.random.within(&(Duration::ZERO..self.network.latency.end * 20));
            }
            self.schedule_in(latency, Event::Datagram { to, from, bytes: bytes.to_vec() });
        }
    }

    /// A datagram comes to its port, if there is one and it has room.
    pub(crate) fn datagram(&mut self, to: SocketAddr, from: SocketAddr, bytes: Vec<u8>) {
        // From itself, the loopback address is that of the sender's host.
        let by_ip = |ip: std::net::IpAddr| self.hosts.iter().position(|host| host.ip == ip);
        let Some(host) = by_ip(to.ip()).or_else(|| by_ip(from.ip())) else { return };
        let (len, datagrams_max) = (bytes.len() as u64, self.network.datagrams);
        if !self.hosts[host].is_up {
            return;
        }
        let Some(port) = self.hosts[host].datagrams.get_mut(&to.port()) else { return };
        if port.waiting.len() >= datagrams_max || port.peer.is_some_and(|peer| peer != from) {
            return;
        }
        port.waiting.push_back((bytes, from));
        let readiness = port.readiness.clone();
        self.tell(host, readiness.as_ref(), Ready { readable: true, ..Ready::default() });
        self.trace.note([4, host as u64, len]);
    }
}
