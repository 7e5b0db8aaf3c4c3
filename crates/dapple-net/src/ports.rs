//! The ports of a network, which all its devices share: listeners, sockets for datagrams, and the connections that began here.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dapple_io::environment::{Readiness, Ready};
use dapple_sched::environment::{HashMap, random};
use smoltcp::wire::IpCidr;

use crate::packet::Tuple;

/// See the module's text. Its lock may be taken while that of a stack is held, never the other way round.
#[derive(Debug)]
pub(crate) struct Ports {
    own: Vec<(IpAddr, u8)>,
    datagram_sockets_max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    listeners: Taken<Listening>,
    datagrams: Taken<Datagrams>,
    /// Connections that began here, and the stack of each. Empty where there is one stack.
    outgoing: HashMap<Tuple, usize>,
}

/// The taken ports of one kind, by their numbers.
#[derive(Debug, Default)]
struct Taken<S> {
    by_number: HashMap<u16, Vec<Arc<Port<S>>>>,
    count: usize,
}

/// A taken port.
#[derive(Debug)]
pub(crate) struct Port<S> {
    pub(crate) addr: SocketAddr,
    pub(crate) state: Mutex<S>,
}

/// A port that is listened on.
pub(crate) type ListenPort = Port<Listening>;

/// A port for datagrams.
pub(crate) type DatagramPort = Port<Datagrams>;

/// Connections that wait to be accepted.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// The stack and the key of each.
    pub(crate) waiting: VecDeque<(usize, usize)>,
    pub(crate) readiness: Option<Readiness>,
    /// New connections are not answered.
    pub(crate) refuses: bool,
    /// The listener is gone.
    pub(crate) is_closed: bool,
}

/// Datagrams that wait to be received.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) waiting: VecDeque<(Vec<u8>, SocketAddr)>,
    pub(crate) bytes: usize,
    pub(crate) readiness: Option<Readiness>,
    pub(crate) peer: Option<SocketAddr>,
}

impl Ports {
    pub(crate) fn new(own: Vec<(IpAddr, u8)>, datagram_sockets_max: usize) -> Ports {
        Ports { own, datagram_sockets_max, table: Mutex::default() }
    }

    /// Takes a port for a listener.
    pub(crate) fn listen(&self, at: SocketAddr) -> io::Result<Arc<ListenPort>> {
        self.check(at)?;
        lock(&self.table).listeners.take(at)
    }

    /// The listener for connections to this address.
    pub(crate) fn listener(&self, local: SocketAddr) -> Option<Arc<ListenPort>> {
        lock(&self.table).listeners.best(local)
    }

    pub(crate) fn end_listening(&self, port: &Arc<ListenPort>) {
        lock(&self.table).listeners.free(port);
    }

    /// Takes a port for datagrams.
    pub(crate) fn bind(&self, at: SocketAddr) -> io::Result<Arc<DatagramPort>> {
        self.check(at)?;
        self.take_datagrams(at)
    }

    /// Takes a port of a group of hosts.
    pub(crate) fn bind_group(&self, group: SocketAddr) -> io::Result<Arc<DatagramPort>> {
        self.source_for(group)?;
        self.take_datagrams(group)
    }

    fn take_datagrams(&self, at: SocketAddr) -> io::Result<Arc<DatagramPort>> {
        let mut table = lock(&self.table);
        if table.datagrams.count >= self.datagram_sockets_max {
            return Err(io::Error::new(ErrorKind::QuotaExceeded, "the limit on sockets for datagrams is reached"));
        }
        table.datagrams.take(at)
    }

    /// The socket for datagrams to this address: of this network, of a group that a socket is a member of, or of all hosts.
    pub(crate) fn datagrams(&self, local: SocketAddr) -> Option<Arc<DatagramPort>> {
        let ip = local.ip();
        match ip.is_multicast() {
            true => lock(&self.table).datagrams.exact(local),
            false if self.is_own(ip) || self.is_broadcast(ip) => lock(&self.table).datagrams.best(local),
            false => None,
        }
    }

    /// Whether a socket is a member of this group, at any port.
    pub(crate) fn has_member(&self, group: IpAddr) -> bool {
        lock(&self.table).datagrams.by_number.values().flatten().any(|port| port.addr.ip() == group)
    }

    pub(crate) fn unbind(&self, port: &Arc<DatagramPort>) {
        lock(&self.table).datagrams.free(port);
    }

    /// Notes a connection that begins here; false if there is one with these ends.
    pub(crate) fn begin(&self, tuple: Tuple, stack: usize) -> bool {
        let mut table = lock(&self.table);
        let is_new = !table.outgoing.contains_key(&tuple);
        if is_new {
            table.outgoing.insert(tuple, stack);
        }
        is_new
    }

    pub(crate) fn end(&self, tuple: &Tuple) {
        lock(&self.table).outgoing.remove(tuple);
    }

    /// The stack of a connection that began here.
    pub(crate) fn stack_of(&self, tuple: &Tuple) -> Option<usize> {
        lock(&self.table).outgoing.get(tuple).copied()
    }

    /// The address of this network that sends to `to`.
    pub(crate) fn source_for(&self, to: SocketAddr) -> io::Result<IpAddr> {
        let source = self.own.iter().map(|(own, _)| *own).find(|own| own.is_ipv4() == to.is_ipv4());
        source
            .ok_or_else(|| io::Error::new(ErrorKind::NetworkUnreachable, "this network has no address of that family"))
    }

    pub(crate) fn is_own(&self, ip: IpAddr) -> bool {
        self.own.iter().any(|(own, _)| *own == ip)
    }

    /// Whether this is the address of all hosts on the link.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip else { return false };
        let is_of = |(own, prefix_len): &(IpAddr, u8)| match IpCidr::new((*own).into(), *prefix_len) {
            IpCidr::Ipv4(cidr) => cidr.broadcast() == Some(ip),
            IpCidr::Ipv6(_) => false,
        };
        ip.is_broadcast() || self.own.iter().any(is_of)
    }

    fn check(&self, at: SocketAddr) -> io::Result<()> {
        match at.ip().is_unspecified() || self.is_own(at.ip()) {
            true => Ok(()),
            false => Err(io::Error::new(ErrorKind::AddrNotAvailable, "not an address of this network")),
        }
    }
}

impl<S: Default> Taken<S> {
    /// Takes the port of an address; for port 0 a free one.
    fn take(&mut self, at: SocketAddr) -> io::Result<Arc<Port<S>>> {
        let addr = free_addr(at, |addr| {
            self.by_number.get(&addr.port()).is_some_and(|all| all.iter().any(|one| overlap(one.addr, addr)))
        })?;
        let port = Arc::new(Port { addr, state: Mutex::default() });
        self.by_number.entry(addr.port()).or_default().push(port.clone());
        self.count += 1;
        Ok(port)
    }

    /// The port for an address: the one with exactly that address, or one for all.
    fn best(&self, local: SocketAddr) -> Option<Arc<Port<S>>> {
        self.exact(local).or_else(|| {
            let ports = self.by_number.get(&local.port())?;
            ports.iter().find(|port| covers(port.addr.ip(), local.ip())).cloned()
        })
    }

    /// The port with exactly this address.
    fn exact(&self, local: SocketAddr) -> Option<Arc<Port<S>>> {
        self.by_number.get(&local.port())?.iter().find(|port| port.addr.ip() == local.ip()).cloned()
    }

    fn free(&mut self, port: &Arc<Port<S>>) {
        let Some(ports) = self.by_number.get_mut(&port.addr.port()) else { return };
        let before = ports.len();
        ports.retain(|other| !Arc::ptr_eq(other, port));
        self.count -= before - ports.len();
        if ports.is_empty() {
            self.by_number.remove(&port.addr.port());
        }
    }
}

/// Whether an address to listen on stands for another one, as with the kernel: `0.0.0.0` for all of IPv4, `::` for all.
fn covers(bound: IpAddr, ip: IpAddr) -> bool {
    bound.is_unspecified() && (bound.is_ipv6() || ip.is_ipv4())
}

/// Whether both would get the same packets. Those of a group come to its members alone.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    if one.ip().is_multicast() || other.ip().is_multicast() {
        return one.ip() == other.ip();
    }
    one.ip() == other.ip() || covers(one.ip(), other.ip()) || covers(other.ip(), one.ip())
}

/// The address with a port; for port 0 a free one.
fn free_addr(at: SocketAddr, is_taken: impl Fn(SocketAddr) -> bool) -> io::Result<SocketAddr> {
    if at.port() != 0 {
        return if is_taken(at) { Err(ErrorKind::AddrInUse.into()) } else { Ok(at) };
    }
    let mut ports = free_ports();
    ports
        .find(|port| !is_taken(SocketAddr::new(at.ip(), *port)))
        .map(|port| SocketAddr::new(at.ip(), port))
        .ok_or_else(|| ErrorKind::AddrInUse.into())
}

/// All ports for those that name none, from a random one on.
pub(crate) fn free_ports() -> impl Iterator<Item = u16> {
    let first = (random() % u64::from(FREE_COUNT)) as u16;
    (0..FREE_COUNT).map(move |number| FREE_FIRST + (first + number) % FREE_COUNT)
}

impl ListenPort {
    /// Whether another connection may come.
    pub(crate) fn takes_more(&self, backlog_max: usize) -> bool {
        let state = lock(&self.state);
        !state.refuses && state.waiting.len() < backlog_max
    }

    /// Adds a connection to those that wait, if there is room, and returns what is to be told.
    pub(crate) fn push(&self, which: (usize, usize), backlog_max: usize) -> Result<Option<(Readiness, Ready)>, Full> {
        let mut state = lock(&self.state);
        if state.is_closed || state.waiting.len() >= backlog_max {
            return Err(Full);
        }
        state.waiting.push_back(which);
        Ok(state.readiness.clone().map(|readiness| (readiness, READABLE)))
    }
}

impl DatagramPort {
    /// Adds a datagram to those that wait, unless there is no room or it is not from the one peer. Returns whether it did, and what is to
    /// be told.
    pub(crate) fn deliver(
        &self,
        payload: &[u8],
        from: SocketAddr,
        bytes_max: usize,
    ) -> (bool, Option<(Readiness, Ready)>) {
        let mut state = lock(&self.state);
        if state.peer.is_some_and(|peer| peer != from) {
            return (true, None);
        }
        // Each counts for more than its bytes, so that empty ones are bounded, too.
        let cost = payload.len() + DATAGRAM_COST;
        if state.bytes + cost > bytes_max {
            return (false, None);
        }
        state.bytes += cost;
        state.waiting.push_back((payload.to_vec(), from));
        (true, state.readiness.clone().map(|readiness| (readiness, READABLE)))
    }

    /// Takes the next datagram.
    pub(crate) fn take(&self) -> Option<(Vec<u8>, SocketAddr)> {
        let mut state = lock(&self.state);
        let next = state.waiting.pop_front()?;
        state.bytes -= next.0.len() + DATAGRAM_COST;
        Some(next)
    }
}

/// There is no room for another connection.
#[derive(Debug)]
pub(crate) struct Full;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No user code runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const READABLE: Ready = Ready { readable: true, writable: false, read_ended: false, broken: false };
/// The memory of a datagram besides its bytes.
const DATAGRAM_COST: usize = 64;
const FREE_FIRST: u16 = 49_152;
const FREE_COUNT: u16 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn ports() -> Ports {
        Ports::new(vec![("10.7.0.1".parse().unwrap(), 24), ("fd07::1".parse().unwrap(), 64)], 2)
    }

    #[test]
    fn an_exact_address_goes_before_all() {
        let ports = ports();
        let all = ports.listen(addr("0.0.0.0:80")).unwrap();
        assert!(ports.listen(addr("10.7.0.1:80")).is_err(), "in use");
        let own = ports.listen(addr("10.7.0.1:81")).unwrap();
        assert!(Arc::ptr_eq(&ports.listener(addr("10.7.0.1:80")).unwrap(), &all));
        assert!(Arc::ptr_eq(&ports.listener(addr("10.7.0.1:81")).unwrap(), &own));
        assert!(ports.listener(addr("[fd07::1]:80")).is_none());
        ports.end_listening(&all);
        assert!(ports.listener(addr("10.7.0.1:80")).is_none());
    }

    #[test]
    fn the_unspecified_address_of_ipv6_is_for_both_families() {
        let ports = ports();
        let all = ports.listen(addr("[::]:80")).unwrap();
        for local in ["10.7.0.1:80", "[fd07::1]:80"] {
            assert!(Arc::ptr_eq(&ports.listener(addr(local)).unwrap(), &all));
        }
        assert_eq!(ports.listen(addr("0.0.0.0:80")).unwrap_err().kind(), ErrorKind::AddrInUse);
    }

    #[test]
    fn datagrams_are_for_own_addresses_for_all_and_for_groups_with_a_member() {
        let ports = ports();
        let all = ports.bind(addr("0.0.0.0:53")).unwrap();
        let member = ports.bind_group(addr("239.1.2.3:53")).unwrap();
        for (to, expected) in [
            ("10.7.0.1:53", Some(&all)),
            ("10.7.0.255:53", Some(&all)),
            ("255.255.255.255:53", Some(&all)),
            ("239.1.2.3:53", Some(&member)),
            ("239.1.2.4:53", None),
            ("10.7.0.9:53", None),
        ] {
            let found = ports.datagrams(addr(to));
            assert_eq!(found.as_ref().map(Arc::as_ptr), expected.map(Arc::as_ptr), "{to}");
        }
        assert!(ports.has_member("239.1.2.3".parse().unwrap()));
        ports.unbind(&member);
        assert!(!ports.has_member("239.1.2.3".parse().unwrap()));
    }

    #[test]
    fn sockets_for_datagrams_are_limited_and_addresses_are_own() {
        let ports = ports();
        let first = ports.bind(addr("10.7.0.1:0")).unwrap();
        let _second = ports.bind(addr("0.0.0.0:0")).unwrap();
        assert_eq!(ports.bind(addr("0.0.0.0:0")).unwrap_err().kind(), ErrorKind::QuotaExceeded);
        ports.unbind(&first);
        assert!(ports.bind(addr("0.0.0.0:0")).is_ok());
        assert_eq!(ports.listen(addr("10.7.0.9:80")).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    }
}
