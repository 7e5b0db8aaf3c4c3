//! An environment replaces the kernel as the origin of a runtime's connections, listeners,
//! datagrams and names.
//!
//! By default it is the kernel. A runtime with a [`Network`] ([`on_network`]) asks that for its sockets, and the kernel for
//! everything else. A runtime in an [`Environment`] ([`runtime_builder_in`]), such as a machine of a simulation, asks nothing of the
//! kernel. The border is the least that a kernel has: sockets that answer at once or say
//! [`WouldBlock`](std::io::ErrorKind::WouldBlock), and a [`Readiness`] that tells when to try again. All above it is the same code in all
//! cases: [`TcpStream`](crate::net::TcpStream), [`TcpListener`](crate::net::TcpListener), [`UdpSocket`](crate::net::UdpSocket), timers,
//! the blocking pool, and what is built on these.
//!
//! File descriptors are the kernel's: Unix sockets, pipes, children, signals, sockets of the standard library. A runtime in an
//! environment refuses these by a panic that says so.

mod disk;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use rustix::event::epoll::EventFlags;

use crate::EpollDriver;
use crate::driver::{Entry, current};

pub use disk::{Disk, DiskMetadata, DiskOpen};

/// Addresses of a name, once they are known.
pub type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// A function of the blocking pool.
pub type BlockingJob = Box<dyn FnOnce() + Send>;

/// Sockets in place of the kernel's. All calls come from tasks, callbacks and destructors of the runtime, and none may block.
pub trait Network: Send + Sync + 'static {
    /// Whether sockets at this address, and connections to it, are this network's. The kernel makes all others. By default all are this
    /// network's.
    fn has(&self, _addr: IpAddr) -> bool {
        true
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// The addresses that are known at once.
    fn connect(&self, to: SocketAddr) -> io::Result<Arc<dyn StreamSocket>>;

    /// Listens. Port 0 lets the environment choose.
    ///
    /// # Errors
    /// The address is in use, or not one of this machine.
    fn listen(&self, at: SocketAddr) -> io::Result<Arc<dyn ListenSocket>>;

    /// Binds a socket for datagrams. Port 0 lets the environment choose.
    ///
    /// # Errors
    /// The address is in use, or not one of this machine.
    fn bind_datagrams(&self, at: SocketAddr) -> io::Result<Arc<dyn DatagramSocket>>;

    /// Binds a socket for the datagrams to a group of hosts, at a port; the host becomes a member. Port 0 lets the environment choose. All that
    /// the socket sends to the group comes to its members on this host, too.
    ///
    /// # Errors
    /// The address is in use, or not that of a group. By default `Unsupported`.
    fn bind_group(&self, group: SocketAddr) -> io::Result<Arc<dyn DatagramSocket>> {
        let why = format!("this network has no groups of hosts such as {}", group.ip());
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }
}

/// The services that a machine of a simulation offers to its runtime. All calls come from the one thread that steps the runtime's
/// workers, and none blocks.
pub trait Environment: Network {
    /// Tells [`Readiness`]es what has happened since the last call; true if anything has. Called by a worker between two turns, as the
    /// kernel is asked for events.
    fn dispatch(&self) -> bool;

    /// Looks a name up.
    fn look_up(&self, name: &str) -> Lookup;

    /// Runs a function for the blocking pool, now or later, but not inside of this call.
    fn run_blocking(&self, job: BlockingJob);

    /// The disk that [`fs`](crate::fs) reads and writes. By default there is none, and files are refused.
    fn disk(&self) -> Option<Arc<dyn Disk>> {
        None
    }
}

/// A socket that tasks can wait for.
pub trait Watched: Send + Sync + 'static {
    /// From now on `readiness` hears of the events of this socket, beginning with the operations
    /// that are possible already. Once more changes nothing.
    fn watch(&self, readiness: Readiness);
}

/// A connection, or an attempt at one. Dropping it closes it.
pub trait StreamSocket: Watched {
    /// Whether the connection is made by now.
    ///
    /// # Errors
    /// The attempt has failed.
    fn is_connected(&self) -> io::Result<bool>;

    /// Shows the bytes that have come to `take`, and forgets as many as it returns. If they are in several pieces, `take` gets the next
    /// piece as long as it takes the whole of each. It gets nothing where the other side has ended the stream.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection is broken.
    fn receive(&self, take: &mut dyn FnMut(&[u8]) -> usize) -> io::Result<()>;

    /// Gives a part of the bytes to be sent, at least one.
    ///
    /// # Errors
    /// `WouldBlock`, or the connection is broken.
    fn send(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Ends one direction, or both.
    ///
    /// # Errors
    /// `NotConnected` if the connection has ended.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;

    /// From now on dropping it resets the connection.
    fn abort(&self);

    /// The address of this side.
    ///
    /// # Errors
    /// The connection has ended.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The address of the other side.
    ///
    /// # Errors
    /// The connection has ended.
    fn peer_addr(&self) -> io::Result<SocketAddr>;
}

/// A socket that accepts connections. If dropped, it closes, and resets the waiting connections.
pub trait ListenSocket: Watched {
    /// Takes the next connection, with the address of the other side.
    ///
    /// # Errors
    /// `WouldBlock`, or the listener has failed.
    fn accept(&self) -> io::Result<(Arc<dyn StreamSocket>, SocketAddr)>;

    /// The address that it listens on.
    ///
    /// # Errors
    /// The listener has closed.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Connections that are not made yet are not answered from now on.
    fn refuse_new(&self);
}

/// A socket for datagrams. Dropping it closes it.
pub trait DatagramSocket: Watched {
    /// Sends one datagram.
    ///
    /// # Errors
    /// It is too long, or there is no route to that address.
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize>;

    /// Takes the next datagram, with its sender. A longer one is cut at `len` bytes.
    ///
    /// # Errors
    /// `WouldBlock`, or the fate of a datagram that was sent earlier.
    fn receive_from(&self, len: usize) -> io::Result<(Vec<u8>, SocketAddr)>;

    /// Sends to, and receives from, this address only.
    ///
    /// # Errors
    /// There is no way to that address.
    fn connect(&self, to: SocketAddr) -> io::Result<()>;

    /// The address given to `connect`.
    fn connected_to(&self) -> Option<SocketAddr>;

    /// Its bound address.
    ///
    /// # Errors
    /// The socket has closed.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// The way in which a socket reports possible operations, as epoll does by edges.
#[derive(Clone)]
pub struct Readiness(Weak<Entry>);

/// The operations that a socket is ready for, by [`Readiness::tell`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ready {
    /// Bytes, a connection or a datagram wait.
    pub readable: bool,
    /// There is room, or the connection is made.
    pub writable: bool,
    /// The other side has ended the stream.
    pub read_ended: bool,
    /// The connection is broken.
    pub broken: bool,
}

impl Readiness {
    pub(crate) fn of(entry: &Arc<Entry>) -> Readiness {
        Readiness(Arc::downgrade(entry))
    }

    /// Wakes the tasks that wait for this. Not to be called while a lock is held that a socket's methods take.
    pub fn tell(&self, ready: Ready) {
        let Some(entry) = self.0.upgrade() else { return };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, ready.readable);
        flags.set(EventFlags::OUT, ready.writable);
        flags.set(EventFlags::RDHUP, ready.read_ended);
        flags.set(EventFlags::ERR, ready.broken);
        if !flags.is_empty() {
            entry.dispatch(flags);
        }
    }
}

impl std::fmt::Debug for Readiness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Readiness")
    }
}

/// A builder of runtimes in an environment, as [`runtime_builder`](crate::runtime_builder) is one of runtimes on the kernel. It builds
/// by [`build_stepped`](dapple_sched::Builder::build_stepped), on a thread that is
/// [simulated](dapple_sched::environment::Simulated::around).
pub fn runtime_builder_in(environment: Arc<dyn Environment>) -> dapple_sched::Builder {
    dapple_sched::Runtime::builder().driver(move |workers| {
        let driver: Arc<dyn dapple_sched::Driver> = EpollDriver::in_environment(workers, environment)?;
        Ok(driver)
    })
}

/// Gives the runtimes of a builder the sockets of `network` in place of the kernel's, and a driver with these limits in place of the one that
/// the builder had.
pub fn on_network(
    builder: dapple_sched::Builder,
    network: Arc<dyn Network>,
    config: crate::Config,
) -> dapple_sched::Builder {
    builder.driver(move |workers| {
        crate::dump::from_environment()?;
        let driver: Arc<dyn dapple_sched::Driver> = EpollDriver::on_network(workers, config, network)?;
        Ok(driver)
    })
}

/// The network that has this address, where that is not the kernel's. Costs a look at one word of the process where no runtime has one.
#[inline]
pub(crate) fn network_of(addr: IpAddr) -> Option<Arc<dyn Network>> {
    // Relaxed: the thread that asks has been told of the runtime, and with it of this word.
    if !NETWORKS.load(Ordering::Relaxed) {
        return None;
    }
    current::shared().ok()?.network.clone().filter(|network| network.has(addr))
}

/// Whether a socket at this address, made on this thread, is on the [`Network`] of its runtime and not the kernel's. Such a socket has no
/// descriptor, so another process cannot take it over.
pub fn is_on_network(addr: IpAddr) -> bool {
    network_of(addr).is_some()
}

/// Notes that a runtime of this process has a network.
pub(crate) fn note_network() {
    NETWORKS.store(true, Ordering::Relaxed);
}

/// Whether any runtime of this process has, or had, a network.
static NETWORKS: AtomicBool = AtomicBool::new(false);

/// The environment of the runtime of this thread, where that is not the kernel. Costs a look at a thread-local word where it is.
#[inline]
pub(crate) fn current() -> Option<Arc<dyn Environment>> {
    if !dapple_sched::environment::is_simulated() {
        return None;
    }
    current::shared().ok()?.environment.clone()
}

/// The disk of the simulated machine that runs this, for functions of the blocking pool that use files without [`fs`](crate::fs). `None` where
/// files are the kernel's.
pub fn disk() -> Option<Arc<dyn Disk>> {
    current()?.disk()
}

/// # Panics
/// Checks that there is no environment, because `what` is the kernel's.
pub(crate) fn refuse(what: &str) {
    if dapple_sched::environment::is_simulated() {
        panic!("{}", refusal(what));
    }
}

fn refusal(what: &str) -> String {
    format!(
        "{what} is the kernel's, and cannot be simulated; where `dapple_sched::environment::is_simulated()` says so, the program needs \
         another way: a TCP connection in place of a Unix socket or a pipe, a file that is opened by its path in place of a descriptor"
    )
}

/// # Panics
/// Always: `what` was asked of the disk of a simulated machine.
#[cold]
pub(crate) fn refuse_on_disk(what: &str) -> ! {
    panic!("{}", refusal(what))
}
