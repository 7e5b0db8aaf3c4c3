//! Stages on other hosts: `RemoteStage` over a network that fails.

mod once;
mod overload;
mod replicas;

pub(crate) use self::once::ONCE;
pub(crate) use self::overload::OVERLOAD;
pub(crate) use self::replicas::REPLICAS;

use std::time::Duration;

use dapple::net::TcpListener;
use dapple::stage::remote::{Host, Peer};

/// Serves until the host crashes.
pub(crate) async fn serve(host: Host) {
    host.serve(TcpListener::bind("0.0.0.0:70").unwrap()).await.unwrap();
}

/// A peer that soon notices that its host is away, or back.
pub(crate) fn peer(host: &str, timeout: Option<Duration>) -> Peer {
    let builder = Peer::builder(format!("{host}:70")).timeout(timeout);
    builder.connect_timeout(Duration::from_millis(500)).retry_wait_max(Duration::from_millis(200)).build().unwrap()
}
