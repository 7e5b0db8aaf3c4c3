//! The part that the hosts of a simulation share: time, events that are to come, the network, and the trace.
//!
//! One thread steps all hosts, so the lock around this is never waited for. No waker, destructor or other code of a program runs under
//! it: sockets note what their [`Readiness`] is to be told, and the host's own workers tell it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_io::environment::{BlockingJob, Readiness, Ready};

use crate::disk::DiskState;
use crate::network::connection::Connection;
use crate::network::ports::{DatagramPort, ListenPort, Ports};
use crate::plan::NameFault;
use crate::random::Random;
use crate::settings::Network;
use crate::trace::Trace;

/// See the module's text.
pub(crate) type SharedWorld = Arc<Mutex<World>>;

pub(crate) fn lock(world: &SharedWorld) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct World {
    pub(crate) now: Duration,
    /// Latencies, losses, sizes of segments.
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) network: Network,
    pub(crate) hosts: Vec<HostState>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    /// The addresses of their two sides: no two connections have the same.
    pub(crate) pairs: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Ways that are cut, from one host to another, and how many faults have cut them.
    pub(crate) cuts: BTreeMap<(usize, usize), u32>,
    /// Connections that stall, by the numbers of the faults, and the hosts between which they are; none: the next one will.
    pub(crate) stalls: BTreeMap<usize, ([usize; 2], Option<u64>)>,
    /// Ways that are worse than others, by the numbers of the faults.
    pub(crate) bad_ways: BTreeMap<usize, BadWay>,
    events: BTreeMap<(Duration, u64), Event>,
    next_number: u64,
}

/// A machine, as the network sees it.
pub(crate) struct HostState {
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
    /// Counts starts; what belongs to an earlier one is gone.
    pub(crate) incarnation: u32,
    pub(crate) is_up: bool,
    pub(crate) listeners: Ports<ListenPort>,
    pub(crate) datagrams: Ports<DatagramPort>,
    /// Readinesses that the host's workers are to tell when they look for events.
    pub(crate) told: Vec<(Readiness, Ready)>,
    pub(crate) jobs: VecDeque<BlockingJob>,
    /// How its name server misbehaves, by the numbers of the faults; the last one counts.
    pub(crate) names: Vec<(usize, NameFault)>,
    /// Files of its program, which outlive a crash.
    pub(crate) disk: DiskState,
    /// When its line has carried all that was sent so far.
    pub(crate) line_free: Duration,
    next_port: u16,
}

/// A way that is worse than others.
pub(crate) struct BadWay {
    /// From a host to another; or to this host and from it.
    pub(crate) between: (usize, Option<usize>),
    /// So many times as long, at least.
    pub(crate) latency: u32,
    /// Chance of a datagram to be lost, at least.
    pub(crate) loss: u32,
}

/// An event of some time.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// An attempt to connect comes to its target; it is the `attempt`-th.
    Syn { connection: u64, attempt: u32 },
    /// The answer to it, or bytes, or the end, come to this side.
    Arrival { connection: u64, side: usize },
    /// Room for more bytes is told to this side.
    Window { connection: u64, side: usize },
    /// This side learns that the connection is broken.
    Reset { connection: u64, side: usize, why: std::io::ErrorKind },
    /// A datagram comes to this host.
    Datagram { host: usize, to: SocketAddr, from: SocketAddr, bytes: Vec<u8> },
    /// A function of the blocking pool of this start of a host ends.
    Job { host: usize, incarnation: u32 },
    /// The next fault of the plan begins, or ends.
    Fault { number: usize, begins: bool },
}

impl World {
    pub(crate) fn new(random: Random, network: Network, lines_max: usize) -> World {
        World {
            now: Duration::ZERO,
            random,
            trace: Trace::new(lines_max),
            network,
            hosts: Vec::new(),
            connections: BTreeMap::new(),
            pairs: BTreeSet::new(),
            cuts: BTreeMap::new(),
            stalls: BTreeMap::new(),
            bad_ways: BTreeMap::new(),
            events: BTreeMap::new(),
            next_number: 0,
        }
    }

    /// Adds a machine; its address is 10.0.0.1 and so on.
    pub(crate) fn add_host(&mut self, name: &str) -> usize {
        let index = self.hosts.len();
        assert!(index < 250, "a simulation has at most 250 hosts");
        assert!(self.find(name).is_none(), "there are two hosts named {name:?}");
        self.hosts.push(HostState {
            name: name.to_owned(),
            ip: Ipv4Addr::new(10, 0, 0, index as u8 + 1).into(),
            incarnation: 0,
            is_up: false,
            listeners: Ports::default(),
            datagrams: Ports::default(),
            told: Vec::new(),
            jobs: VecDeque::new(),
            names: Vec::new(),
            disk: DiskState::default(),
            line_free: Duration::ZERO,
            next_port: FIRST_EPHEMERAL,
        });
        index
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host.name == name)
    }

    /// The addresses that the name server of `from` gives for a name, and after which time.
    pub(crate) fn look_up(&mut self, from: usize, name: &str) -> (Duration, Option<IpAddr>) {
        let right = self.find(name);
        match (self.hosts[from].names.last(), right) {
            (Some((_, NameFault::Missing)), _) => (Duration::ZERO, None),
            (Some((_, NameFault::Wrong)), Some(right)) => {
                let others = self.hosts.len();
                let other = (right + 1 + self.random.below(others)) % (others + 1);
                (Duration::ZERO, Some(self.hosts.get(other).map_or(NO_HOST, |host| host.ip)))
            }
            (Some((_, NameFault::Slow(by))), _) => (*by, right.map(|host| self.hosts[host].ip)),
            (_, right) => (Duration::ZERO, right.map(|host| self.hosts[host].ip)),
        }
    }

    /// The host with this address, as seen from `from`.
    pub(crate) fn host_at(&self, from: usize, ip: IpAddr) -> Option<usize> {
        if ip.is_loopback() || ip.is_unspecified() {
            return Some(from);
        }
        self.hosts.iter().position(|host| host.ip == ip)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn schedule(&mut self, at: Duration, event: Event) {
        let number = self.number();
        self.events.insert((at, number), event);
    }

    pub(crate) fn schedule_in(&mut self, after: Duration, event: Event) {
        self.schedule(self.now + after, event);
    }

    pub(crate) fn next_event(&self) -> Option<Duration> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes an event out that is due.
    pub(crate) fn due(&mut self) -> Option<Event> {
        let first = self.events.first_entry().filter(|entry| entry.key().0 <= self.now)?;
        Some(first.remove())
    }

    /// Whether a packet gets through at this moment.
    pub(crate) fn is_open(&self, from: usize, to: usize) -> bool {
        from == to || (self.hosts[to].is_up && !self.cuts.contains_key(&(from, to)))
    }

    /// How long it takes until a packet of so many bytes, which is sent now, arrives.
    pub(crate) fn transit(&mut self, from: usize, to: usize, len: usize) -> Duration {
        if from == to {
            return LOOPBACK;
        }
        self.leave(from, len) + self.latency(from, to)
    }

    /// How long it takes until a packet has left its host. The host's line carries one at a time, in the order in which they are sent.
    pub(crate) fn leave(&mut self, host: usize, len: usize) -> Duration {
        let carried = u128::from(len as u64) * 1_000_000_000 / u128::from(self.network.bandwidth.max(1));
        let waits = self.line_wait(host) + Duration::from_nanos(u64::try_from(carried).unwrap_or(u64::MAX));
        self.hosts[host].line_free = self.now + waits;
        waits
    }

    /// How long the packets take that wait for the line of a host.
    pub(crate) fn line_wait(&self, host: usize) -> Duration {
        self.hosts[host].line_free.saturating_sub(self.now)
    }

    /// How long a packet is on its way after it has left.
    pub(crate) fn latency(&mut self, from: usize, to: usize) -> Duration {
        if from == to {
            return LOOPBACK;
        }
        let latency = self.random.within(&self.network.latency.clone());
        let latency = if self.random.below(64) == 0 { latency * 10 } else { latency };
        latency.saturating_mul(self.bad_ways(from, to).map(|way| way.latency).fold(1, u32::max))
    }

    /// The faults that make a way worse.
    pub(crate) fn bad_ways(&self, from: usize, to: usize) -> impl Iterator<Item = &BadWay> {
        self.bad_ways.values().filter(move |way| match way.between {
            (host, None) => host == from || host == to,
            (one, Some(other)) => (one, other) == (from, to),
        })
    }

    /// Notes what is to be told on a host.
    pub(crate) fn tell(&mut self, host: usize, readiness: Option<&Readiness>, ready: Ready) {
        if let Some(readiness) = readiness {
            self.hosts[host].told.push((readiness.clone(), ready));
        }
    }

    pub(crate) fn line(&mut self, numbers: [u64; 3], what: fmt::Arguments<'_>) {
        self.trace.line(self.now, numbers, what);
    }
}

impl HostState {
    /// A port that is not in use, for what does not ask for one: the next after the last one. None if all are.
    pub(crate) fn free_port(&mut self, is_in_use: impl Fn(&HostState, u16) -> bool) -> Option<u16> {
        let first = self.next_port;
        let port = (first..=u16::MAX).chain(FIRST_EPHEMERAL..first).find(|port| !is_in_use(self, *port))?;
        self.next_port = if port == u16::MAX { FIRST_EPHEMERAL } else { port + 1 };
        Some(port)
    }
}

const FIRST_EPHEMERAL: u16 = 49_152;

/// An address that no host has.
const NO_HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254));

/// The latency of a packet to the same machine.
const LOOPBACK: Duration = Duration::from_micros(10);
