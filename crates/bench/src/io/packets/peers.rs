//! How each peer runs client and server.

use super::{End, Run, Transport};
use crate::experiment::Peer;
use anyhow::{Context, Result, bail};
use std::any::Any;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Starts both sides; they run for as long as the result lives.
pub(super) fn start(peer: Peer, run: &Arc<Run>) -> Result<Box<dyn Any>> {
    match (peer, run.case.transport) {
        (Peer::Dapple, Transport::Tcp) => dapple(run, tcp_pair()?, dapple::net::TcpStream::from_std),
        (Peer::Dapple, Transport::Unix) => dapple(run, UnixStream::pair()?, dapple::net::UnixStream::from_std),
        (Peer::Dapple, Transport::Pipe) => dapple(run, pipes()?, |(from, to)| {
            Ok(Both(dapple::pipe::Receiver::from_fd(from)?, dapple::pipe::Sender::from_fd(to)?))
        }),
        (Peer::Tokio, Transport::Tcp) => tokio(run, tcp_pair()?, tokio::net::TcpStream::from_std),
        (Peer::Tokio, Transport::Unix) => tokio(run, UnixStream::pair()?, tokio::net::UnixStream::from_std),
        (Peer::Tokio, Transport::Pipe) => tokio(run, pipes()?, |(from, to)| {
            use tokio::net::unix::pipe::{Receiver, Sender};
            Ok(Both(Receiver::from_owned_fd(from)?, Sender::from_owned_fd(to)?))
        }),
        (Peer::Pthreads, Transport::Tcp) => pthreads(run, tcp_pair()?),
        (Peer::Pthreads, Transport::Unix) => pthreads(run, UnixStream::pair()?),
        (Peer::Pthreads, Transport::Pipe) => {
            let [client, server] = pipes()?.into();
            pthreads(run, (Both::blocking(client), Both::blocking(server)))
        }
        (other, _) => bail!("{other:?} is not run here"),
    }
}

fn tcp_pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on the loopback address")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok((client, server))
}

/// The descriptors that a side reads from and writes to.
type PipeEnds = (OwnedFd, OwnedFd);

/// The ends of the client and of the server.
fn pipes() -> Result<(PipeEnds, PipeEnds)> {
    let ((to_client, from_server), (to_server, from_client)) = (std::io::pipe()?, std::io::pipe()?);
    Ok(((to_client.into(), from_client.into()), (to_server.into(), from_server.into())))
}

/// Two halves as one end.
struct Both<R, W>(R, W);

impl Both<File, File> {
    fn blocking((from, to): PipeEnds) -> Both<File, File> {
        Both(from.into(), to.into())
    }
}

/// Sockets of `std` of either kind, and pipes.
trait Socket: Sized {
    fn nonblocking(self) -> io::Result<Self>;
}

impl Socket for TcpStream {
    fn nonblocking(self) -> io::Result<Self> {
        self.set_nonblocking(true).map(|()| self)
    }
}

impl Socket for UnixStream {
    fn nonblocking(self) -> io::Result<Self> {
        self.set_nonblocking(true).map(|()| self)
    }
}

impl Socket for PipeEnds {
    fn nonblocking(self) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&self.0, true)?;
        rustix::io::ioctl_fionbio(&self.1, true)?;
        Ok(self)
    }
}

macro_rules! dapple_end {
    ($stream:ty) => {
        impl End for $stream {
            async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
                <$stream>::write_all(self, bytes).await
            }

            async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
                <$stream>::read(self, buf).await
            }
        }
    };
}

dapple_end!(dapple::net::TcpStream);
dapple_end!(dapple::net::UnixStream);

impl End for Both<dapple::pipe::Receiver, dapple::pipe::Sender> {
    async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        self.1.write_all(bytes).await
    }

    async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).await
    }
}

fn dapple<S: Socket, E: End>(
    run: &Arc<Run>,
    (client, server): (S, S),
    convert: fn(S) -> io::Result<E>,
) -> Result<Box<dyn Any>> {
    let runtime = dapple::builder().workers(run.case.workers).build().context("cannot start Dapple's workers")?;
    let entered = runtime.enter();
    let (client, server) = (convert(client.nonblocking()?)?, convert(server.nonblocking()?)?);
    drop(entered);
    drop(runtime.spawn(run.clone().serve(server)));
    if run.case.in_flight == 1 {
        drop(runtime.spawn(run.clone().ping(client)));
    } else {
        let client = Arc::new(client);
        drop(runtime.spawn(run.clone().receive(client.clone())));
        drop(runtime.spawn(run.clone().send(client)));
    }
    Ok(Box::new(runtime))
}

/// By readiness, because tokio's traits for reading and writing need the stream for themselves. If
/// an end has two halves, the fields name them.
macro_rules! tokio_end {
    ($stream:ty $(, $from:tt, $to:tt)?) => {
        impl End for $stream {
            async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
                while !bytes.is_empty() {
                    match self$(.$to)?.try_write(bytes) {
                        Ok(count) => bytes = &bytes[count..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => self$(.$to)?.writable().await?,
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }

            async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
                loop {
                    match self$(.$from)?.try_read(buf) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => self$(.$from)?.readable().await?,
                        done => return done,
                    }
                }
            }
        }
    };
}

tokio_end!(tokio::net::TcpStream);
tokio_end!(tokio::net::UnixStream);
tokio_end!(Both<tokio::net::unix::pipe::Receiver, tokio::net::unix::pipe::Sender>, 0, 1);

fn tokio<S: Socket, E: End>(
    run: &Arc<Run>,
    (client, server): (S, S),
    convert: fn(S) -> io::Result<E>,
) -> Result<Box<dyn Any>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(run.case.workers).enable_all().build()?;
    let entered = runtime.enter();
    let (client, server) = (convert(client.nonblocking()?)?, convert(server.nonblocking()?)?);
    drop(entered);
    runtime.spawn(run.clone().serve(server));
    if run.case.in_flight == 1 {
        runtime.spawn(run.clone().ping(client));
    } else {
        let client = Arc::new(client);
        runtime.spawn(run.clone().receive(client.clone()));
        runtime.spawn(run.clone().send(client));
    }
    Ok(Box::new(runtime))
}

macro_rules! blocking_end {
    ($stream:ty $(, $from:tt, $to:tt)?) => {
        impl End for $stream {
            async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
                let mut stream = &(*self)$(.$to)?;
                Write::write_all(&mut stream, bytes)
            }

            async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
                let mut stream = &(*self)$(.$from)?;
                Read::read(&mut stream, buf)
            }
        }
    };
}

blocking_end!(TcpStream);
blocking_end!(UnixStream);
blocking_end!(Both<File, File>, 0, 1);

/// Blocking calls, in kernel threads.
fn pthreads<E: End>(run: &Arc<Run>, (client, server): (E, E)) -> Result<Box<dyn Any>> {
    let thread = std::thread::Builder::new;
    let serving = run.clone().serve(server);
    thread().spawn(|| smol::block_on(serving))?;
    if run.case.in_flight == 1 {
        let pinging = run.clone().ping(client);
        thread().spawn(|| smol::block_on(pinging))?;
    } else {
        let client = Arc::new(client);
        let (receiving, sending) = (run.clone().receive(client.clone()), run.clone().send(client));
        thread().spawn(|| smol::block_on(receiving))?;
        thread().spawn(|| smol::block_on(sending))?;
    }
    Ok(Box::new(()))
}
