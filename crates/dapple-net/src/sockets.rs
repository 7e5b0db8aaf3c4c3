//! The sockets of a network, as `dapple-io` uses them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dapple_io::environment::{DatagramSocket, ListenSocket, Readiness, Ready, StreamSocket, Watched};

use crate::network::Inner;
use crate::packet::{datagram, datagram_overhead};
use crate::ports::{DatagramPort, ListenPort, lock};
use crate::stack::Stack;

/// A connection of the program's.
pub(crate) struct Stream {
    pub(crate) network: Arc<Inner>,
    pub(crate) stack: usize,
    pub(crate) key: usize,
    pub(crate) aborts: AtomicBool,
}

impl Stream {
    fn stack(&self) -> &Stack {
        &self.network.stacks[self.stack]
    }
}

impl Watched for Stream {
    fn watch(&self, readiness: Readiness) {
        self.stack().with(|core, now| core.use_connection(self.key, now, |connection| connection.watch(readiness)));
    }
}

impl StreamSocket for Stream {
    fn is_connected(&self) -> io::Result<bool> {
        self.stack().with(|core, _| core.connection(self.key).is_connected())
    }

    fn receive(&self, take: &mut dyn FnMut(&[u8]) -> usize) -> io::Result<()> {
        // Sends, too: a window that has opened.
        self.stack().with(|core, now| match core.connection(self.key).receive(take) {
            Ok(()) => core.use_connection(self.key, now, |_| Ok(())),
            error => error,
        })
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stack().with(|core, now| match core.connection(self.key).send(bytes) {
            Ok(len) => core.use_connection(self.key, now, |_| Ok(len)),
            error => error,
        })
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.stack().with(|core, now| core.use_connection(self.key, now, |connection| connection.shutdown(how)))
    }

    fn abort(&self) {
        // Relaxed: the destructor comes after it.
        self.aborts.store(true, Ordering::Relaxed);
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stack().with(|core, _| Ok(core.connection(self.key).tuple.local))
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stack().with(|core, _| Ok(core.connection(self.key).tuple.remote))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let aborts = *self.aborts.get_mut();
        self.stack().with(|core, now| core.release(self.key, aborts, now));
    }
}

/// A listener of the program's.
pub(crate) struct Listener {
    pub(crate) network: Arc<Inner>,
    pub(crate) port: Arc<ListenPort>,
}

impl Watched for Listener {
    fn watch(&self, readiness: Readiness) {
        let mut state = lock(&self.port.state);
        state.readiness = Some(readiness.clone());
        let readable = !state.waiting.is_empty();
        drop(state);
        readiness.tell(Ready { readable, ..Ready::default() });
    }
}

impl ListenSocket for Listener {
    fn accept(&self) -> io::Result<(Arc<dyn StreamSocket>, SocketAddr)> {
        let next = lock(&self.port.state).waiting.pop_front();
        let (stack, key) = next.ok_or(ErrorKind::WouldBlock)?;
        let peer = self.network.stacks[stack].with(|core, _| core.accept(key));
        let stream = Stream { network: self.network.clone(), stack, key, aborts: AtomicBool::new(false) };
        Ok((Arc::new(stream), peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.port.addr)
    }

    fn refuse_new(&self) {
        lock(&self.port.state).refuses = true;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.network.ports.end_listening(&self.port);
        let waiting = {
            let mut state = lock(&self.port.state);
            (state.refuses, state.is_closed) = (true, true);
            std::mem::take(&mut state.waiting)
        };
        for (stack, key) in waiting {
            self.network.stacks[stack].with(|core, now| core.release(key, true, now));
        }
    }
}

/// A socket for datagrams of the program's.
pub(crate) struct Datagrams {
    pub(crate) network: Arc<Inner>,
    pub(crate) port: Arc<DatagramPort>,
}

impl Datagrams {
    /// The address that a datagram to `to` comes from.
    fn source(&self, to: SocketAddr) -> io::Result<SocketAddr> {
        let bound: IpAddr = self.port.addr.ip();
        let ip =
            if bound.is_unspecified() || bound.is_multicast() { self.network.ports.source_for(to)? } else { bound };
        if ip.is_ipv4() != to.is_ipv4() {
            return Err(io::Error::new(
                ErrorKind::NetworkUnreachable,
                "the socket is bound to an address of the other family",
            ));
        }
        Ok(SocketAddr::new(ip, self.port.addr.port()))
    }
}

impl Watched for Datagrams {
    fn watch(&self, readiness: Readiness) {
        let mut state = lock(&self.port.state);
        state.readiness = Some(readiness.clone());
        let readable = !state.waiting.is_empty();
        drop(state);
        readiness.tell(Ready { readable, writable: true, ..Ready::default() });
    }
}

impl DatagramSocket for Datagrams {
    fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        let from = self.source(to)?;
        // Each worker could use a device of its own; one keeps the order.
        let stack = &self.network.stacks[0];
        let len_max = stack.device.mtu() - datagram_overhead(to);
        if bytes.len() > len_max {
            let why = format!("a datagram on this network has at most {len_max} bytes, as it does not cut packets");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let packet = datagram(from, to, bytes);
        // A device without room loses datagrams, as a network does.
        let _ = stack.with(|core, _| core.send(&packet));
        if to.ip().is_multicast()
            && let Some(member) = self.network.ports.datagrams(to)
        {
            stack.with(|core, _| core.deliver(&member, bytes, from));
        }
        Ok(bytes.len())
    }

    fn receive_from(&self, len: usize) -> io::Result<(Vec<u8>, SocketAddr)> {
        let (mut bytes, from) = self.port.take().ok_or(ErrorKind::WouldBlock)?;
        bytes.truncate(len);
        Ok((bytes, from))
    }

    fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.source(to)?;
        lock(&self.port.state).peer = Some(to);
        Ok(())
    }

    fn connected_to(&self) -> Option<SocketAddr> {
        lock(&self.port.state).peer
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.port.addr)
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.network.ports.unbind(&self.port);
        let group = self.port.addr.ip();
        if group.is_multicast() && !self.network.ports.has_member(group) {
            self.network.stacks[0].with(|core, now| core.leave(group, now));
        }
    }
}
