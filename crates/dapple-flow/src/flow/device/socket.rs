//! TCP and Unix sockets.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::name::{bad, check_path, host_and_port};
use super::stream::{ReadEnd, StreamReader, StreamWriter, WriteEnd, split};
use super::{Acceptor, Device, named};
use crate::flow::{Sink, Source};
use dapple_io::net::{TcpListener, TcpStream, UnixListener, UnixStream, resolve, tcp_connect};

/// TCP. Names are `HOST:PORT`.
#[derive(Debug)]
pub enum Tcp {}

/// Unix sockets. Names are paths.
#[derive(Debug)]
pub enum Unix {}

/// Accepts TCP or Unix connections.
pub struct SocketAcceptor<L, S> {
    listener: Arc<L>,
    /// The accept in progress; kept, so that a dropped future loses no connection.
    accepting: Option<Accepting<S>>,
    name: fn(&L) -> io::Result<String>,
    accept: fn(Arc<L>) -> Accepting<S>,
}

type Accepting<S> = Pin<Box<dyn Future<Output = io::Result<(S, String)>> + Send>>;

impl Tcp {
    /// Both sides of a connection as source and sink.
    pub fn split(stream: TcpStream) -> (Source<Tcp>, Sink<Tcp>) {
        let (reader, writer) = split(stream);
        (Source::new(reader), Sink::new(writer))
    }
}

impl Unix {
    /// Both sides of a connection as source and sink.
    pub fn split(stream: UnixStream) -> (Source<Unix>, Sink<Unix>) {
        let (reader, writer) = split(stream);
        (Source::new(reader), Sink::new(writer))
    }
}

impl Device for Tcp {
    type Reader = StreamReader<TcpStream>;
    type Writer = StreamWriter<TcpStream>;
    type Acceptor = SocketAcceptor<TcpListener, TcpStream>;

    async fn open_reader(name: &str) -> io::Result<Self::Reader> {
        Ok(StreamReader(Arc::new(tcp(name).await?)))
    }

    async fn open_writer(name: &str) -> io::Result<Self::Writer> {
        Ok(StreamWriter(Arc::new(tcp(name).await?)))
    }

    async fn connect(name: &str) -> io::Result<(Self::Reader, Self::Writer)> {
        Ok(split(tcp(name).await?))
    }

    async fn listen(name: &str) -> io::Result<Self::Acceptor> {
        let (host, port) = host_and_port(name).map_err(|why| bad(name, &why))?;
        let ips = resolve(host).await.map_err(|error| named(name, error))?;
        let mut addrs: Vec<SocketAddr> = ips.into_iter().map(|ip| (ip, port).into()).collect();
        // In the same order as `TcpListener::bind` tries the addresses of `localhost`.
        addrs.sort_by_key(SocketAddr::is_ipv6);
        let listener = TcpListener::bind(&addrs[..]).map_err(|error| named(name, error))?;
        Ok(SocketAcceptor {
            listener: Arc::new(listener),
            accepting: None,
            name: |listener| Ok(listener.local_addr()?.to_string()),
            accept: |listener| Box::pin(async move { listener.accept().await.map(|(s, peer)| (s, peer.to_string())) }),
        })
    }
}

impl Device for Unix {
    type Reader = StreamReader<UnixStream>;
    type Writer = StreamWriter<UnixStream>;
    type Acceptor = SocketAcceptor<UnixListener, UnixStream>;

    async fn open_reader(name: &str) -> io::Result<Self::Reader> {
        Ok(StreamReader(Arc::new(unix(name).await?)))
    }

    async fn open_writer(name: &str) -> io::Result<Self::Writer> {
        Ok(StreamWriter(Arc::new(unix(name).await?)))
    }

    async fn connect(name: &str) -> io::Result<(Self::Reader, Self::Writer)> {
        Ok(split(unix(name).await?))
    }

    async fn listen(name: &str) -> io::Result<Self::Acceptor> {
        check_path(name).map_err(|why| bad(name, &why))?;
        let listener = UnixListener::bind(name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                let advice = "the path exists: remove it if no process listens there";
                io::Error::new(error.kind(), format!("`{name}`: {advice} ({error})"))
            }
            _ => named(name, error),
        })?;
        Ok(SocketAcceptor {
            listener: Arc::new(listener),
            accepting: None,
            name: |listener| {
                let addr = rustix::net::getsockname(listener)?;
                let addr = rustix::net::SocketAddrUnix::try_from(addr)?;
                Ok(addr.path().map_or_else(String::new, |path| String::from_utf8_lossy(path.to_bytes()).into_owned()))
            },
            accept: |listener| Box::pin(async move { listener.accept().await.map(|stream| (stream, String::new())) }),
        })
    }
}

async fn tcp(name: &str) -> io::Result<TcpStream> {
    let (host, port) = host_and_port(name).map_err(|why| bad(name, &why))?;
    tcp_connect(host, port).await.map_err(|error| named(name, error))
}

async fn unix(name: &str) -> io::Result<UnixStream> {
    check_path(name).map_err(|why| bad(name, &why))?;
    UnixStream::connect(name).await.map_err(|error| named(name, error))
}

impl<L, S> Acceptor for SocketAcceptor<L, S>
where
    L: Send + Sync + 'static,
    S: ReadEnd + WriteEnd,
{
    type Reader = StreamReader<S>;
    type Writer = StreamWriter<S>;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Reader, Self::Writer, String)>> {
        let accepting = self.accepting.get_or_insert_with(|| (self.accept)(self.listener.clone()));
        let accepted = ready!(accepting.as_mut().poll(cx));
        self.accepting = None;
        let (stream, peer) = accepted?;
        let (reader, writer) = split(stream);
        Poll::Ready(Ok((reader, writer, peer)))
    }

    fn local_name(&self) -> io::Result<String> {
        (self.name)(&self.listener)
    }
}

impl<L: std::fmt::Debug, S> std::fmt::Debug for SocketAcceptor<L, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.listener.fmt(f)
    }
}
