//! UDP.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use rustix::net::sockopt;
use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};

use super::address::{Addresses, Target, ToAddresses, ToSocketAddrs, no_address, try_each};
use super::connect::resolve;
use super::socket::Datagrams;
use crate::driver::{Direction, Source, Step};
use crate::environment;
use crate::event::{Registration, watch};

/// A UDP socket.
///
/// ```
/// use dapple_io::net::UdpSocket;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
///     a.send_to(b"hello", b.local_addr()?).await?;
///     let mut buf = [0; 16];
///     let (len, from) = b.recv_from(&mut buf).await?;
///     assert_eq!((&buf[..len], from), (&b"hello"[..], a.local_addr()?));
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket {
    source: Source<Datagrams>,
}

impl UdpSocket {
    /// Binds to the first of the addresses that allows it. Never blocks: names are not looked up,
    /// see [`ToSocketAddrs`].
    ///
    /// # Errors
    ///
    /// Those of the kernel for the last address tried; there is no runtime here.
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        try_each(addr, |addr| match environment::network_of(addr.ip()) {
            Some(network) => Self::of(Datagrams::Network(network.bind_datagrams(addr)?)),
            None => Self::from_std(std::net::UdpSocket::bind(addr)?),
        })
    }

    /// Binds to a port of a group of hosts, such as `239.1.2.3:5000` or `[ff15::1]:5000`, and becomes a member: for best-effort broadcast.
    /// A datagram from a member to the group goes to all members that the network reaches, itself and others of this host included. The network
    /// may lose, repeat and reorder datagrams for each member.
    ///
    /// `interface` is the number of the interface that the group is on, as `ip link` shows it; 0 leaves the choice to the kernel, which
    /// asks its routes. A network in user space has one interface. Several sockets of one host may be members at one port of the kernel's; in
    /// user space one can. Never blocks.
    ///
    /// ```
    /// use dapple_io::net::UdpSocket;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// # let loopback = 1;
    /// runtime.block_on(async {
    ///     let one = UdpSocket::bind_group("239.129.7.1:0".parse().unwrap(), loopback)?;
    ///     let group = one.local_addr()?;
    ///     let other = UdpSocket::bind_group(group, loopback)?;
    ///     one.send_to(b"to all", group).await?;
    ///     let mut buf = [0; 16];
    ///     for member in [&one, &other] {
    ///         assert_eq!(member.recv_from(&mut buf).await?.0, 6);
    ///     }
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an address that is not a group's; those of the kernel, such as the
    /// one for an interface that is not there; there is no runtime here.
    pub fn bind_group(group: SocketAddr, interface: u32) -> io::Result<Self> {
        if !group.ip().is_multicast() {
            let why = format!("{} is not the address of a group of hosts", group.ip());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        match environment::network_of(group.ip()) {
            Some(network) => Self::of(Datagrams::Network(network.bind_group(group)?)),
            None => Self::from_std(kernel_member(group, interface)?),
        }
    }

    /// Takes a socket over from the standard library.
    ///
    /// # Errors
    ///
    /// There is no runtime here, or the kernel refuses to watch the socket.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::of(Datagrams::Kernel(socket))
    }

    fn of(socket: Datagrams) -> io::Result<Self> {
        Ok(UdpSocket { source: Source::new(socket)? })
    }

    /// Sets the one peer of [`send`](Self::send) and [`recv`](Self::recv); datagrams of others are
    /// dropped. A name is looked up, and the first address with a route is used.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it resolves, it has changed nothing.
    ///
    /// # Errors
    ///
    /// Those of the kernel for the last address tried, and of [`resolve`](super::resolve).
    pub async fn connect(&self, to: impl ToAddresses) -> io::Result<()> {
        let addrs = all_addresses(to.to_addresses()?).await?;
        try_each(&addrs[..], |addr| self.source.descriptor().connect(addr))
    }

    /// Sends one datagram to an address, and returns its length. A name is looked up at each call,
    /// and its first address of this socket's family is used.
    ///
    /// # Cancel safety
    ///
    /// Safe: dropped before it resolves, it has sent nothing.
    ///
    /// # Errors
    ///
    /// Those of the kernel, such as a datagram that is too long, and of
    /// [`resolve`](super::resolve).
    pub async fn send_to(&self, buf: &[u8], to: impl ToAddresses) -> io::Result<usize> {
        let addr = match to.to_addresses()? {
            Addresses(Target::One(addr)) => addr,
            several => {
                let is_ipv4 = self.local_addr()?.is_ipv4();
                let addrs = all_addresses(several).await?;
                let fits = addrs.iter().find(|addr| addr.is_ipv4() == is_ipv4);
                *fits.or(addrs.first()).ok_or_else(no_address)?
            }
        };
        self.write(|socket| socket.send_to(buf, addr)).await
    }

    /// Receives one datagram and returns its sender. The part that does not fit into the buffer is
    /// lost. Cancel safe: dropped before it resolves, it has taken nothing.
    ///
    /// # Errors
    ///
    /// Those of the kernel, including those for datagrams sent earlier.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.read(|socket| socket.recv_from(buf)).await
    }

    /// Sends one datagram to the address given to [`connect`](Self::connect). Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`send_to`](Self::send_to), and `ConnectionRefused` if no socket received an earlier
    /// datagram.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.write(|socket| socket.send(buf)).await
    }

    /// Receives one datagram from the address given to [`connect`](Self::connect). Cancel safe.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from), and `ConnectionRefused` if no socket received an earlier
    /// datagram.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.read(|socket| socket.recv(buf)).await
    }

    /// Sends one datagram now.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; otherwise as [`send_to`](Self::send_to).
    pub fn try_send_to(&self, buf: &[u8], addr: SocketAddr) -> io::Result<usize> {
        self.source.try_io(Direction::Write, |socket| socket.send_to(buf, addr).map(Step::More))
    }

    /// Receives a datagram that has arrived.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise as [`recv_from`](Self::recv_from).
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.source.try_io(Direction::Read, |socket| socket.recv_from(buf).map(Step::More))
    }

    /// Calls the callback when there is a datagram, and again after each run while there are more.
    /// Receive with [`try_recv_from`](Self::try_recv_from) in it, which detects that none is left.
    /// Ends with this socket, too.
    pub fn on_readable(&self, callback: dapple_sched::Callback<()>) -> Registration {
        watch(&self.source, Direction::Read, callback)
    }

    /// Receives by your own call, such as `recvmmsg`, as soon as that does not block; your call
    /// returns `WouldBlock` if there is nothing. For use in `poll`: of several tasks only the last
    /// is woken.
    ///
    /// # Errors
    ///
    /// Those of `receive`, except `WouldBlock` and `Interrupted`; the runtime of this socket has
    /// shut down.
    pub fn poll_recv_by<R>(
        &self,
        cx: &mut Context<'_>,
        mut receive: impl FnMut(BorrowedFd<'_>) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.source.poll_io(cx, Direction::Read, None, |socket| receive(socket.as_fd()).map(Step::More))
    }

    /// Sends now, by your own call, such as `sendmmsg`, which returns `WouldBlock` if there is no
    /// room; [`writable`](Self::writable) waits for room.
    ///
    /// # Errors
    ///
    /// Those of `send`; `WouldBlock` without a call if there has been no room since the last one;
    /// the runtime of this socket has shut down.
    pub fn try_send_by<R>(&self, mut send: impl FnMut(BorrowedFd<'_>) -> io::Result<R>) -> io::Result<R> {
        self.source.try_io(Direction::Write, |socket| send(socket.as_fd()).map(Step::More))
    }

    /// Waits until there may be room to send. Any number may wait. Cancel safe.
    ///
    /// # Errors
    ///
    /// The runtime of this socket has shut down.
    pub async fn writable(&self) -> io::Result<()> {
        self.source.ready(Direction::Write).await
    }

    /// The local address, with the port that the kernel chose.
    ///
    /// # Errors
    ///
    /// Those of the kernel; none are known.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.descriptor().local_addr()
    }

    /// As [`recv_from`](Self::recv_from), for use in `poll`; of several tasks only the last is
    /// woken.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    pub fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.source.poll_io(cx, Direction::Read, None, |socket| socket.recv_from(buf).map(Step::More))
    }

    /// As [`send_to`](Self::send_to), for use in `poll`; of several tasks only the last is woken.
    #[cfg(feature = "dns")]
    pub(crate) fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], to: SocketAddr) -> Poll<io::Result<usize>> {
        self.source.poll_io(cx, Direction::Write, None, |socket| socket.send_to(buf, to).map(Step::More))
    }

    async fn read<R>(&self, mut op: impl FnMut(&Datagrams) -> io::Result<R> + Unpin) -> io::Result<R> {
        let op = |socket: &Datagrams| op(socket).map(Step::More);
        self.source.io(Direction::Read, op).await
    }

    async fn write<R>(&self, mut op: impl FnMut(&Datagrams) -> io::Result<R> + Unpin) -> io::Result<R> {
        let op = |socket: &Datagrams| op(socket).map(Step::More);
        self.source.io(Direction::Write, op).await
    }
}

/// A socket of the kernel's that is a member of a group.
fn kernel_member(group: SocketAddr, interface: u32) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM.nonblocking(), None)?;
    // Others on this host may be members, too.
    socket.set_reuse_address(true)?;
    // Bound to the group, it gets nothing that is sent to other addresses with this port.
    socket.bind(&group.into())?;
    match group.ip() {
        IpAddr::V4(ip) => {
            let on = InterfaceIndexOrAddress::Index(interface);
            socket.join_multicast_v4_n(&ip, &on)?;
            if interface > 0 {
                let any = Ipv4Addr::UNSPECIFIED;
                sockopt::set_ip_multicast_if_with_ifindex(&socket, &any, &any, interface)?;
            }
        }
        IpAddr::V6(ip) => {
            socket.join_multicast_v6(&ip, interface)?;
            socket.set_multicast_if_v6(interface)?;
        }
    }
    Ok(socket.into())
}

async fn all_addresses(addresses: Addresses) -> io::Result<Vec<SocketAddr>> {
    match addresses.0 {
        Target::One(addr) => Ok(vec![addr]),
        Target::Several(addrs) => Ok(addrs),
        Target::Name { host, port } => Ok(resolve(&host).await?.into_iter().map(|ip| (ip, port).into()).collect()),
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
