//! Addresses and limits of a network.

use std::net::IpAddr;
use std::time::Duration;

/// Addresses and limits of a network in user space.
///
/// Each limit holds for the whole network; with several devices each has its share. The memory of all connections is bounded by
/// `(connections_max + half_open_max + time_wait_max) * (receive_buffer + send_buffer)`. A page of it is used only after bytes have been
/// there, and an idle connection starts again at the first page.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Addresses of this network, at most eight, each with the length of its prefix. At least one.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routers on an Ethernet interface, for peers outside the prefixes; of each family the first counts. Without one, such peers get no
    /// answer. On other devices all packets go the one way. By default none.
    pub routers: Vec<IpAddr>,
    /// Bytes that a connection receives ahead of its reader, 4,096 to 16 MiB. The window that it offers. Default: 128 KiB.
    pub receive_buffer: usize,
    /// Bytes that a connection has written and the peer has not acknowledged, 4,096 to 16 MiB. Default: 128 KiB.
    pub send_buffer: usize,
    /// The most connections. A new one is not answered beyond that, and its client tries again. Default: 16,384.
    pub connections_max: usize,
    /// The most connections that come and are not made yet. Another one replaces the oldest of them. Default: 4,096.
    pub half_open_max: usize,
    /// The most closed connections that are remembered, so that late packets find them. Another one replaces the oldest. Default: 1,024.
    pub time_wait_max: usize,
    /// The most connections of a listener that wait to be accepted. A new one is not answered beyond that. Default: 1,024.
    pub backlog_max: usize,
    /// The most sockets for datagrams. Default: 1,024.
    pub datagram_sockets_max: usize,
    /// Bytes of datagrams that wait at one socket. Those that find no room are lost. Default: 256 KiB.
    pub datagram_buffer: usize,
    /// How long nothing comes from a peer before it is asked whether it is there. Default: 60 s.
    pub keep_alive: Duration,
    /// How long nothing comes from a peer before its connection is broken; longer than `keep_alive`. Default: 240 s.
    pub timeout: Duration,
    /// How long an attempt to connect may take. Default: 30 s.
    pub connect_timeout: Duration,
    /// How long a connection that its program has dropped may go on to deliver what was written. Default: 60 s.
    pub linger: Duration,
}

impl Settings {
    /// The defaults, for one address with the length of its prefix.
    ///
    /// ```
    /// let mut settings = dapple_net::Settings::new("10.7.0.1".parse().unwrap(), 24);
    /// settings.addresses.push(("fd07::1".parse().unwrap(), 64));
    /// settings.connections_max = 1000;
    /// ```
    pub fn new(address: IpAddr, prefix_len: u8) -> Settings {
        Settings {
            addresses: vec![(address, prefix_len)],
            routers: Vec::new(),
            receive_buffer: 128 << 10,
            send_buffer: 128 << 10,
            connections_max: 16_384,
            half_open_max: 4096,
            time_wait_max: 1024,
            backlog_max: 1024,
            datagram_sockets_max: 1024,
            datagram_buffer: 256 << 10,
            keep_alive: Duration::from_secs(60),
            timeout: Duration::from_secs(240),
            connect_timeout: Duration::from_secs(30),
            linger: Duration::from_secs(60),
        }
    }

    /// These, with each number where it may be, and limits as one of `devices` has them.
    pub(crate) fn share(&self, devices: usize) -> Settings {
        let share = |all: usize| all.div_ceil(devices).max(1);
        Settings {
            receive_buffer: self.receive_buffer.clamp(BUFFER_MIN, BUFFER_MAX),
            send_buffer: self.send_buffer.clamp(BUFFER_MIN, BUFFER_MAX),
            connections_max: share(self.connections_max),
            half_open_max: share(self.half_open_max),
            time_wait_max: share(self.time_wait_max),
            timeout: self.timeout.max(self.keep_alive.saturating_mul(2)),
            ..self.clone()
        }
    }
}

const BUFFER_MIN: usize = 4096;
const BUFFER_MAX: usize = 16 << 20;
