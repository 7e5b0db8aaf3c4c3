//! Incoming QUIC connections.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_io::time::timeout;
use dapple_sync::task::{First, race};
use quinn::{Connecting, Connection, Endpoint, Incoming};
use tracing::debug;

use crate::host::{Admission, AdmittedConnection};

/// Serves incoming connections.
pub trait HandshakeHandler: Send + Sync + 'static {
    /// Serves one connection, in a task that this method starts; [`Handshake::finish`] completes
    /// its handshake.
    fn serve(&self, handshake: Handshake, client: SocketAddr, place: AdmittedConnection);
}

/// Accepts connections until `finishing` resolves; accepted connections go on.
pub async fn accept(
    endpoint: Endpoint,
    handler: impl HandshakeHandler,
    admission: Arc<Admission>,
    finishing: impl Future,
) {
    let mut finishing = pin!(finishing);
    let under_way = Arc::new(AtomicUsize::new(0));
    while let First::Right(Some(incoming)) = race(finishing.as_mut(), endpoint.accept()).await {
        take(incoming, &handler, &admission, &under_way);
    }
    // New clients are refused, and use TCP.
    endpoint.set_server_config(None);
}

fn take(incoming: Incoming, handler: &impl HandshakeHandler, admission: &Arc<Admission>, under_way: &Arc<AtomicUsize>) {
    let is_proved = incoming.remote_address_validated();
    if !is_proved && under_way.load(Ordering::Relaxed) >= VALIDATE_FROM && incoming.may_retry() {
        if let Err(error) = incoming.retry() {
            debug!(%error, "cannot ask a client to prove its address");
        }
        return;
    }
    let client = incoming.remote_address();
    match admission.admit(client.ip()) {
        Err(_) => incoming.refuse(),
        Ok(place) => match incoming.accept() {
            Ok(connecting) => {
                under_way.fetch_add(1, Ordering::Relaxed);
                handler.serve(Handshake { connecting, _counted: Counted(under_way.clone()) }, client, place);
            }
            Err(error) => {
                debug!(%error, "a QUIC connection failed");
                place.finish();
            }
        },
    }
}

/// A connection before its handshake.
pub struct Handshake {
    connecting: Connecting,
    _counted: Counted,
}

impl Handshake {
    /// Returns the connection; `None` if the handshake fails or takes too long. Not cancel safe: if
    /// dropped before it resolves, it ends the connection.
    pub async fn finish(self) -> Option<Connection> {
        match timeout(HANDSHAKE_MAX, self.connecting).await {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(error)) => debug!(%error, "a QUIC connection failed"),
            Err(_) => debug!("a QUIC handshake took too long"),
        }
        None
    }
}

/// Counts a handshake as in progress until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of handshakes in progress above which new clients have to prove their address first.
const VALIDATE_FROM: usize = 64;

/// How long a client may take for its handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
