//! The proxy's listening sockets, and their connections.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use dapple::Color;
use dapple::net::{Peer, TcpStream};
use ipnet::IpNet;
use tracing::info;

use super::proxy::Proxy;
use super::rules;
use super::tally::Count;
use crate::http::connection::Terms;
use crate::http::{Borrowed, Client, Limits, http1};
use crate::server::{AdmittedConnection, Ending, Gate, Host, Listening};

/// All listening sockets of a proxy.
pub(crate) struct Front {
    proxy: Arc<Proxy>,
    handler: Arc<ConnectionHandler>,
    gate: Gate,
}

impl Front {
    /// Accepts clients of this machine and of these networks.
    pub(crate) fn new(proxy: Arc<Proxy>, clients: Vec<IpNet>, limits: Limits, is_short: bool) -> Front {
        let handler = Arc::new(ConnectionHandler { proxy: proxy.clone(), clients, limits: Arc::new(limits) });
        let gate = Gate::new(proxy.admission.clone(), is_short);
        Front { proxy, handler, gate }
    }

    /// Starts to accept. Accepting runs on the default color.
    pub(crate) fn open(&mut self, listening: Listening) -> io::Result<()> {
        self.gate.open(listening, self.handler.clone())
    }

    /// The gate that accepts.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Stops accepting. From now on every reply is the last on its connection; connections in
    /// constant use get such a reply before this returns.
    pub(crate) async fn finish(mut self, ending: Ending) {
        self.proxy.set_crowded(true);
        let begin = self.gate.close(ending).await;
        // Tunnels have no replies to wait for.
        let open = || self.proxy.admission.open().saturating_sub(self.proxy.tally.tunnels_open());
        self.gate.last_replies(begin, open).await;
    }
}

/// How the listening sockets take connections.
struct ConnectionHandler {
    proxy: Arc<Proxy>,
    clients: Vec<IpNet>,
    limits: Arc<Limits>,
}

impl Host for ConnectionHandler {
    type Connection = TcpStream;

    /// Every connection is a task with a color of its own; with `--serial`, one of the default color.
    fn serve(&self, stream: TcpStream, peer: Peer, place: AdmittedConnection) {
        // Those of TCP have one.
        let Some(addr) = peer.addr() else { return place.finish() };
        let (proxy, limits) = (self.proxy.clone(), self.limits.clone());
        proxy.tally.one(Count::Accepted);
        self.spawn(async move {
            let client = Client { addr, is_secure: false, color: Color::current().id(), alternative: None };
            let handle = proxy.handle.clone();
            // HTTP/2 without TLS is not supported here: such a connection just ends.
            let terms = Terms { limits, handle: Some(&handle), link: place.link().clone() };
            let serving = pin!(http1::serve(stream, Borrowed::new(proxy, client), terms));
            drop(place.link().unless_cut(serving).await);
            place.finish();
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.proxy.upstream.spawn(task);
    }

    fn set_crowded(&self, is_crowded: bool) {
        self.proxy.set_crowded(is_crowded);
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn turns_away(&self, peer: &Peer) -> Option<&'static [u8]> {
        let client = peer.ip()?;
        if rules::admits(&self.clients, client) {
            return None;
        }
        info!(%client, "turned away a client that may not use this proxy");
        self.proxy.tally.one(Count::Strangers);
        Some(FORBIDDEN)
    }
}

pub(super) const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 73\r\n\r\n\
    This proxy is not for your address; `--allow-clients NETWORK` allows it.\n";

#[cfg(test)]
mod tests {
    use super::FORBIDDEN;

    #[test]
    fn the_refusal_has_its_stated_length() {
        let text = std::str::from_utf8(FORBIDDEN).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
