//! One device with its connections: a color of its own receives and runs the timers, and programs send from wherever they are.
//!
//! smoltcp's interface walks through all sockets for each packet. Here each connection has a set of its own, and a map finds it; so a
//! packet and a call cost the same with ten connections and with ten thousand. One lock guards a stack. It is held while packets are
//! processed and sent, never while code of the program runs: what is to be told goes to [`Told`] and is told after.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::task::Waker;

use dapple_io::environment::{Readiness, Ready};
use dapple_sched::environment::{HashMap, random, start};
use slab::Slab;
use smoltcp::iface::{Config, Interface, MulticastError, PollResult, SocketSet};
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpListenEndpoint};

use crate::connection::{Connection, OneSocket, Phase, duration};
use crate::device::Device;
use crate::packet::{Kind, Tuple, look};
use crate::ports::{DatagramPort, ListenPort, Ports, free_ports, lock};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::wire::{Wire, WireCounts};

/// See the module's text.
pub(crate) struct Stack {
    pub(crate) device: Arc<dyn Device>,
    core: Mutex<Core>,
}

/// Sockets that became ready, and the task to wake, once no lock is held.
#[derive(Default)]
pub(crate) struct Told {
    ready: Vec<(Readiness, Ready)>,
    driver: Option<Waker>,
}

pub(crate) struct Core {
    index: usize,
    /// Whether the network has more stacks.
    has_siblings: bool,
    device: Arc<dyn Device>,
    ports: Arc<Ports>,
    settings: Settings,
    interface: Interface,
    connections: Slab<Connection>,
    by_tuple: HashMap<Tuple, usize>,
    /// By age.
    half_open: BTreeMap<u64, usize>,
    /// By age.
    remembered: BTreeMap<u64, usize>,
    next_number: u64,
    /// When each connection wants to be looked at; at most one place for each, which may be too early.
    timers: BTreeSet<(Instant, usize)>,
    /// Connections that packets came for, in this batch.
    dirty: Vec<usize>,
    /// Sockets to be used again: their buffers are the memory of the network.
    spare: Vec<OneSocket>,
    /// Groups of hosts that sockets are members of. Routers ask for them, and smoltcp answers some time later.
    groups: BTreeSet<IpAddr>,
    /// For packets of no connection.
    no_sockets: SocketSet<'static>,
    packet: Vec<u8>,
    counts: WireCounts,
    stats: Stats,
    /// The task that receives, and when it wakes by itself.
    driver: Option<(Waker, Option<Instant>)>,
    told: Told,
}

impl Told {
    /// Tells everything. No lock of the network may be held.
    fn tell(self) {
        self.ready.into_iter().for_each(|(readiness, ready)| readiness.tell(ready));
        if let Some(driver) = self.driver {
            driver.wake();
        }
    }
}

impl Stack {
    pub(crate) fn new(
        index: usize,
        has_siblings: bool,
        device: Arc<dyn Device>,
        ports: Arc<Ports>,
        settings: &Settings,
    ) -> Stack {
        let (mut packet, mut counts) = (Vec::new(), WireCounts::default());
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = random();
        let mut wire = Wire { incoming: None, device: &*device, packet: &mut packet, counts: &mut counts };
        let mut interface = Interface::new(config, &mut wire, Instant::ZERO);
        interface.update_ip_addrs(|all| {
            for (ip, prefix_len) in &settings.addresses {
                // Room for all was checked before.
                let _ = all.push(IpCidr::new((*ip).into(), *prefix_len));
            }
        });
        let core = Core {
            index,
            has_siblings,
            device: device.clone(),
            ports,
            settings: settings.clone(),
            interface,
            connections: Slab::new(),
            by_tuple: HashMap::default(),
            half_open: BTreeMap::new(),
            remembered: BTreeMap::new(),
            next_number: 0,
            timers: BTreeSet::new(),
            dirty: Vec::new(),
            spare: Vec::new(),
            groups: BTreeSet::new(),
            no_sockets: SocketSet::new(Vec::new()),
            packet,
            counts,
            stats: Stats::default(),
            driver: None,
            told: Told::default(),
        };
        Stack { device, core: Mutex::new(core) }
    }

    /// Calls `f` under the lock, and then tells what it left to be told.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let mut core = lock(&self.core);
        let result = f(&mut core, now());
        let told = std::mem::take(&mut core.told);
        drop(core);
        told.tell();
        result
    }
}

impl Core {
    /// Takes a packet in. Returns the stack that it is for, where that is another one. `settle_all` must follow.
    pub(crate) fn take_in(&mut self, packet: &[u8], is_checked: bool, now: Instant) -> Option<usize> {
        self.stats.received += 1;
        match look(packet, is_checked) {
            Kind::Segment { tuple, is_syn } => return self.take_segment(packet, tuple, is_syn, now),
            Kind::Datagram { to, from, payload } => match self.ports.datagrams(to) {
                Some(port) => self.deliver(&port, payload, from),
                // Answers that the port is unreachable.
                None => self.feed(None, packet, now),
            },
            Kind::Other => self.feed(None, packet, now),
            Kind::Broken => self.stats.broken += 1,
        }
        None
    }

    /// Gives a datagram to a socket.
    pub(crate) fn deliver(&mut self, port: &DatagramPort, payload: &[u8], from: SocketAddr) {
        let (took, ready) = port.deliver(payload, from, self.settings.datagram_buffer);
        self.told.ready.extend(ready);
        self.stats.datagrams_lost += u64::from(!took);
    }

    fn take_segment(&mut self, packet: &[u8], tuple: Tuple, is_syn: bool, now: Instant) -> Option<usize> {
        let mut key = self.by_tuple.get(&tuple).copied();
        if let Some(old) = key.filter(|key| is_syn && self.connections[*key].is_over()) {
            // Its peer uses the port again.
            self.by_tuple.remove(&tuple);
            if matches!(self.connections[old].phase, Phase::Remembered(_)) {
                self.forget(old);
            }
            key = None;
        }
        if key.is_none() && self.has_siblings && !is_syn {
            let other = self.ports.stack_of(&tuple).filter(|other| *other != self.index);
            if other.is_some() {
                return other;
            }
        }
        let may_begin = key.is_none() && is_syn && self.ports.is_own(tuple.local.ip());
        if let Some(port) = may_begin.then(|| self.ports.listener(tuple.local)).flatten() {
            key = self.admit(tuple, port, now);
            if key.is_none() {
                self.stats.refused += 1;
                return None;
            }
        }
        // Without a connection, smoltcp answers with a reset.
        self.feed(key, packet, now);
        None
    }

    /// Makes a half-open connection, if there is room.
    fn admit(&mut self, tuple: Tuple, port: Arc<ListenPort>, now: Instant) -> Option<usize> {
        if !port.takes_more(self.settings.backlog_max) || self.open_count() >= self.settings.connections_max {
            return None;
        }
        if self.half_open.len() >= self.settings.half_open_max
            && let Some((_, oldest)) = self.half_open.first_key_value()
        {
            self.forget(*oldest);
            self.stats.half_open_evicted += 1;
        }
        let mut socket = self.socket(self.settings.timeout);
        let at = IpListenEndpoint { addr: Some(tuple.local.ip().into()), port: tuple.local.port() };
        socket.get_mut().listen(at).ok()?;
        let number = self.next_number();
        let mut connection = Connection::new(socket, tuple, Phase::HalfOpen(port, number));
        connection.deadline = Some(now + duration(HANDSHAKE_MAX));
        let key = self.insert(connection);
        self.half_open.insert(number, key);
        Some(key)
    }

    /// Begins to connect.
    pub(crate) fn connect(&mut self, to: SocketAddr, now: Instant) -> io::Result<usize> {
        if self.ports.is_own(to.ip()) {
            let why = "a network in user space does not reach its own addresses";
            return Err(io::Error::new(ErrorKind::Unsupported, why));
        }
        if self.open_count() >= self.settings.connections_max {
            return Err(io::Error::new(ErrorKind::QuotaExceeded, "the limit on connections of the network is reached"));
        }
        let source = self.ports.source_for(to)?;
        let tuples = free_ports().map(|port| Tuple { local: SocketAddr::new(source, port), remote: to });
        let (index, has_siblings) = (self.index, self.has_siblings);
        let mut free = tuples.filter(|tuple| !self.by_tuple.contains_key(tuple));
        let tuple = free.find(|tuple| !has_siblings || self.ports.begin(*tuple, index));
        drop(free);
        let tuple = tuple.ok_or(ErrorKind::AddrInUse)?;
        let mut socket = self.socket(self.settings.connect_timeout);
        let local = (smoltcp::wire::IpAddress::from(source), tuple.local.port());
        let remote = (smoltcp::wire::IpAddress::from(to.ip()), to.port());
        if let Err(error) = socket.get_mut().connect(self.interface.context(), remote, local) {
            self.ports.end(&tuple);
            self.spare.push(socket);
            return Err(io::Error::new(ErrorKind::InvalidInput, error));
        }
        let key = self.insert(Connection::new(socket, tuple, Phase::Owned));
        self.settle(key, now);
        Ok(key)
    }

    /// The program accepts a connection that waits.
    pub(crate) fn accept(&mut self, key: usize) -> SocketAddr {
        let connection = &mut self.connections[key];
        connection.phase = Phase::Owned;
        connection.tuple.remote
    }

    /// Calls `f` with a connection of the program's, and sends what follows from it.
    pub(crate) fn use_connection<R>(&mut self, key: usize, now: Instant, f: impl FnOnce(&mut Connection) -> R) -> R {
        let result = f(&mut self.connections[key]);
        self.settle(key, now);
        result
    }

    /// Looks at a connection of the program's.
    pub(crate) fn connection(&mut self, key: usize) -> &mut Connection {
        &mut self.connections[key]
    }

    /// The program has dropped a connection, or its listener.
    pub(crate) fn release(&mut self, key: usize, aborts: bool, now: Instant) {
        let linger = duration(self.settings.linger);
        let connection = &mut self.connections[key];
        connection.close(aborts);
        connection.phase = Phase::Orphan;
        connection.deadline = Some(now + linger);
        self.settle(key, now);
    }

    /// Sends a datagram.
    pub(crate) fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        let sent = self.device.send(packet, None);
        match sent.is_ok() {
            true => self.counts.sent += 1,
            false => self.counts.lost += 1,
        }
        sent
    }

    /// Becomes a member of a group of hosts, which other devices of the link may want to know.
    pub(crate) fn join(&mut self, group: IpAddr, now: Instant) -> io::Result<()> {
        self.interface.join_multicast_group(group).map_err(|error| match error {
            MulticastError::GroupTableFull => {
                io::Error::new(ErrorKind::QuotaExceeded, "the limit on groups of the network is reached")
            }
            MulticastError::Unaddressable => ErrorKind::InvalidInput.into(),
        })?;
        self.groups.insert(group);
        self.tell_groups(now);
        Ok(())
    }

    /// Ends a membership.
    pub(crate) fn leave(&mut self, group: IpAddr, now: Instant) {
        // It was a member.
        let _ = self.interface.leave_multicast_group(group);
        self.groups.remove(&group);
        self.tell_groups(now);
    }

    /// Sends reports of memberships that are due.
    fn tell_groups(&mut self, now: Instant) {
        let (packet, counts) = (&mut self.packet, &mut self.counts);
        let mut wire = Wire { incoming: None, device: &*self.device, packet, counts };
        self.interface.poll_egress(now, &mut wire, &mut self.no_sockets);
    }

    /// Ends a batch of packets.
    pub(crate) fn settle_all(&mut self, now: Instant) {
        while let Some(key) = self.dirty.pop() {
            self.settle(key, now);
        }
    }

    /// Does what is due. Returns when something is due next, and notes that the driver sleeps until then.
    pub(crate) fn run_timers(&mut self, now: Instant, driver: &Waker) -> Option<Instant> {
        while let Some((at, key)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key));
            self.connections[key].timer = None;
            self.settle(key, now);
        }
        let mut next = self.timers.first().map(|(at, _)| *at);
        if !self.groups.is_empty() {
            self.tell_groups(now);
            let look = now + duration(GROUPS_LOOK);
            next = Some(next.map_or(look, |next| next.min(look)));
        }
        self.driver = Some((driver.clone(), next));
        next
    }

    /// The driver is awake, and looks at all timers before it sleeps.
    pub(crate) fn driver_runs(&mut self) {
        self.driver = None;
    }

    pub(crate) fn stats(&self) -> Stats {
        let (half_open, remembered) = (self.half_open.len(), self.remembered.len());
        Stats {
            sent: self.counts.sent,
            lost: self.counts.lost,
            connections: self.open_count(),
            half_open,
            time_wait: remembered,
            ..self.stats
        }
    }

    /// Whether a connection that its program has dropped has bytes, or its end, that the peer has not acknowledged.
    pub(crate) fn delivers(&self) -> bool {
        self.connections.iter().any(|(_, connection)| connection.delivers())
    }

    /// Connections that are neither half open nor remembered.
    fn open_count(&self) -> usize {
        self.connections.len() - self.half_open.len() - self.remembered.len()
    }

    /// Gives a packet to smoltcp, for one connection or for none.
    fn feed(&mut self, key: Option<usize>, packet: &[u8], now: Instant) {
        let (buf, counts) = (&mut self.packet, &mut self.counts);
        let mut wire = Wire { incoming: Some(packet), device: &*self.device, packet: buf, counts };
        let Some(key) = key else {
            self.interface.poll_ingress_single(now, &mut wire, &mut self.no_sockets);
            return;
        };
        let connection = &mut self.connections[key];
        self.interface.poll_ingress_single(now, &mut wire, &mut connection.socket.set);
        if !std::mem::replace(&mut connection.is_dirty, true) {
            self.dirty.push(key);
        }
    }

    /// Sends what a connection has to send, moves it to its next phase, and notes what is to be told and when to look again.
    fn settle(&mut self, key: usize, now: Instant) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.is_dirty = false;
        connection.note_state(false);
        self.send_all(key, now);
        self.connections[key].note_state(true);
        self.advance(key, now);
        let Some(connection) = self.connections.get_mut(key) else { return };
        self.told.ready.extend(connection.news());
        self.set_timer(key, now);
    }

    fn send_all(&mut self, key: usize, now: Instant) {
        let (packet, counts) = (&mut self.packet, &mut self.counts);
        let mut wire = Wire { incoming: None, device: &*self.device, packet, counts };
        let set = &mut self.connections[key].socket.set;
        while self.interface.poll_egress(now, &mut wire, set) == PollResult::SocketStateChanged {}
    }

    /// See the table in `connection`.
    fn advance(&mut self, key: usize, now: Instant) {
        let connection = &mut self.connections[key];
        let state = connection.state();
        let is_late = connection.deadline.is_some_and(|deadline| deadline <= now);
        match &connection.phase {
            Phase::HalfOpen(..) if matches!(state, State::Listen | State::Closed) || is_late => self.forget(key),
            Phase::HalfOpen(..) if state == State::SynReceived => {}
            Phase::HalfOpen(..) => self.establish(key, now),
            Phase::Waiting | Phase::Owned => {}
            Phase::Orphan if state == State::TimeWait => self.remember(key),
            Phase::Orphan if state == State::Closed => self.forget(key),
            Phase::Orphan if is_late => {
                connection.socket.get_mut().abort();
                self.send_all(key, now);
                self.forget(key);
            }
            Phase::Orphan => {}
            Phase::Remembered(_) if state == State::TimeWait => {}
            Phase::Remembered(_) => self.forget(key),
        }
    }

    /// The handshake is over.
    fn establish(&mut self, key: usize, now: Instant) {
        let connection = &mut self.connections[key];
        let phase = std::mem::replace(&mut connection.phase, Phase::Waiting);
        connection.deadline = None;
        let Phase::HalfOpen(port, number) = phase else { return };
        self.half_open.remove(&number);
        let has_room = self.open_count() <= self.settings.connections_max;
        match has_room.then(|| port.push((self.index, key), self.settings.backlog_max)) {
            Some(Ok(ready)) => self.told.ready.extend(ready),
            // Resets it: its client believes that it is connected.
            _ => {
                self.stats.refused += 1;
                self.connections[key].socket.get_mut().abort();
                self.send_all(key, now);
                self.forget(key);
            }
        }
    }

    /// Keeps a closed connection for a while, so that late packets find it.
    fn remember(&mut self, key: usize) {
        if self.remembered.len() >= self.settings.time_wait_max
            && let Some((_, oldest)) = self.remembered.first_key_value()
        {
            self.forget(*oldest);
        }
        let number = self.next_number();
        self.remembered.insert(number, key);
        let connection = &mut self.connections[key];
        (connection.phase, connection.deadline) = (Phase::Remembered(number), None);
    }

    fn insert(&mut self, connection: Connection) -> usize {
        let tuple = connection.tuple;
        let key = self.connections.insert(connection);
        self.by_tuple.insert(tuple, key);
        key
    }

    /// Removes a connection without a word to its peer.
    fn forget(&mut self, key: usize) {
        let connection = self.connections.remove(key);
        // Unless a newer one has both ends.
        if self.by_tuple.get(&connection.tuple) == Some(&key) {
            self.by_tuple.remove(&connection.tuple);
        }
        if let Some(at) = connection.timer {
            self.timers.remove(&(at, key));
        }
        match connection.phase {
            Phase::HalfOpen(_, number) => _ = self.half_open.remove(&number),
            Phase::Remembered(number) => _ = self.remembered.remove(&number),
            Phase::Waiting | Phase::Owned | Phase::Orphan => {}
        }
        if connection.is_outgoing && self.has_siblings {
            self.ports.end(&connection.tuple);
        }
        if self.spare.len() < SPARE_MAX {
            self.spare.push(connection.socket);
        }
    }

    fn socket(&mut self, timeout: std::time::Duration) -> OneSocket {
        let mut socket = self.spare.pop().unwrap_or_else(|| OneSocket::new(&self.settings));
        socket.renew(timeout);
        socket
    }

    fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Notes when to look at a connection again. A place that is too early stays: moving it would cost more than the look.
    fn set_timer(&mut self, key: usize, now: Instant) {
        let connection = &mut self.connections[key];
        let wanted = self.interface.poll_at(now, &connection.socket.set);
        // If smoltcp wants something at once and has not done it now, it waits for the peer.
        let wanted = wanted.map(|at| at.max(now + duration(LOOK_AGAIN)));
        let Some(at) = [wanted, connection.deadline].into_iter().flatten().min() else { return };
        if connection.timer.is_some_and(|timer| timer <= at) {
            return;
        }
        if let Some(timer) = connection.timer.replace(at) {
            self.timers.remove(&(timer, key));
        }
        self.timers.insert((at, key));
        let sleeps_longer = |(_, until): &(Waker, Option<Instant>)| until.is_none_or(|until| at < until);
        if self.driver.as_ref().is_some_and(sleeps_longer) {
            self.told.driver = self.driver.take().map(|(waker, _)| waker);
        }
    }
}

/// The time on smoltcp's clock.
pub(crate) fn now() -> Instant {
    // A second later, as smoltcp takes zero for "at once".
    let now = dapple_io::time::Instant::now().into_std() + std::time::Duration::from_secs(1);
    Instant::ZERO + duration(now.saturating_duration_since(start()))
}

/// How long a connection may take to be made.
const HANDSHAKE_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// How often reports of memberships that routers have asked for are sent, if there are any.
const GROUPS_LOOK: std::time::Duration = std::time::Duration::from_millis(500);
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(1);
/// Sockets that are kept to be used again.
const SPARE_MAX: usize = 4096;
