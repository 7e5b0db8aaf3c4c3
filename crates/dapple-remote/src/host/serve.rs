//! Accepting, and ending.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_io::net::{TcpListener, TcpStream};
use dapple_io::time::{sleep, timeout};
use dapple_sync::sync::watch;
use dapple_sync::task::{First, race};

use super::connection::{self, Protocol, Welcome};
use super::limits::Counted;
use super::stopper::Stage;
use super::{Host, Shared};

/// How a host has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Connections that were closed while requests ran on them, as these took longer than may be.
    pub connections_cut: usize,
}

/// See [`Host::serve`].
pub(super) async fn serve(host: Host, listener: TcpListener) -> io::Result<Report> {
    let host = Arc::new(host);
    let open = Open::default();
    let cut = Arc::new(AtomicUsize::new(0));
    let mut stopping = pin!(host.stopper.reached(Stage::Leaving));
    let accepted = loop {
        match race(stopping.as_mut(), listener.accept()).await {
            First::Left(()) => break Ok(()),
            First::Right(Ok((stream, client))) => {
                let (host, cut, place) = (host.clone(), cut.clone(), open.enter());
                // Bounded by the counts in `welcome`; what is over them ends at once.
                let _detached = dapple_sched::spawn(async move {
                    let _place = place;
                    if !welcome(&host, stream, client).await {
                        cut.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            First::Right(Err(error)) => break Err(error),
        }
    };
    drop(listener);
    // Also where the socket has failed: who is connected is told.
    host.stopper.stop();
    end(&host, &open).await;
    accepted.map(|()| Report { connections_cut: cut.load(Ordering::Relaxed) })
}

/// Clients that heed it leave by themselves; then the others are told in the way of HTTP; then all are cut.
async fn end(host: &Host, open: &Open) {
    let drain = host.shared.limits.drain;
    let leave = LEAVE.min(drain / 2);
    if timeout(leave, open.all_ended()).await.is_ok() {
        return;
    }
    host.stopper.advance(Stage::Closing);
    if timeout(drain.saturating_sub(leave), open.all_ended()).await.is_ok() {
        return;
    }
    host.stopper.advance(Stage::Cutting);
    // They end when they are polled next.
    let _ = timeout(CUT, open.all_ended()).await;
}

/// How many connections there are.
#[derive(Clone, Default)]
struct Open(Arc<watch::Sender<usize>>);

/// One of them.
struct Place(Open);

impl Open {
    fn enter(&self) -> Place {
        self.0.send_modify(|count| *count += 1);
        Place(self.clone())
    }

    /// Cancel safe.
    async fn all_ended(&self) {
        // This has the sending side, so it cannot close.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// Takes a connection in, if there is room. False where it was cut.
async fn welcome(host: &Host, stream: TcpStream, client: SocketAddr) -> bool {
    let gauges = &host.shared.gauges;
    if let Some(_counted) = Counted::enter(&gauges.connections, host.shared.limits.connections_max) {
        return begin(host, stream, Welcome::Served).await;
    }
    tracing::debug!(%client, "a connection of a stage host was one too many");
    match Counted::enter(&gauges.turned_away, TURNED_AWAY_MAX) {
        Some(_counted) => begin(host, stream, Welcome::TurnedAway).await,
        None => true,
    }
}

async fn begin(host: &Host, stream: TcpStream, welcome: Welcome) -> bool {
    let limit = host.shared.limits.header_timeout;
    #[cfg(feature = "tls")]
    if let Some(tls) = &host.tls {
        return match unless_cut(&host.shared, tls.accept(stream, limit)).await {
            Some(Ok(stream)) => {
                let is_http2 = stream.alpn() == Some(b"h2".as_slice());
                let protocol = if is_http2 { Protocol::Http2 } else { Protocol::Http1 };
                connection::serve(stream, protocol, welcome, host.shared.clone()).await
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "a handshake of TLS failed");
                true
            }
            None => true,
        };
    }
    match unless_cut(&host.shared, timeout(limit, protocol_of(&stream))).await {
        Some(Ok(Ok(protocol))) => connection::serve(stream, protocol, welcome, host.shared.clone()).await,
        _ => true,
    }
}

/// Nothing has been asked yet: as soon as connections close, so does this.
async fn unless_cut<F: Future>(shared: &Shared, future: F) -> Option<F::Output> {
    match race(future, shared.stopper.reached(Stage::Closing)).await {
        First::Left(output) => Some(output),
        First::Right(()) => None,
    }
}

/// What the client begins with. Cancel safe.
async fn protocol_of(stream: &TcpStream) -> io::Result<Protocol> {
    let mut first = [0; PREFACE.len()];
    let mut had = 0;
    loop {
        let count = stream.peek(&mut first).await?;
        if first[..count] != PREFACE[..count] {
            return Ok(Protocol::Http1);
        }
        if count == PREFACE.len() {
            return Ok(Protocol::Http2);
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // What is there stays readable: waiting for more of it is looking again a little later.
        if count == had {
            sleep(PEEK_EVERY).await;
        }
        had = count;
    }
}

/// How a client of HTTP/2 begins (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PEEK_EVERY: Duration = Duration::from_millis(5);

/// How long clients have to leave by themselves.
const LEAVE: Duration = Duration::from_secs(1);
/// How long connections take to be closed as they are.
const CUT: Duration = Duration::from_secs(1);

/// How many are told at the same time that they are one too many.
const TURNED_AWAY_MAX: usize = 64;
