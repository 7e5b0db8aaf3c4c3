//! Two runtimes, each with a network of its own, on the two ends of a link.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_io::net::TcpListener;
use dapple_net::{Device, LinkFaults, MemoryDevice, Network, OnNetwork, Received, Settings, pair};
use dapple_sched::Runtime;

pub(crate) struct World {
    pub(crate) server: Runtime,
    pub(crate) server_net: Network,
    pub(crate) client: Runtime,
    pub(crate) client_net: Network,
}

impl World {
    pub(crate) fn new(faults: LinkFaults) -> World {
        World::with(faults, server_settings())
    }

    pub(crate) fn with(faults: LinkFaults, settings: Settings) -> World {
        let (here, there) = pair(1500, faults);
        World::over(vec![Arc::new(here)], Arc::new(there), settings)
    }

    pub(crate) fn over(server: Vec<Arc<dyn Device>>, client: Arc<dyn Device>, settings: Settings) -> World {
        let server_net = Network::new(server, settings).unwrap();
        let client_net = Network::new(vec![client], client_settings()).unwrap();
        let runtime =
            |network: &Network| dapple_io::runtime_builder().workers(2).network(network.clone()).build().unwrap();
        World { server: runtime(&server_net), client: runtime(&client_net), server_net, client_net }
    }

    /// A listener of the server's, with its address as clients see it.
    pub(crate) fn listen(&self, at: &str) -> (TcpListener, SocketAddr) {
        let _entered = self.server.enter();
        let listener = TcpListener::bind(at).unwrap();
        let addr = listener.local_addr().unwrap();
        let ip = if addr.is_ipv4() { "10.7.0.1" } else { "fd07::1" };
        (listener, SocketAddr::new(ip.parse().unwrap(), addr.port()))
    }
}

pub(crate) fn server_settings() -> Settings {
    let mut settings = Settings::new("10.7.0.1".parse().unwrap(), 24);
    settings.addresses.push(("fd07::1".parse().unwrap(), 64));
    settings
}

pub(crate) fn client_settings() -> Settings {
    let mut settings = Settings::new("10.7.0.2".parse().unwrap(), 24);
    settings.addresses.push(("fd07::2".parse().unwrap(), 64));
    settings
}

/// Bytes that a mistake in order, length or place changes.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Sends a packet of another host's before each of its own.
pub(crate) struct Flooding<F> {
    pub(crate) device: MemoryDevice,
    pub(crate) packets: F,
}

impl<F: Fn() -> Vec<Vec<u8>> + Send + Sync + 'static> Device for Flooding<F> {
    fn mtu(&self) -> usize {
        self.device.mtu()
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        self.device.poll_receive(cx, buf)
    }

    fn send(&self, packet: &[u8], segment_len: Option<u16>) -> io::Result<()> {
        for packet in (self.packets)() {
            let _ = self.device.send(&packet, None);
        }
        self.device.send(packet, segment_len)
    }
}
