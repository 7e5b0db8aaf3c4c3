//! Listening sockets: inherited from the previous process or the service manager, or made here.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as KernelListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};

use dapple_io::environment;
use dapple_io::net::TcpListener;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use tracing::warn;

use super::error::ListenError;
use super::handover::Predecessor;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub host: String,
    pub port: u16,
    /// Whether other processes may listen on the same port at the same time, each taking a share of
    /// the connections.
    pub reuse_port: bool,
    /// Whether clients here are redirected to another port.
    pub redirects: bool,
    /// The option that gave the address, as users write it.
    pub option: &'static str,
}

impl Wanted {
    fn label(&self) -> String {
        let prefix = if self.redirects { REDIRECT } else { "" };
        format!("{prefix}{}:{}", self.host, self.port)
    }

    /// Resolves the host to at least one address.
    ///
    /// # Errors
    ///
    /// The host is unknown.
    pub fn addrs(&self) -> Result<Vec<SocketAddr>, ListenError> {
        let addrs = (self.host.as_str(), self.port).to_socket_addrs().map(Vec::from_iter);
        let addrs =
            addrs.and_then(|addrs| if addrs.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(addrs) });
        addrs.map_err(|error| ListenError::HostUnknown(self.host.clone(), error))
    }
}

/// A listening socket.
#[derive(Debug)]
pub struct Listening {
    /// The name by which the next process finds it again: `HOST:PORT`, or the service manager's
    /// name after a colon.
    pub label: String,
    socket: ListeningSocket,
}

/// The socket of a [`Listening`].
#[derive(Debug)]
enum ListeningSocket {
    /// The kernel's, which another process can take over.
    Kernel(KernelListener),
    /// One of the runtime's own network, which ends with this process.
    Network(TcpListener),
}

impl Listening {
    /// Whether clients here are redirected to another port, by configuration or by the name in a
    /// socket unit.
    pub fn is_redirect(&self) -> bool {
        self.label == ":redirect" || self.label.starts_with(REDIRECT)
    }

    /// Whether the service manager has the socket too.
    pub fn is_shared(&self) -> bool {
        self.label.starts_with(':')
    }

    /// A socket of the kernel.
    pub fn kernel(label: String, socket: KernelListener) -> Listening {
        Listening { label, socket: ListeningSocket::Kernel(socket) }
    }

    /// The address, with the port that the kernel chose.
    pub fn addr(&self) -> Option<SocketAddr> {
        match &self.socket {
            ListeningSocket::Kernel(socket) => socket.local_addr().ok(),
            ListeningSocket::Network(socket) => socket.local_addr().ok(),
        }
    }

    /// A duplicate, for a process that takes over; `None` for a socket that ends with this process.
    ///
    /// # Errors
    ///
    /// There is no descriptor left.
    pub fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        match &self.socket {
            ListeningSocket::Kernel(socket) => Ok(Some(socket.try_clone()?.into())),
            ListeningSocket::Network(_) => Ok(None),
        }
    }

    /// Accepts on this socket.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or the kernel refuses to watch the socket.
    pub fn into_listener(self) -> io::Result<TcpListener> {
        match self.socket {
            ListeningSocket::Kernel(socket) => TcpListener::from_std(socket),
            ListeningSocket::Network(socket) => Ok(socket),
        }
    }
}

/// Listens on all of `all_wanted`, and on the sockets of the service manager; `default` is needed
/// only if that passed on none.
///
/// Uses the previous process's sockets that are still wanted, and closes the others.
///
/// # Errors
///
/// The first address on which listening failed.
pub fn listen(
    all_wanted: &[Wanted],
    default: &Wanted,
    predecessor: Option<&mut Predecessor>,
) -> Result<Vec<Listening>, ListenError> {
    let (mut taken, mut listening) = (Vec::new(), Vec::new());
    if let Some(predecessor) = predecessor {
        taken = predecessor.take_sockets().map_err(ListenError::Predecessor)?;
    }
    for (index, passed) in dapple_io::net::passed_on().map_err(ListenError::PassedOn)?.into_iter().enumerate() {
        let label = format!(":{}", if passed.name.is_empty() { index.to_string() } else { passed.name });
        listening.push(passed_on(label, passed.fd)?);
    }
    // Sockets that the service manager passed to the first process; each later process inherits
    // them.
    while let Some(at) = taken.iter().position(Listening::is_shared) {
        listening.push(taken.swap_remove(at));
    }
    let is_served = !listening.is_empty() || all_wanted.iter().any(|wanted| !wanted.redirects);
    let default = (!is_served).then_some(default);
    for wanted in all_wanted.iter().chain(default) {
        let label = wanted.label();
        match taken.iter().position(|taken| taken.label == label) {
            Some(at) => listening.push(taken.swap_remove(at)),
            None => listening.push(Listening { label, socket: bind_first(wanted, has_twin(wanted, all_wanted))? }),
        }
    }
    Ok(listening)
}

/// A socket of the service manager, if it is a listening one.
fn passed_on(label: String, fd: OwnedFd) -> Result<Listening, ListenError> {
    let listens = sockopt::socket_acceptconn(fd.as_fd()).unwrap_or(false);
    let domain = sockopt::socket_domain(fd.as_fd()).ok();
    if !listens || !matches!(domain, Some(rustix::net::AddressFamily::INET | rustix::net::AddressFamily::INET6)) {
        return Err(ListenError::PassedOnOther(format!("socket {label:?}")));
    }
    Ok(Listening::kernel(label, fd.into()))
}

/// Whether the same IPv4 port is wanted too, so that an IPv6 socket has to leave it free.
fn has_twin(wanted: &Wanted, all: &[Wanted]) -> bool {
    all.iter().any(|other| other.port == wanted.port && other.host.parse::<Ipv4Addr>().is_ok())
}

/// Listens on the first address of the host that works.
fn bind_first(wanted: &Wanted, only_v6: bool) -> Result<ListeningSocket, ListenError> {
    let mut problem = None;
    for addr in wanted.addrs()? {
        match bind(addr, wanted.reuse_port, only_v6) {
            Ok(listener) => return Ok(listener),
            Err(error) => problem = Some(ListenError::at(addr, wanted.option, error)),
        }
    }
    Err(problem.expect("there is an address at least"))
}

fn bind(addr: SocketAddr, reuse_port: bool, only_v6: bool) -> io::Result<ListeningSocket> {
    if environment::is_on_network(addr.ip()) {
        return TcpListener::bind(addr).map(ListeningSocket::Network);
    }
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    if addr.is_ipv6() && only_v6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(backlog_max())?;
    Ok(ListeningSocket::Kernel(socket.into()))
}

/// The longest backlog that the system allows: if the backlog is full, the client retries after a
/// second, so its latency is a second.
fn backlog_max() -> i32 {
    let setting = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
    setting.trim().parse().unwrap_or_else(|_| {
        warn!(backlog = BACKLOG, "/proc/sys/net/core/somaxconn cannot be read");
        BACKLOG
    })
}

/// The kernel's default since Linux 5.4.
const BACKLOG: i32 = 4096;

/// The prefix of labels of redirecting sockets.
const REDIRECT: &str = "redirect ";
