//! What connections come from.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use dapple_io::Connection;
use dapple_io::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use hyper::rt::{Read, Write};

/// A socket that accepts connections: of TCP, or a Unix socket. It cannot be implemented elsewhere.
pub trait Listener: sealed::Sealed + Send + Sync + 'static {
    /// What it accepts.
    #[doc(hidden)]
    type Stream: Stream + Connection;

    /// When what is read had come will be asked for.
    #[doc(hidden)]
    fn note_arrivals(&self) {}

    /// The next connection.
    #[doc(hidden)]
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::TcpListener {}
    impl Sealed for super::UnixListener {}
}

/// A connection as hyper reads and writes it.
#[doc(hidden)]
pub trait Stream: Read + Write + Unpin + Send + 'static {
    /// Whether it will be asked how long what is read has waited.
    fn note_arrivals(&self, _is_wanted: bool) {}

    /// Writes the last bytes and ends the writing direction with them, where that can be done in one go; otherwise nothing.
    fn try_finish(&self, _bytes: &[u8]) -> io::Result<usize> {
        Ok(0)
    }

    /// How long ago what was read last came, as far as that is known.
    fn read_waited(&self) -> Duration;
}

/// Who is at the other end. Every request has it among its extensions.
///
/// ```
/// use dapple_serve::Peer;
///
/// fn greet<B>(request: &http::Request<B>) -> String {
///     match request.extensions().get::<Peer>().and_then(Peer::ip) {
///         Some(ip) => format!("hello, {ip}"),
///         None => "hello, whoever you are".to_owned(),
///     }
/// }
/// assert_eq!(greet(&http::Request::new(())), "hello, whoever you are");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Peer {
    /// An address of TCP.
    Tcp(SocketAddr),
    /// A process of this machine, by a Unix socket.
    Unix,
}

impl Peer {
    /// Its address and port, where it has any.
    pub fn addr(&self) -> Option<SocketAddr> {
        match self {
            Peer::Tcp(addr) => Some(*addr),
            Peer::Unix => None,
        }
    }

    /// Its address, where it has one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.addr().map(|addr| addr.ip())
    }

    /// What counts as one client: an address of IPv4, also when it comes in the clothes of IPv6, or a `/64` of IPv6. `None` by a
    /// Unix socket.
    ///
    /// ```
    /// use dapple_serve::Peer;
    ///
    /// let network = |addr: &str| Peer::Tcp(addr.parse().expect("an address")).network();
    /// assert_eq!(network("[::ffff:192.0.2.1]:80"), network("192.0.2.1:81"));
    /// assert_eq!(network("[2001:db8::1]:80"), network("[2001:db8::ffff:2]:80"));
    /// assert_ne!(network("[2001:db8::1]:80"), network("[2001:db8:0:1::1]:80"));
    /// ```
    pub fn network(&self) -> Option<IpAddr> {
        self.ip().map(|ip| match ip.to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            other => other,
        })
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn note_arrivals(&self) {
        // Without it the kernel's coarse clock has to do.
        let _ = TcpListener::note_arrivals(self);
    }

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, addr) = TcpListener::accept(self).await?;
        Ok((stream, Peer::Tcp(addr)))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        Ok((UnixListener::accept(self).await?, Peer::Unix))
    }
}

impl Stream for TcpStream {
    fn note_arrivals(&self, is_wanted: bool) {
        TcpStream::note_arrivals(self, is_wanted);
    }

    fn try_finish(&self, bytes: &[u8]) -> io::Result<usize> {
        TcpStream::try_finish(self, bytes)
    }

    fn read_waited(&self) -> Duration {
        TcpStream::read_waited(self).unwrap_or_default()
    }
}

impl Stream for UnixStream {
    /// The kernel does not say.
    fn read_waited(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(feature = "tls")]
impl<S: Stream + Connection> Stream for dapple_tls::TlsStream<S> {
    fn note_arrivals(&self, is_wanted: bool) {
        self.connection().note_arrivals(is_wanted);
    }

    fn read_waited(&self) -> Duration {
        self.connection().read_waited()
    }
}
