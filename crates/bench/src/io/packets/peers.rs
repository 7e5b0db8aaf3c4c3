//! How each peer runs client and server.

use super::{End, Run, Transport};
use crate::experiment::Peer;
use anyhow::{Context, Result, bail};
use std::any::Any;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Starts both sides; what it yields keeps them running.
pub(super) fn start(peer: Peer, run: &Arc<Run>) -> Result<Box<dyn Any>> {
    match (peer, run.case.transport) {
        (Peer::Dapple, Transport::Tcp) => dapple(run, tcp_pair()?, dapple::net::TcpStream::from_std),
        (Peer::Dapple, Transport::Unix) => dapple(run, UnixStream::pair()?, dapple::net::UnixStream::from_std),
        (Peer::Tokio, Transport::Tcp) => tokio(run, tcp_pair()?, tokio::net::TcpStream::from_std),
        (Peer::Tokio, Transport::Unix) => tokio(run, UnixStream::pair()?, tokio::net::UnixStream::from_std),
        (Peer::Pthreads, Transport::Tcp) => pthreads(run, tcp_pair()?),
        (Peer::Pthreads, Transport::Unix) => pthreads(run, UnixStream::pair()?),
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

/// Sockets of `std` of either kind.
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

/// By readiness, as its traits for reading and writing want the stream for themselves.
macro_rules! tokio_end {
    ($stream:ty) => {
        impl End for $stream {
            async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
                while !bytes.is_empty() {
                    match self.try_write(bytes) {
                        Ok(count) => bytes = &bytes[count..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                        Err(error) => return Err(error),
                    }
                }
                Ok(())
            }

            async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
                loop {
                    match self.try_read(buf) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable().await?,
                        done => return done,
                    }
                }
            }
        }
    };
}

tokio_end!(tokio::net::TcpStream);
tokio_end!(tokio::net::UnixStream);

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
    ($stream:ty) => {
        impl End for $stream {
            async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
                let mut stream = self;
                Write::write_all(&mut stream, bytes)
            }

            async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
                let mut stream = self;
                Read::read(&mut stream, buf)
            }
        }
    };
}

blocking_end!(TcpStream);
blocking_end!(UnixStream);

/// Calls that block, in threads of the kernel.
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
