//! A connection: two sides, and what is on its way between them.
//!
//! | side | `state` | next |
//! |---|---|---|
//! | of the client, at first | `Connecting` | an arrival: `Open`; refused, or out of patience: `Broken` |
//! | of the server, when the attempt arrives | `Open` | |
//! | any | `Open` | closed by its program, or its host crashes: `Gone`; a reset, or out of patience: `Broken` |
//! | any | `Broken` | dropped: `Gone` |
//!
//! Bytes arrive in order: each side has a pipe of segments to the other, and one event for the first of them. A segment that does not
//! get through is tried again, later and later, until the network's patience is over, and then those after it are sent again.
//! The client repeats its attempt until an answer comes. Resets are not repeated: one that finds a cut is lost. A side that is gone
//! answers arrivals by a reset, if the host is up; so a crash leaves the other side half open until it sends.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use dapple_io::environment::{Readiness, Ready};

use crate::world::{Event, World};

/// See the module's text.
pub(crate) struct Connection {
    pub(crate) sides: [Side; 2],
}

pub(crate) struct Side {
    pub(crate) host: usize,
    pub(crate) addr: SocketAddr,
    pub(crate) state: State,
    pub(crate) readiness: Option<Readiness>,
    /// Bytes that have come and were not read yet.
    pub(crate) received: VecDeque<u8>,
    pub(crate) has_ended: bool,
    /// It has ended its own direction.
    pub(crate) ends: bool,
    /// A write found no room.
    pub(crate) is_blocked: bool,
    /// Dropping it resets the connection.
    pub(crate) aborts: bool,
    /// Segments on their way to the other side.
    pipe: VecDeque<Segment>,
    pipe_bytes: usize,
    /// There is an event for the first of them.
    is_moving: bool,
    /// Since when the first does not get through, and when it is tried again.
    stuck: Option<(Duration, Duration)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Connecting,
    Open,
    Broken(ErrorKind),
    Gone,
}

struct Segment {
    arrives: Duration,
    /// Nothing: the answer to an attempt, or the end.
    bytes: Vec<u8>,
    ends: bool,
}

impl Side {
    pub(crate) fn new(host: usize, addr: SocketAddr, state: State) -> Side {
        Side {
            host,
            addr,
            state,
            readiness: None,
            received: VecDeque::new(),
            has_ended: false,
            ends: false,
            is_blocked: false,
            aborts: false,
            pipe: VecDeque::new(),
            pipe_bytes: 0,
            is_moving: false,
            stuck: None,
        }
    }

    /// The operations that can be done now.
    pub(crate) fn ready(&self, window: usize, theirs: usize) -> Ready {
        let broken = matches!(self.state, State::Broken(_));
        Ready {
            readable: !self.received.is_empty(),
            writable: self.state == State::Open && self.pipe_bytes + theirs < window,
            read_ended: self.has_ended,
            broken,
        }
    }
}

impl World {
    /// Begins to connect, if there is a port left from which there is no connection to that address.
    pub(crate) fn connect(&mut self, host: usize, to: SocketAddr) -> io::Result<u64> {
        let (ip, to) = self.route(host, Ipv4Addr::UNSPECIFIED.into(), to)?;
        let World { hosts, pairs, .. } = self;
        let port = hosts[host].free_port(|host, port| {
            host.listeners.is_in_use(SocketAddr::new(ip, port)) || pairs.contains(&(SocketAddr::new(ip, port), to))
        });
        let port = port.ok_or_else(|| io::Error::from(ErrorKind::AddrNotAvailable))?;
        pairs.insert((SocketAddr::new(ip, port), to));
        let target = self.host_at(host, to.ip()).unwrap_or(host);
        let client = Side::new(host, SocketAddr::new(ip, port), State::Connecting);
        let server = Side::new(target, to, State::Gone);
        let connection = self.number();
        self.connections.insert(connection, Connection { sides: [client, server] });
        let next =
            |(hosts, stalls): &&mut ([usize; 2], Option<u64>)| stalls.is_none() && is_between(*hosts, [host, target]);
        if let Some((_, stalls)) = self.stalls.values_mut().find(next) {
            *stalls = Some(connection);
        }
        let latency = self.transit(host, target, 0);
        self.schedule_in(latency, Event::Syn { connection, attempt: 1 });
        Ok(connection)
    }

    /// An attempt to connect arrives, or does not. The client repeats it until an answer comes.
    pub(crate) fn syn(&mut self, number: u64, attempt: u32) {
        let Some(connection) = self.connections.get(&number) else { return };
        let [client, server] = &connection.sides;
        let (from, to, ip) = (client.host, server.host, server.addr.ip());
        if client.state != State::Connecting {
            return;
        }
        let knows = self.host_at(from, ip).is_some();
        let is_answered = server.state == State::Gone && !server.pipe.is_empty();
        match server.state {
            _ if !knows || !self.gets_through(number, from, to) || is_answered => {}
            State::Gone => self.ask(number),
            State::Broken(_) => self.send_reset(number, 0, ErrorKind::ConnectionReset),
            State::Open | State::Connecting => {}
        }
        let again = RETRY * 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
        if again > self.network.patience {
            let why = if knows { ErrorKind::TimedOut } else { ErrorKind::HostUnreachable };
            return self.reset(number, 0, why);
        }
        self.schedule_in(again, Event::Syn { connection: number, attempt: attempt + 1 });
    }

    /// An attempt to connect has come to its host.
    fn ask(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let [client, server] = &mut connection.sides;
        let (host, client, addr) = (server.host, client.addr, server.addr);
        let backlog = self.network.backlog;
        let Some(listener) = self.hosts[host].listeners.reached_by(addr) else {
            return self.send_reset(number, 0, ErrorKind::ConnectionRefused);
        };
        if listener.waiting.len() >= backlog || listener.refuses {
            return;
        }
        // An earlier attempt may have come to it before a crash.
        *server = Side { is_moving: server.is_moving, ..Side::new(host, addr, State::Open) };
        listener.waiting.push_back(number);
        let readiness = listener.readiness.clone();
        self.tell(host, readiness.as_ref(), Ready { readable: true, ..Ready::default() });
        self.line([1, number, host as u64], format_args!("{addr} is asked by {client}"));
        self.push(number, 1, Vec::new(), false);
    }

    /// Sends a reset to this side.
    fn send_reset(&mut self, number: u64, side: usize, why: ErrorKind) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (from, to) = (connection.sides[1 - side].host, connection.sides[side].host);
        let transit = self.transit(from, to, 0);
        self.schedule_in(transit, Event::Reset { connection: number, side, why });
    }

    /// Sends a segment from `side` to the other.
    pub(crate) fn push(&mut self, number: u64, side: usize, bytes: Vec<u8>, ends: bool) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (from, to) = (connection.sides[side].host, connection.sides[1 - side].host);
        let arrives = self.now + self.transit(from, to, bytes.len());
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let own = &mut connection.sides[side];
        let before = own.pipe.back().map_or(Duration::ZERO, |last| last.arrives);
        own.pipe_bytes += bytes.len();
        own.pipe.push_back(Segment { arrives: before.max(arrives), bytes, ends });
        self.move_on(number, side);
    }

    /// Sees to it that the first segment from `side` arrives.
    fn move_on(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let own = &mut connection.sides[side];
        let Some(first) = own.pipe.front().filter(|_| !own.is_moving) else { return };
        own.is_moving = true;
        let at = own.stuck.map_or(first.arrives, |(_, again)| again);
        self.schedule(at, Event::Arrival { connection: number, side: 1 - side });
    }

    /// The first segments to `side` arrive, or do not.
    pub(crate) fn arrival(&mut self, number: u64, side: usize) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (from, to) = (connection.sides[1 - side].host, connection.sides[side].host);
        let theirs = &mut connection.sides[1 - side];
        theirs.is_moving = false;
        if theirs.pipe.front().is_none_or(|first| first.arrives > now) {
            // That which was to arrive was taken back, by a reset or a crash.
            theirs.stuck = None;
            return self.move_on(number, 1 - side);
        }
        if !self.gets_through(number, from, to) {
            return self.stick(number, 1 - side);
        }
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (left, right) = connection.sides.split_at_mut(1);
        let (own, theirs) = if side == 0 { (&mut left[0], &mut right[0]) } else { (&mut right[0], &mut left[0]) };
        let was_stuck = theirs.stuck.take().is_some();
        if matches!(own.state, State::Gone | State::Broken(_)) {
            theirs.pipe.clear();
            self.send_reset(number, 1 - side, ErrorKind::ConnectionReset);
            return self.bury(number);
        }
        let mut ready = Ready { writable: own.state == State::Connecting, ..Ready::default() };
        own.state = State::Open;
        let mut len = 0;
        while theirs.pipe.front().is_some_and(|segment| segment.arrives <= now) {
            let Some(segment) = theirs.pipe.pop_front() else { break };
            theirs.pipe_bytes -= segment.bytes.len();
            len += segment.bytes.len() as u64;
            ready.readable |= !segment.bytes.is_empty();
            ready.read_ended |= segment.ends;
            own.received.extend(segment.bytes);
            own.has_ended |= segment.ends;
            if was_stuck {
                break;
            }
        }
        let (readiness, own, from) = (own.readiness.clone(), own.addr, theirs.addr);
        self.tell(to, readiness.as_ref(), ready);
        let end = if ready.read_ended { ", and the end" } else { "" };
        self.line([2, number << 1 | side as u64, len], format_args!("{own} gets {len} bytes from {from}{end}"));
        if was_stuck {
            self.send_again(number, 1 - side);
        }
        self.move_on(number, 1 - side);
        self.bury(number);
    }

    /// The segments from `side` that came after one which did not get through have to be sent again.
    fn send_again(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (from, to) = (connection.sides[side].host, connection.sides[1 - side].host);
        let mut pipe = std::mem::take(&mut connection.sides[side].pipe);
        let mut before = Duration::ZERO;
        for segment in &mut pipe {
            if segment.arrives <= self.now {
                segment.arrives = self.now + self.transit(from, to, segment.bytes.len());
            }
            segment.arrives = segment.arrives.max(before);
            before = segment.arrives;
        }
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.sides[side].pipe = pipe;
        }
    }

    /// The first segment from `side` did not get through.
    fn stick(&mut self, number: u64, side: usize) {
        let (now, patience) = (self.now, self.network.patience);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let own = &mut connection.sides[side];
        let since = own.stuck.map_or(now, |(since, _)| since);
        if now - since > patience || own.state == State::Gone && own.aborts {
            own.pipe.clear();
            return self.reset(number, side, ErrorKind::TimedOut);
        }
        let (host, len) = (own.host, own.pipe.front().map_or(0, |first| first.bytes.len()));
        let again = self.leave(host, len).max(RETRY.max((now - since) / 2));
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.sides[side].stuck = Some((since, now + again));
        self.move_on(number, side);
    }

    /// A reset comes to this side, unless the way is cut.
    pub(crate) fn reset_arrives(&mut self, number: u64, side: usize, why: ErrorKind) {
        let Some(connection) = self.connections.get(&number) else { return };
        let (from, to) = (connection.sides[1 - side].host, connection.sides[side].host);
        if self.gets_through(number, from, to) {
            self.reset(number, side, why);
        }
    }

    /// A host resets the connection. The other side learns of it now, if the way to it is open, or when it sends.
    pub(crate) fn reset_by(&mut self, number: u64, host: usize) {
        for side in 0..2 {
            let Some(connection) = self.connections.get(&number) else { return };
            let to = connection.sides[side].host;
            if to == host || self.gets_through(number, host, to) {
                self.reset(number, side, ErrorKind::ConnectionReset);
            }
        }
    }

    /// A side learns that the connection is broken.
    pub(crate) fn reset(&mut self, number: u64, side: usize, why: ErrorKind) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let own = &mut connection.sides[side];
        if matches!(own.state, State::Connecting | State::Open) {
            own.state = State::Broken(why);
            own.pipe.clear();
            let (host, readiness, addr) = (own.host, own.readiness.clone(), own.addr);
            self.tell(host, readiness.as_ref(), Ready { broken: true, ..Ready::default() });
            self.line(
                [3, number << 1 | side as u64, why as u64],
                format_args!("{addr}: the connection is broken, {why}"),
            );
        }
        self.bury(number);
    }

    /// Whether a packet of this connection gets through at this moment.
    fn gets_through(&self, number: u64, from: usize, to: usize) -> bool {
        self.is_open(from, to) && !self.stalls.values().any(|(_, stalls)| *stalls == Some(number))
    }

    /// A fault begins: one of the connections between these hosts stalls.
    pub(crate) fn stall(&mut self, fault: usize, hosts: [usize; 2]) {
        let between = |connection: &&Connection| {
            let [client, server] = &connection.sides;
            is_between(hosts, [client.host, server.host]) && client.state != State::Gone && server.state != State::Gone
        };
        let all = self.connections.iter().filter(|(_, connection)| between(connection));
        let all: Vec<u64> = all.map(|(number, _)| *number).collect();
        let chosen = if all.is_empty() { None } else { Some(all[self.random.below(all.len())]) };
        self.stalls.insert(fault, (hosts, chosen));
    }

    /// A side is closed by its program.
    pub(crate) fn close(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let own = &mut connection.sides[side];
        own.readiness = None;
        let (before, ends) = (std::mem::replace(&mut own.state, State::Gone), own.ends);
        let (host, other) = (own.host, connection.sides[1 - side].host);
        let resets = before == State::Connecting || own_resets(&connection.sides[side]);
        match before {
            State::Gone | State::Broken(_) => {}
            _ if resets => {
                connection.sides[side].pipe.clear();
                if self.gets_through(number, host, other) {
                    self.send_reset(number, 1 - side, ErrorKind::ConnectionReset);
                }
            }
            _ if !ends => self.push(number, side, Vec::new(), true),
            _ => {}
        }
        self.bury(number);
    }

    /// The host of this side has crashed: nothing is said to the other one.
    pub(crate) fn forget_side(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let own = &mut connection.sides[side];
        own.state = State::Gone;
        own.readiness = None;
        own.pipe.clear();
        self.bury(number);
    }

    /// Forgets a connection of which both sides are gone.
    fn bury(&mut self, number: u64) {
        let Some(connection) = self.connections.get(&number) else { return };
        let is_over = |side: &Side| side.state == State::Gone && side.pipe.is_empty();
        if connection.sides.iter().all(is_over) {
            let [client, server] = &connection.sides;
            self.pairs.remove(&(client.addr, server.addr));
            self.connections.remove(&number);
        }
    }

    /// Room has come for a side that may wait for it.
    pub(crate) fn window(&mut self, number: u64, side: usize) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (from, to) = (connection.sides[1 - side].host, connection.sides[side].host);
        if !self.gets_through(number, from, to) {
            return self.schedule_in(RETRY, Event::Window { connection: number, side });
        }
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let own = &mut connection.sides[side];
        own.is_blocked = false;
        let readiness = own.readiness.clone();
        self.tell(to, readiness.as_ref(), Ready { writable: true, ..Ready::default() });
    }

    /// How many bytes a side may send now.
    pub(crate) fn room(&self, number: u64, side: usize) -> usize {
        let Some(connection) = self.connections.get(&number) else { return 0 };
        let used = connection.sides[side].pipe_bytes + connection.sides[1 - side].received.len();
        self.network.window.saturating_sub(used)
    }
}

/// A side that is closed before all was read resets the connection, as the kernel does.
fn own_resets(side: &Side) -> bool {
    side.aborts || !side.received.is_empty()
}

/// Whether these are the two hosts, in any order.
fn is_between(hosts: [usize; 2], sides: [usize; 2]) -> bool {
    sides == hosts || sides == [hosts[1], hosts[0]]
}

/// When something that did not get through is tried again, the first time.
const RETRY: Duration = Duration::from_millis(200);
