//! HTTP/3 for a TLS listening socket: the same address and port, over UDP.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dapple::task::{First, race};
use dapple::time::sleep;
use dapple::{Color, JoinHandle};
use http::HeaderValue;
use quinn::Endpoint;
use socket2::{Domain, Protocol, Socket, Type};
use tracing::error;

use super::site::Site;
use crate::http::Client;
use crate::http::connection::Terms;
use crate::http::http3::{self, Handshake, HandshakeHandler};
use crate::server::{Admission, AdmittedConnection, EndStage, Tls, within};

/// The endpoint of one listening socket.
pub(super) struct Http3 {
    addr: SocketAddr,
    site: Arc<Site>,
    tls: Arc<Tls>,
    /// Set once the port is free.
    endpoint: OnceLock<Endpoint>,
}

/// How to make the socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    /// Whether other processes may have the same port at the same time.
    pub(super) is_shared: bool,
    /// Whether the previous process may still have the port, and releases it soon.
    pub(super) may_wait: bool,
}

impl Http3 {
    /// Binds the port. If it may have to wait, [`Http3::begin`] waits.
    ///
    /// # Errors
    ///
    /// The port is taken, or the kernel refuses for another reason.
    pub(super) fn open(addr: SocketAddr, site: Arc<Site>, tls: Arc<Tls>, binding: Binding) -> io::Result<Arc<Http3>> {
        let http3 = Http3 { addr, site, tls, endpoint: OnceLock::new() };
        match http3.bind(binding) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && binding.may_wait => {}
            result => result?,
        }
        Ok(Arc::new(http3))
    }

    /// Starts to accept, on the default color.
    pub(super) fn begin(
        self: &Arc<Self>,
        admission: Arc<Admission>,
        stage: Arc<EndStage>,
        binding: Binding,
    ) -> JoinHandle<()> {
        let http3 = self.clone();
        Color::DEFAULT.spawn(async move {
            let First::Right(Some(endpoint)) = race(stage.finishing(), http3.bound(binding)).await else { return };
            http3::accept(endpoint, SiteHandshakes(http3.site.clone()), admission, stage.finishing()).await;
        })
    }

    /// Uses the current certificates, for new connections.
    ///
    /// # Errors
    ///
    /// QUIC cannot use them; the old ones stay in use.
    pub(super) fn renew(&self) -> io::Result<()> {
        if let Some(endpoint) = self.endpoint.get() {
            endpoint.set_server_config(Some(http3::server_config(&self.tls.certificates(), &self.site.limits())?));
        }
        Ok(())
    }

    /// The announcement of HTTP/3 in replies over TLS.
    pub(super) fn alternative(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(format!("h3=\":{}\"; ma={MAX_AGE_S}", self.addr.port())).ok()
    }

    fn bind(&self, binding: Binding) -> io::Result<()> {
        let config = http3::server_config(&self.tls.certificates(), &self.site.limits())?;
        let socket = udp_socket(self.addr, binding.is_shared)?;
        let endpoint = http3::endpoint(socket, Some(config), self.site.serial)?;
        // Only set once: a second socket could not have bound the address.
        let _ = self.endpoint.set(endpoint);
        Ok(())
    }

    /// Returns the endpoint as soon as the port is free.
    async fn bound(&self, binding: Binding) -> Option<Endpoint> {
        loop {
            if let Some(endpoint) = self.endpoint.get() {
                return Some(endpoint.clone());
            }
            sleep(BIND_AGAIN).await;
            match self.bind(binding) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    error!(%error, addr = %self.addr, "no HTTP/3 on this address");
                    return None;
                }
                _ => {}
            }
        }
    }
}

/// Makes connections of QUIC tasks of the site.
struct SiteHandshakes(Arc<Site>);

impl HandshakeHandler for SiteHandshakes {
    /// Every connection is a task with a color of its own; with `--serial`, one of the default color.
    fn serve(&self, handshake: Handshake, addr: SocketAddr, place: AdmittedConnection) {
        let (site, open) = (self.0.clone(), self.0.counters.open_connection());
        self.0.spawn(async move {
            let client = Client { addr, is_secure: true, color: Color::current().id(), alternative: None };
            let handle = site.handle.clone();
            if let Some(Some(connection)) = within(handshake.finish(), Some(handle.closing())).await {
                let color = site.serial.then_some(Color::DEFAULT);
                let terms = Terms { limits: site.limits(), handle: Some(&handle), link: place.link().clone() };
                let serving = pin!(http3::serve(connection, site, client, terms, color));
                place.link().unless_cut(serving).await;
            }
            drop(open);
            place.finish();
        });
    }
}

fn udp_socket(addr: SocketAddr, is_shared: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(is_shared)?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

/// How long a client may remember that this address supports HTTP/3.
const MAX_AGE_S: u32 = 3600;

/// How often to check whether the previous process has released the port.
const BIND_AGAIN: Duration = Duration::from_millis(100);
