//! The kernel of one host, as its runtime sees it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::environment::{
    BlockingJob, DatagramSocket, Disk, Environment, ListenSocket, Lookup, Network, Readiness, Ready, StreamSocket,
    Watched,
};
use dapple_io::time::sleep;

use crate::network::connection::State;
use crate::network::ports::{DatagramPort, ListenPort};
use crate::world::{Event, SharedWorld, World, lock};

/// See the module's text. It belongs to one start of the host: after a crash it refuses everything, and what it made is gone.
#[derive(Clone)]
pub(crate) struct Kernel {
    pub(crate) world: SharedWorld,
    pub(crate) host: usize,
    pub(crate) incarnation: u32,
}

impl Kernel {
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut World) -> io::Result<R>) -> io::Result<R> {
        let mut world = lock(&self.world);
        let host = &world.hosts[self.host];
        if !host.is_up || host.incarnation != self.incarnation {
            return Err(io::Error::new(ErrorKind::NetworkDown, "this simulated host has crashed"));
        }
        f(&mut world)
    }
}

impl Network for Kernel {
    fn connect(&self, to: SocketAddr) -> io::Result<Arc<dyn StreamSocket>> {
        let connection = self.with(|world| world.connect(self.host, to))?;
        Ok(Arc::new(Stream { kernel: self.clone(), connection, side: 0 }))
    }

    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn ListenSocket>> {
        self.with(|world| {
            let host = &mut world.hosts[self.host];
            let bound = host.bind(at, |host, at| host.listeners.is_in_use(at))?;
            let port = ListenPort { waiting: VecDeque::new(), readiness: None, refuses: false };
            host.listeners.insert(bound, port);
            Ok(Arc::new(Listener { kernel: self.clone(), bound, addr: host.shown(bound) }) as Arc<dyn ListenSocket>)
        })
    }

    fn bind_datagrams(&self, at: SocketAddr) -> io::Result<Arc<dyn DatagramSocket>> {
        self.with(|world| {
            let host = &mut world.hosts[self.host];
            let bound = host.bind(at, |host, at| host.datagrams.is_in_use(at))?;
            let port = DatagramPort { waiting: VecDeque::new(), readiness: None, peer: None };
            host.datagrams.insert(bound, port);
            Ok(Arc::new(Datagrams { kernel: self.clone(), bound, addr: host.shown(bound) }) as Arc<dyn DatagramSocket>)
        })
    }
}

impl Environment for Kernel {
    fn dispatch(&self) -> bool {
        let told = self.with(|world| Ok(std::mem::take(&mut world.hosts[self.host].told))).unwrap_or_default();
        let any = !told.is_empty();
        told.into_iter().for_each(|(readiness, ready)| readiness.tell(ready));
        any
    }

    fn look_up(&self, name: &str) -> Lookup {
        let asked = self.with(|world| Ok(world.look_up(self.host, name)));
        let name = name.to_owned();
        Box::pin(async move {
            let (late, ip) = asked?;
            if !late.is_zero() {
                sleep(late).await;
            }
            ip.map(|ip| vec![ip]).ok_or_else(|| no_host(&name))
        })
    }

    fn disk(&self) -> Option<Arc<dyn Disk>> {
        Some(Arc::new(self.clone()))
    }

    fn run_blocking(&self, job: BlockingJob) {
        // The job of a host that has crashed is dropped, and so answers that it will not run.
        let mut job = Some(job);
        let _ = self.with(|world| {
            let host = &mut world.hosts[self.host];
            host.jobs.extend(job.take());
            let takes = world.random.within(&JOB_TIME);
            world.schedule_in(takes, Event::Job { host: self.host, incarnation: self.incarnation });
            Ok(())
        });
    }
}

/// One side of a connection.
struct Stream {
    kernel: Kernel,
    connection: u64,
    side: usize,
}

impl Stream {
    fn with<R>(&self, f: impl FnOnce(&mut World) -> io::Result<R>) -> io::Result<R> {
        self.kernel.with(f)
    }
}

impl Watched for Stream {
    fn watch(&self, readiness: Readiness) {
        let now = self.with(|world| {
            let window = world.network.window;
            let Some(connection) = world.connections.get_mut(&self.connection) else { return Ok(Ready::default()) };
            let theirs = connection.sides[1 - self.side].received.len();
            let own = &mut connection.sides[self.side];
            own.readiness = Some(readiness.clone());
            Ok(own.ready(window, theirs))
        });
        readiness.tell(now.unwrap_or(Ready { broken: true, ..Ready::default() }));
    }
}

impl StreamSocket for Stream {
    fn is_connected(&self) -> io::Result<bool> {
        self.with(|world| match side_state(world, self.connection, self.side) {
            State::Connecting => Ok(false),
            State::Open => Ok(true),
            State::Broken(why) => Err(why.into()),
            State::Gone => Err(ErrorKind::NotConnected.into()),
        })
    }

    fn receive(&self, take: &mut dyn FnMut(&[u8]) -> usize) -> io::Result<()> {
        self.with(|world| {
            let window = world.network.window;
            let Some(connection) = world.connections.get_mut(&self.connection) else {
                return Err(ErrorKind::NotConnected.into());
            };
            let own = &mut connection.sides[self.side];
            if own.received.is_empty() {
                return match own.state {
                    State::Broken(why) => Err(why.into()),
                    _ if own.has_ended => Ok(()),
                    State::Gone => Err(ErrorKind::NotConnected.into()),
                    _ => Err(ErrorKind::WouldBlock.into()),
                };
            }
            let was_full = own.received.len() >= window / 2;
            let len = take(own.received.make_contiguous());
            if len == 0 {
                return Ok(());
            }
            own.received.drain(..len);
            let is_full = own.received.len() >= window / 2;
            let (host, other) = (own.host, connection.sides[1 - self.side].host);
            let waits = connection.sides[1 - self.side].is_blocked;
            if waits && (was_full && !is_full || own_is_empty(world, self.connection, self.side)) {
                let latency = world.transit(host, other, 0);
                world.schedule_in(latency, Event::Window { connection: self.connection, side: 1 - self.side });
            }
            Ok(())
        })
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|world| {
            match side_state(world, self.connection, self.side) {
                State::Open => {}
                State::Connecting => return Err(ErrorKind::WouldBlock.into()),
                State::Broken(why) => return Err(why.into()),
                State::Gone => return Err(ErrorKind::BrokenPipe.into()),
            }
            let room = world.room(self.connection, self.side);
            let segment_max = world.network.segment.max(1);
            let Some(connection) = world.connections.get_mut(&self.connection) else {
                return Err(ErrorKind::BrokenPipe.into());
            };
            let own = &mut connection.sides[self.side];
            if own.ends {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let len = bytes.len().min(room);
            own.is_blocked |= len < bytes.len();
            if len == 0 && !bytes.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let mut rest = &bytes[..len];
            while !rest.is_empty() {
                // Now and then a short one, so that no program relies on whole messages.
                let limit = if world.random.below(8) == 0 { 1 + world.random.below(segment_max) } else { segment_max };
                let (segment, later) = rest.split_at(rest.len().min(limit));
                world.push(self.connection, self.side, segment.to_vec(), false);
                rest = later;
            }
            Ok(len)
        })
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.with(|world| {
            let Some(connection) = world.connections.get_mut(&self.connection) else {
                return Err(ErrorKind::NotConnected.into());
            };
            let own = &mut connection.sides[self.side];
            if own.state != State::Open {
                return Err(ErrorKind::NotConnected.into());
            }
            if how != Shutdown::Write {
                own.received.clear();
                own.has_ended = true;
            }
            if how != Shutdown::Read && !std::mem::replace(&mut own.ends, true) {
                world.push(self.connection, self.side, Vec::new(), true);
            }
            Ok(())
        })
    }

    fn abort(&self) {
        let _ = self.with(|world| {
            if let Some(connection) = world.connections.get_mut(&self.connection) {
                connection.sides[self.side].aborts = true;
            }
            Ok(())
        });
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.with(|world| address(world, self.connection, self.side))
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.with(|world| address(world, self.connection, 1 - self.side))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.kernel.with(|world| {
            world.close(self.connection, self.side);
            Ok(())
        });
    }
}

/// A listening socket.
struct Listener {
    kernel: Kernel,
    bound: SocketAddr,
    /// The same for programs: the unspecified address is shown as that of the host.
    addr: SocketAddr,
}

impl Listener {
    fn with<R>(&self, f: impl FnOnce(&mut ListenPort) -> io::Result<R>) -> io::Result<R> {
        self.kernel.with(|world| {
            let port = world.hosts[self.kernel.host].listeners.bound_to(self.bound);
            f(port.ok_or(ErrorKind::NotConnected)?)
        })
    }
}

impl Watched for Listener {
    fn watch(&self, readiness: Readiness) {
        let readable = self.with(|port| {
            port.readiness = Some(readiness.clone());
            Ok(!port.waiting.is_empty())
        });
        let broken = readable.is_err();
        readiness.tell(Ready { readable: readable.unwrap_or(false), broken, ..Ready::default() });
    }
}

impl ListenSocket for Listener {
    fn accept(&self) -> io::Result<(Arc<dyn StreamSocket>, SocketAddr)> {
        let connection = self.with(|port| port.waiting.pop_front().ok_or_else(|| ErrorKind::WouldBlock.into()))?;
        let accepted = Stream { kernel: self.kernel.clone(), connection, side: 1 };
        let peer = accepted.peer_addr().map_err(|_| io::Error::from(ErrorKind::ConnectionAborted))?;
        Ok((Arc::new(accepted), peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }

    fn refuse_new(&self) {
        let _ = self.with(|port| {
            port.refuses = true;
            Ok(())
        });
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.kernel.with(|world| {
            let port = world.hosts[self.kernel.host].listeners.remove(self.bound);
            for connection in port.into_iter().flat_map(|port| port.waiting) {
                if let Some(connection) = world.connections.get_mut(&connection) {
                    connection.sides[1].aborts = true;
                }
                world.close(connection, 1);
            }
            Ok(())
        });
    }
}

/// A socket for datagrams.
struct Datagrams {
    kernel: Kernel,
    bound: SocketAddr,
    /// The same for programs: the unspecified address is shown as that of the host.
    addr: SocketAddr,
}

impl Datagrams {
    fn with<R>(&self, f: impl FnOnce(&mut DatagramPort) -> io::Result<R>) -> io::Result<R> {
        self.kernel.with(|world| {
            let port = world.hosts[self.kernel.host].datagrams.bound_to(self.bound);
            f(port.ok_or(ErrorKind::NotConnected)?)
        })
    }
}

impl Watched for Datagrams {
    fn watch(&self, readiness: Readiness) {
        let readable = self.with(|port| {
            port.readiness = Some(readiness.clone());
            Ok(!port.waiting.is_empty())
        });
        let broken = readable.is_err();
        readiness.tell(Ready { readable: readable.unwrap_or(false), writable: true, broken, ..Ready::default() });
    }
}

impl DatagramSocket for Datagrams {
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        if bytes.len() > DATAGRAM_MAX {
            return Err(io::Error::new(ErrorKind::InvalidInput, "a datagram has at most 65,507 bytes"));
        }
        self.kernel.with(|world| {
            let (from, to) = world.route(self.kernel.host, self.bound.ip(), to)?;
            world.send_datagram(self.kernel.host, SocketAddr::new(from, self.bound.port()), to, bytes);
            Ok(bytes.len())
        })
    }

    fn receive_from(&self, len: usize) -> io::Result<(Vec<u8>, SocketAddr)> {
        let (mut bytes, from) =
            self.with(|port| port.waiting.pop_front().ok_or_else(|| ErrorKind::WouldBlock.into()))?;
        bytes.truncate(len);
        Ok((bytes, from))
    }

    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        let (_, to) = self.kernel.with(|world| world.route(self.kernel.host, self.bound.ip(), to))?;
        self.with(|port| {
            port.peer = Some(to);
            Ok(())
        })
    }

    fn connected_to(&self) -> Option<SocketAddr> {
        self.with(|port| Ok(port.peer)).ok().flatten()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        let _ = self.kernel.with(|world| {
            world.hosts[self.kernel.host].datagrams.remove(self.bound);
            Ok(())
        });
    }
}

fn side_state(world: &World, connection: u64, side: usize) -> State {
    world.connections.get(&connection).map_or(State::Gone, |connection| connection.sides[side].state)
}

fn own_is_empty(world: &World, connection: u64, side: usize) -> bool {
    world.connections.get(&connection).is_none_or(|connection| connection.sides[side].received.is_empty())
}

fn address(world: &World, connection: u64, side: usize) -> io::Result<SocketAddr> {
    let connection = world.connections.get(&connection).ok_or(ErrorKind::NotConnected)?;
    Ok(connection.sides[side].addr)
}

fn no_host(name: &str) -> io::Error {
    io::Error::new(ErrorKind::NotFound, format!("no host of this simulation is named {name:?}"))
}

/// The time that a function of the blocking pool takes.
const JOB_TIME: Range<Duration> = Duration::from_micros(10)..Duration::from_millis(2);

const DATAGRAM_MAX: usize = 65_507;
