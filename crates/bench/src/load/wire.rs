//! A connection, and the exchange of a request and its answer.

use super::body::Body;
use super::problem::Problem;
use super::response::{Progress, Reader};
use dapple::net::TcpStream;
use dapple::tls::{TlsConnector, TlsStream};
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The target and the source addresses of connections.
pub(super) struct Route {
    pub(super) to: SocketAddr,
    /// The number of source addresses on the loopback network, used in turn; 0 lets the kernel
    /// choose.
    pub(super) sources: u32,
    /// The TLS connector; `None` for plain connections.
    pub(super) tls: Option<TlsConnector>,
}

impl Route {
    /// Makes the connection of that number, with a TLS handshake if there is a connector.
    pub(super) async fn open(&self, number: u64, limit: Duration) -> Result<Wire, Problem> {
        let connecting = dapple::time::timeout(limit, self.connect(number)).await;
        let stream = connecting.map_err(|_| Problem::Connect(io::ErrorKind::TimedOut.into()))?;
        let stream = stream.map_err(Problem::Connect)?;
        let transport = match &self.tls {
            None => Transport::Plain(stream),
            Some(tls) => {
                let made = tls.connect(&self.to.ip().to_string(), stream, limit).await;
                Transport::Tls(Box::new(made.map_err(|error| Problem::Tls(error.into()))?))
            }
        };
        Ok(Wire { transport, reader: Reader::default() })
    }

    /// Connects, without a handshake.
    pub(super) async fn connect(&self, number: u64) -> io::Result<TcpStream> {
        let IpAddr::V4(to) = self.to.ip() else { return TcpStream::connect(self.to).await };
        if self.sources == 0 || !to.is_loopback() {
            return TcpStream::connect(self.to).await;
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
        socket.bind(&SocketAddr::from((source(number % u64::from(self.sources)), 0)).into())?;
        match socket.connect(&self.to.into()) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        let stream = TcpStream::from_std(socket.into())?;
        stream.writable().await?;
        // If the connection was refused, this returns the reason.
        match socket2::SockRef::from(&stream).take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }
}

/// An address of the loopback network other than its first, which other programs use.
fn source(number: u64) -> Ipv4Addr {
    Ipv4Addr::new(127, 1, (number / HOSTS) as u8, (number % HOSTS) as u8 + 1)
}

/// The addresses for each value of the third number.
const HOSTS: u64 = 254;

/// One connection.
pub(super) struct Wire {
    transport: Transport,
    reader: Reader,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Wire {
    /// Sends a request and reads its answer; calls `received` for parts before it is complete.
    /// `buf` is for TLS; plain bytes go to a buffer of the thread: with thousands of connections,
    /// separate buffers would evict each other from the processor's cache.
    pub(super) async fn exchange(
        &mut self,
        request: &[u8],
        body: Option<&Body>,
        buf: &mut Vec<u8>,
        received: impl Fn(u64),
    ) -> Result<Progress, Problem> {
        let reader = &mut self.reader;
        match &self.transport {
            Transport::Plain(stream) => plain(stream, reader, request, body, received).await,
            Transport::Tls(stream) => encrypted(stream, reader, request, body, buf, received).await,
        }
    }

    /// Bytes of the body that were not reported before it was complete.
    pub(super) fn rest(&mut self) -> u64 {
        self.reader.taken()
    }
}

async fn plain(
    stream: &TcpStream,
    reader: &mut Reader,
    request: &[u8],
    body: Option<&Body>,
    received: impl Fn(u64),
) -> Result<Progress, Problem> {
    stream.write_all(request).await.map_err(Problem::Broken)?;
    loop {
        stream.readable().await.map_err(Problem::Broken)?;
        let progress = BUF.with_borrow_mut(|buf| match stream.try_read(buf) {
            Ok(0) => Err(Problem::Ended),
            Ok(count) => reader.feed(&buf[..count], body),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::Partial),
            Err(error) => Err(Problem::Broken(error)),
        })?;
        if progress != Progress::Partial {
            return Ok(progress);
        }
        received(reader.taken());
    }
}

async fn encrypted(
    stream: &TlsStream<TcpStream>,
    reader: &mut Reader,
    request: &[u8],
    body: Option<&Body>,
    buf: &mut Vec<u8>,
    received: impl Fn(u64),
) -> Result<Progress, Problem> {
    buf.resize(TLS_BUF_LEN, 0);
    stream.write_all(request).await.map_err(Problem::Broken)?;
    loop {
        let count = stream.read(buf).await.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Problem::Ended,
            _ => Problem::Broken(error),
        })?;
        if count == 0 {
            return Err(Problem::Ended);
        }
        let progress = reader.feed(&buf[..count], body)?;
        if progress != Progress::Partial {
            return Ok(progress);
        }
        received(reader.taken());
    }
}

thread_local! {
    static BUF: RefCell<Vec<u8>> = RefCell::new(vec![0; BUF_LEN]);
}

/// The most bytes of one read.
const BUF_LEN: usize = 128 << 10;

/// Four records of TLS.
const TLS_BUF_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_differ() {
        let all: std::collections::BTreeSet<Ipv4Addr> = (0..10_000).map(source).collect();
        assert_eq!(all.len(), 10_000);
        assert!(all.iter().all(|address| address.is_loopback() && address.octets()[3] != 0));
    }
}
