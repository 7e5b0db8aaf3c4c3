//! A connection to the server, and the request on it.

use super::Request;
use super::reply::{self, Progress, Reply};
use crate::overload::record::Failure;
use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};

/// A connection.
pub(super) struct Connection {
    pub(super) socket: Socket,
    /// Index of its clients.
    pub(super) client: usize,
    /// Its current request.
    pub(super) request: Option<Request>,
    /// Bytes of the request that were sent.
    sent: usize,
    /// Bytes of the reply that were read.
    reply: Vec<u8>,
    /// Whether epoll watches it for room to send.
    pub(super) is_watched_out: bool,
    /// Whether it has carried a request before.
    pub(super) is_used: bool,
}

/// The result of a look at a connection.
pub(super) enum Step {
    /// Nothing to do before the next event; whether more has to be sent.
    Wait { unsent: bool },
    /// The reply is complete.
    Replied(Reply),
    /// The connection has ended, with the reason.
    Over(Failure),
}

impl Connection {
    /// Starts to connect, from that address if there is one.
    pub(super) fn open(client: usize, to: SocketAddr, from: Option<Ipv4Addr>) -> Result<Connection> {
        let socket = match Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP)) {
            Ok(socket) => socket,
            Err(error) => return Err(error).context("no more connections can be made: raise `ulimit -n`"),
        };
        if let Some(from) = from {
            socket.bind(&SocketAddr::from((from, 0)).into()).context("no free port: pass more --sources")?;
        }
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() == Some(Errno::ADDRNOTAVAIL.raw_os_error()) => {
                bail!("this address has no free port left for more connections: pass --sources 254")
            }
            // Connecting continues, or it has failed; the first use shows which.
            _ => {}
        }
        let (is_watched_out, is_used) = (false, false);
        Ok(Connection { socket, client, request: None, sent: 0, reply: Vec::new(), is_watched_out, is_used })
    }

    /// Takes a request, which `go_on` sends.
    pub(super) fn begin(&mut self, request: Request) {
        self.request = Some(request);
        self.sent = 0;
        self.reply.clear();
    }

    /// Ends the request; the connection may be used again.
    pub(super) fn end(&mut self) {
        self.request = None;
        self.is_used = true;
    }

    /// Whether any part of the reply has arrived.
    pub(super) fn has_reply(&self) -> bool {
        !self.reply.is_empty()
    }

    /// The reply's body.
    pub(super) fn body(&self, reply: &Reply) -> &[u8] {
        &self.reply[reply.body.clone()]
    }

    /// Sends what it can.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Step {
        while self.sent < bytes.len() {
            match rustix::net::send(&self.socket, &bytes[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOTCONN) => return Step::Wait { unsent: true },
                Err(error) => return Step::Over(failure(error)),
            }
        }
        Step::Wait { unsent: false }
    }

    /// Sends and reads what it can. `buf` is room to read into.
    pub(super) fn go_on(&mut self, bytes: &[u8], buf: &mut [u8]) -> Step {
        let unsent = match self.send(bytes) {
            Step::Wait { unsent } => unsent,
            over => return over,
        };
        loop {
            let count = match rustix::io::read(&self.socket, &mut *buf) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOTCONN) => return Step::Wait { unsent },
                Err(error) => return Step::Over(failure(error)),
            };
            self.reply.extend_from_slice(&buf[..count]);
            match reply::read(&self.reply, count == 0) {
                Progress::Whole(reply) => return Step::Replied(reply),
                Progress::Malformed => return Step::Over(Failure::Malformed),
                Progress::Partial if count == 0 => return Step::Over(Failure::EndedEarly),
                Progress::Partial => {}
            }
        }
    }
}

fn failure(error: Errno) -> Failure {
    match error {
        Errno::CONNREFUSED | Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => Failure::Unconnected,
        _ => Failure::Broken,
    }
}
