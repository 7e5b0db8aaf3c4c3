//! Accepting connections, on the default color.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dapple::Color;
use dapple::net::{TcpListener, TcpStream};
use dapple::time::sleep;
use ipnet::IpNet;
use tracing::{info, warn};

use super::proxy::Proxy;
use super::rules;
use super::tally::{Count, Place};
use crate::http::{Client, Limits, http1};

/// Accepts until the proxy closes. Every connection becomes a task with a color of its own; with `--serial`, one of the default
/// color. Who may not use the proxy, or comes when all connections are in use, is told so and closed.
pub(crate) async fn accept(listener: TcpListener, proxy: Arc<Proxy>, clients: Vec<IpNet>, connections_max: usize) {
    let mut closing = pin!(proxy.handle.closing());
    let limits = Arc::new(Limits { idle_timeout: IDLE_MAX, ..Limits::default() });
    for count in 1_u64.. {
        let (stream, peer) = match unless(closing.as_mut(), listener.accept()).await {
            Some(Ok(accepted)) => accepted,
            Some(Err(error)) => {
                warn!(%error, "a connection could not be accepted");
                sleep(PAUSE).await;
                continue;
            }
            None => return,
        };
        if !rules::admits(&clients, peer.ip()) {
            info!(%peer, "a client that may not use this proxy was turned away");
            turn_away(&proxy, &stream, FORBIDDEN);
        } else if let Some(place) = Place::take(&proxy.tally, |tally| &tally.connections, connections_max) {
            proxy.upstream.spawn(connection(stream, peer, proxy.clone(), limits.clone(), place));
        } else {
            turn_away(&proxy, &stream, FULL);
        }
        if count % BATCH_LEN == 0 {
            // After a burst there may be thousands more; other work of this color and worker goes in between.
            dapple::yield_now().await;
        }
    }
}

async fn connection(stream: TcpStream, addr: SocketAddr, proxy: Arc<Proxy>, limits: Arc<Limits>, _place: Place) {
    let client = Client { addr, is_secure: false, color: Color::current().id(), alternative: None };
    let handle = proxy.handle.clone();
    // HTTP/2 without TLS is not spoken here: such a connection just ends.
    drop(http1::serve(stream, proxy, client, limits, &handle).await);
}

/// The answer fits into the kernel's buffer. A client that has sent something already may lose it in a reset; to wait for that
/// would be a way to hold connections beyond the limit.
fn turn_away(proxy: &Proxy, stream: &TcpStream, answer: &[u8]) {
    proxy.tally.one(Count::TurnedAway);
    let _ = stream.try_write(answer);
    let _ = stream.shutdown(std::net::Shutdown::Write);
}

/// The result of `future`, or `None` once `stop` is ready.
async fn unless<F: Future>(mut stop: Pin<&mut impl Future<Output = ()>>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let race = poll_fn(|cx| match stop.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => future.as_mut().poll(cx).map(Some),
    });
    race.await
}

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: text/plain\r\ncontent-length: 55\r\n\r\nAll connections of this proxy are in use. Please try...\n";

const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\
    content-type: text/plain\r\ncontent-length: 72\r\n\r\nThis proxy is not for your address; `--allow-clients NETWORK` allows it.\n";

/// How long a connection may wait for its next request.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// How long accepting rests after an error that may last, such as running out of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections are accepted in one go.
const BATCH_LEN: u64 = 32;
