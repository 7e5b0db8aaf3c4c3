//! The proxy's listening sockets, and their connections.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use dapple::Color;
use dapple::net::{Peer, TcpStream};
use tracing::info;

use super::forwarded;
use super::reverse::Reverse;
use crate::http::connection::{Protocol, Terms, serve as serve_http};
use crate::http::{Borrowed, Client, Limits};
use crate::proxy::front::FORBIDDEN;
use crate::proxy::tally::Count;
use crate::server::{AdmittedConnection, Ending, Gate, Host, Listening, Tls};

/// All listening sockets of a proxy.
pub(super) struct Front {
    reverse: Arc<Reverse>,
    handler: Arc<ConnectionHandler>,
    gate: Gate,
}

impl Front {
    pub(super) fn new(reverse: Arc<Reverse>, tls: Option<Arc<Tls>>, limits: Limits, is_short: bool) -> Front {
        let handler = Arc::new(ConnectionHandler { reverse: reverse.clone(), tls, limits: Arc::new(limits) });
        let gate = Gate::new(reverse.admission.clone(), is_short);
        Front { reverse, handler, gate }
    }

    /// Starts to accept. Accepting runs on the default color.
    pub(super) fn open(&mut self, listening: Listening) -> io::Result<()> {
        self.gate.open(listening, self.handler.clone())
    }

    /// The gate that accepts.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Stops accepting. From now on every reply is the last on its connection; connections in
    /// constant use get such a reply before this returns.
    pub(super) async fn finish(mut self, ending: Ending) {
        self.reverse.set_crowded(true);
        let begin = self.gate.close(ending).await;
        // Tunnels have no replies to wait for.
        let open = || self.reverse.admission.open().saturating_sub(self.reverse.tally.tunnels_open());
        self.gate.last_replies(begin, open).await;
    }
}

/// How the listening sockets take connections.
struct ConnectionHandler {
    reverse: Arc<Reverse>,
    tls: Option<Arc<Tls>>,
    limits: Arc<Limits>,
}

impl Host for ConnectionHandler {
    type Connection = TcpStream;

    /// Every connection is a task with a color of its own; with `--serial`, one of the default color.
    fn serve(&self, stream: TcpStream, peer: Peer, place: AdmittedConnection) {
        // Those of TCP have one.
        let Some(addr) = peer.addr() else { return place.finish() };
        let (reverse, limits, tls) = (self.reverse.clone(), self.limits.clone(), self.tls.clone());
        reverse.tally.one(Count::Accepted);
        self.spawn(async move {
            let client = Client { addr, is_secure: tls.is_some(), color: Color::current().id(), alternative: None };
            let handle = reverse.common.handle.clone();
            let color = reverse.common.serial.then_some(Color::DEFAULT);
            let terms = Terms { limits, handle: Some(&handle), link: place.link().clone() };
            let serving = pin!(serve(stream, tls, reverse, client, terms, color));
            place.link().unless_cut(serving).await;
            place.finish();
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.reverse.common.spawn(task);
    }

    fn set_crowded(&self, is_crowded: bool) {
        self.reverse.set_crowded(is_crowded);
    }

    fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    fn turns_away(&self, peer: &Peer) -> Option<&'static [u8]> {
        let client = peer.ip()?;
        if forwarded::admits(&self.reverse.clients, client) {
            return None;
        }
        info!(%client, "turned away a client that may not use this proxy");
        self.reverse.tally.one(Count::Strangers);
        Some(FORBIDDEN)
    }
}

/// Serves one connection, encrypted or not.
async fn serve(
    stream: TcpStream,
    tls: Option<Arc<Tls>>,
    reverse: Arc<Reverse>,
    client: Client,
    terms: Terms<'_>,
    color: Option<Color>,
) {
    let Some(tls) = tls else {
        return serve_http(stream, Protocol::FirstBytes, Borrowed::new(reverse, client), terms, color).await;
    };
    // Boxed: a handshake needs more memory than a waiting connection.
    let accepted = Box::pin(tls.accept(stream, terms.handle, &terms.link)).await;
    if let Some(stream) = accepted {
        let protocol = if stream.alpn() == Some(b"h2") { Protocol::Http2 } else { Protocol::FirstBytes };
        serve_http(stream, protocol, Borrowed::new(reverse, client), terms, color).await;
    }
}
