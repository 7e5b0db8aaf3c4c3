//! Sockets that are bound to the ports of a host.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dapple_io::environment::{Readiness, Ready};

use crate::world::{Event, HostState, World};

/// The sockets of one kind, by the addresses that they are bound to.
pub(crate) struct Ports<T>(BTreeMap<(u16, IpAddr), T>);

impl<T> Default for Ports<T> {
    fn default() -> Ports<T> {
        Ports(BTreeMap::new())
    }
}

impl<T> Ports<T> {
    /// Whether a socket is in the way of one that is bound to this address.
    pub(crate) fn is_in_use(&self, at: SocketAddr) -> bool {
        let lowest = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let on_port = self.0.range((at.port(), lowest)..).take_while(|((port, _), _)| *port == at.port());
        on_port.into_iter().any(|((_, ip), _)| covers(*ip, at.ip()) || covers(at.ip(), *ip))
    }

    pub(crate) fn insert(&mut self, at: SocketAddr, socket: T) {
        self.0.insert((at.port(), at.ip()), socket);
    }

    pub(crate) fn remove(&mut self, at: SocketAddr) -> Option<T> {
        self.0.remove(&(at.port(), at.ip()))
    }

    /// The socket that is bound to just this address.
    pub(crate) fn bound_to(&mut self, at: SocketAddr) -> Option<&mut T> {
        self.0.get_mut(&(at.port(), at.ip()))
    }

    /// The socket that gets what is sent to this address.
    pub(crate) fn reached_by(&mut self, to: SocketAddr) -> Option<&mut T> {
        let bound = [to.ip(), Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let bound = bound.into_iter().find(|ip| covers(*ip, to.ip()) && self.0.contains_key(&(to.port(), *ip)))?;
        self.0.get_mut(&(to.port(), bound))
    }
}

/// Whether a socket that is bound to the first address gets what is sent to the second; `::` takes both families.
fn covers(bound: IpAddr, to: IpAddr) -> bool {
    bound == to || bound.is_unspecified() && (bound.is_ipv6() || to.is_ipv4())
}

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

impl HostState {
    /// The address to bind a socket to, if it is one of this host and free.
    pub(crate) fn bind(
        &mut self,
        at: SocketAddr,
        is_in_use: impl Fn(&HostState, SocketAddr) -> bool,
    ) -> io::Result<SocketAddr> {
        let ip = at.ip();
        if ip != self.ip && !ip.is_loopback() && !ip.is_unspecified() {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        if at.port() == 0 {
            let port = self.free_port(|host, port| is_in_use(host, SocketAddr::new(ip, port)));
            return Ok(SocketAddr::new(ip, port.ok_or(ErrorKind::AddrInUse)?));
        }
        if is_in_use(self, at) { Err(ErrorKind::AddrInUse.into()) } else { Ok(at) }
    }

    /// A bound address as programs see it: a host has one that others reach it by.
    pub(crate) fn shown(&self, bound: SocketAddr) -> SocketAddr {
        SocketAddr::new(if bound.ip().is_unspecified() { self.ip } else { bound.ip() }, bound.port())
    }
}

impl World {
    /// The address from which a socket of this host sends, and that to which: the unspecified one is the host itself.
    pub(crate) fn route(&self, host: usize, bound: IpAddr, to: SocketAddr) -> io::Result<(IpAddr, SocketAddr)> {
        let own = self.hosts[host].ip;
        let loopback = |is_ipv4| if is_ipv4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { Ipv6Addr::LOCALHOST.into() };
        let ip = match to.ip() {
            ip if !ip.is_unspecified() => ip,
            _ if !bound.is_unspecified() => bound,
            ip => loopback(ip.is_ipv4()),
        };
        let from = match bound {
            _ if !bound.is_unspecified() => bound,
            _ if ip.is_loopback() => loopback(ip.is_ipv4()),
            _ => own,
        };
        if from.is_loopback() && !ip.is_loopback() && ip != own {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a loopback address reaches its own host only"));
        }
        Ok((from, SocketAddr::new(ip, to.port())))
    }

    /// Sends a datagram, which may be lost, come twice, or be overtaken.
    pub(crate) fn send_datagram(&mut self, host: usize, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let Some(target) = self.host_at(host, to.ip()) else { return };
        let local = host == target;
        if !local && self.line_wait(host) > LINE_WAIT_MAX {
            return;
        }
        let left = if local { Duration::ZERO } else { self.leave(host, bytes.len()) };
        let (loss, twice, late) = (self.network.loss, self.network.duplication, self.network.reordering);
        let loss = self.bad_ways(host, target).map(|way| way.loss).fold(loss, u32::max);
        if !local && (self.random.chance(loss) || self.cuts.contains_key(&(host, target))) {
            return;
        }
        for _ in 0..if !local && self.random.chance(twice) { 2 } else { 1 } {
            let mut latency = left + self.latency(host, target);
            if !local && self.random.chance(late) {
                latency += self.random.within(&(Duration::ZERO..self.network.latency.end * 20));
            }
            self.schedule_in(latency, Event::Datagram { host: target, to, from, bytes: bytes.to_vec() });
        }
    }

    /// A datagram comes to its port, if there is one and it has room.
    pub(crate) fn datagram(&mut self, host: usize, to: SocketAddr, from: SocketAddr, bytes: Vec<u8>) {
        let (len, datagrams_max) = (bytes.len() as u64, self.network.datagrams);
        if !self.hosts[host].is_up {
            return;
        }
        let Some(port) = self.hosts[host].datagrams.reached_by(to) else { return };
        if port.waiting.len() >= datagrams_max || port.peer.is_some_and(|peer| peer != from) {
            return;
        }
        port.waiting.push_back((bytes, from));
        let readiness = port.readiness.clone();
        self.tell(host, readiness.as_ref(), Ready { readable: true, ..Ready::default() });
        self.line([4, host as u64, len], format_args!("{to} gets a datagram of {len} bytes from {from}"));
    }
}

/// A datagram that would have to wait longer for the line of its host is lost.
const LINE_WAIT_MAX: Duration = Duration::from_secs(1);
