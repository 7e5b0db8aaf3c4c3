//! Sockets of the kernel or of another network, by the same calls.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::driver::Descriptor;
use crate::environment::{DatagramSocket, ListenSocket, StreamSocket, Watched};
use crate::stream::Transfer;

/// A connection.
pub(crate) enum Stream {
    Kernel(std::net::TcpStream),
    Network(Arc<dyn StreamSocket>),
}

/// A listening socket.
pub(crate) enum Listening {
    Kernel(std::net::TcpListener),
    Network(Arc<dyn ListenSocket>),
}

/// A socket for datagrams.
pub(crate) enum Datagrams {
    Kernel(std::net::UdpSocket),
    Network(Arc<dyn DatagramSocket>),
}

/// An accepted connection, before it has a place in the driver.
pub(super) enum Accepted {
    Kernel(OwnedFd),
    Network(Arc<dyn StreamSocket>),
}

impl Stream {
    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Stream::Kernel(stream) => stream.shutdown(how),
            Stream::Network(socket) => socket.shutdown(how),
        }
    }

    pub(super) fn abort(&self) {
        match self {
            // With a linger time of zero, closing resets the connection. If the kernel refuses, it
            // is closed all the same.
            Stream::Kernel(stream) => _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)),
            Stream::Network(socket) => socket.abort(),
        }
    }

    pub(super) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Kernel(stream) => Ok(rustix::net::recv(stream, &mut *buf, rustix::net::RecvFlags::PEEK)?.0),
            Stream::Network(socket) => {
                let mut len = 0;
                socket.receive(&mut |bytes| {
                    len += copy(bytes, &mut buf[len..]);
                    0
                })?;
                Ok(len)
            }
        }
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Kernel(stream) => stream.peer_addr(),
            Stream::Network(socket) => socket.peer_addr(),
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Stream::Kernel(stream) => stream.local_addr(),
            Stream::Network(socket) => socket.local_addr(),
        }
    }

    /// Other networks send everything at once.
    pub(super) fn nodelay(&self) -> io::Result<bool> {
        match self {
            Stream::Kernel(stream) => stream.nodelay(),
            Stream::Network(_) => Ok(true),
        }
    }

    pub(super) fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            Stream::Kernel(stream) => stream.set_nodelay(nodelay),
            Stream::Network(_) => Ok(()),
        }
    }
}

impl Listening {
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Listening::Kernel(listener) => listener.local_addr(),
            Listening::Network(socket) => socket.local_addr(),
        }
    }
}

impl Datagrams {
    pub(super) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        match self {
            Datagrams::Kernel(socket) => socket.connect(to),
            Datagrams::Network(socket) => socket.connect(to),
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Datagrams::Kernel(socket) => socket.local_addr(),
            Datagrams::Network(socket) => socket.local_addr(),
        }
    }

    pub(super) fn send_to(&self, buf: &[u8], to: SocketAddr) -> io::Result<usize> {
        match self {
            Datagrams::Kernel(socket) => socket.send_to(buf, to),
            Datagrams::Network(socket) => socket.send_to(buf, to),
        }
    }

    pub(super) fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Datagrams::Kernel(socket) => socket.recv_from(buf),
            Datagrams::Network(socket) => {
                let (bytes, from) = socket.receive_from(buf.len())?;
                Ok((copy(&bytes, buf), from))
            }
        }
    }

    pub(super) fn send(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Datagrams::Kernel(socket) => socket.send(buf),
            Datagrams::Network(socket) => {
                socket.send_to(buf, socket.connected_to().ok_or(io::ErrorKind::NotConnected)?)
            }
        }
    }

    pub(super) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Datagrams::Kernel(socket) => socket.recv(buf),
            Datagrams::Network(_) => Ok(self.recv_from(buf)?.0),
        }
    }
}

impl Transfer for Stream {
    fn receive(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Kernel(stream) => Ok(rustix::io::read(stream, buf)?),
            Stream::Network(socket) => {
                let mut len = 0;
                socket.receive(&mut |bytes| {
                    let taken = copy(bytes, &mut buf[len..]);
                    len += taken;
                    taken
                })?;
                Ok(len)
            }
        }
    }

    fn receive_uninit(&self, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        match self {
            Stream::Kernel(stream) => Ok(rustix::io::read(stream, buf)?.0.len()),
            Stream::Network(socket) => {
                let mut len = 0;
                socket.receive(&mut |bytes| {
                    let rest = &mut buf[len..];
                    rest.iter_mut().zip(bytes).for_each(|(place, byte)| _ = place.write(*byte));
                    let taken = rest.len().min(bytes.len());
                    len += taken;
                    taken
                })?;
                Ok(len)
            }
        }
    }

    fn send(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Kernel(stream) => crate::stream::send(stream, buf),
            Stream::Network(socket) => socket.send(buf),
        }
    }

    fn send_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Kernel(stream) => crate::stream::send_vectored(stream, bufs),
            // In one piece, as the kernel takes it.
            Stream::Network(socket) => {
                let mut bytes = Vec::with_capacity(bufs.iter().map(|buf| buf.len()).sum());
                bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
                socket.send(&bytes)
            }
        }
    }
}

macro_rules! implement_descriptor {
    ($type:ident) => {
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                match self {
                    $type::Kernel(socket) => socket.as_fd(),
                    $type::Network(_) => {
                        panic!("a socket of a network that is not the kernel's has no file descriptor")
                    }
                }
            }
        }

        impl Descriptor for $type {
            #[inline]
            fn beyond_kernel(&self) -> Option<&dyn Watched> {
                match self {
                    $type::Kernel(_) => None,
                    $type::Network(socket) => Some(&**socket),
                }
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $type::Kernel(socket) => socket.fmt(f),
                    $type::Network(socket) => f.debug_tuple("Network").field(&socket.local_addr()).finish(),
                }
            }
        }
    };
}

implement_descriptor!(Stream);
implement_descriptor!(Listening);
implement_descriptor!(Datagrams);

/// Copies what fits.
fn copy(bytes: &[u8], buf: &mut [u8]) -> usize {
    let len = bytes.len().min(buf.len());
    buf[..len].copy_from_slice(&bytes[..len]);
    len
}
