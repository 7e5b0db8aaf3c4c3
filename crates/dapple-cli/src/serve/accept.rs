//! Accepting connections, on the default color.

use std::future::{Future, poll_fn};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use dapple::net::{TcpListener, TcpStream};
use dapple::time::{sleep, timeout};
use tracing::warn;

use super::connection;
use super::limits::Shares;
use super::site::Site;

/// Accepts until the server closes. Every connection becomes a task with a color of its own; with `--serial`, one of
/// the default color.
///
/// At the limit that was asked for, clients are turned away; at one that the descriptors set, they wait in the kernel's
/// backlog until a connection ends, and those that are open end with their next response.
pub(crate) async fn accept(listener: TcpListener, site: Arc<Site>, shares: Shares) {
    let mut closing = pin!(site.handle.closing());
    let connections_max = shares.connections;
    let mut at_limit = false;
    for count in 1_u64.. {
        while shares.is_short && site.counters.open() >= connections_max {
            if !std::mem::replace(&mut at_limit, true) {
                warn!(connections_max, "no descriptors are left for more connections; new ones wait until one ends");
            }
            site.set_crowded(true);
            if unless(closing.as_mut(), sleep(CROWDED_PAUSE)).await.is_none() {
                return;
            }
        }
        if shares.is_short && at_limit && site.counters.open() < connections_max / 2 {
            at_limit = false;
            site.set_crowded(false);
        }
        let stream = match unless(closing.as_mut(), listener.accept()).await {
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => {
                warn!(%error, "a connection could not be accepted");
                sleep(PAUSE).await;
                continue;
            }
            None => return,
        };
        if !shares.is_short && site.counters.open() >= connections_max {
            if !std::mem::replace(&mut at_limit, true) {
                warn!(connections_max, "all connections are in use; new ones are refused until one ends");
            }
            site.counters.add_refused();
            // Beyond what can be told so in a moment, they are just closed.
            if let Some(place) = TurnedAway::enter() {
                site.spawn(turn_away(stream, place));
            }
        } else {
            at_limit &= shares.is_short;
            let task = connection::serve(stream, site.clone(), site.counters.open_connection());
            site.spawn(task);
        }
        if count % BATCH_LEN == 0 {
            // After a burst there may be thousands more; other work of this color and worker goes in between.
            dapple::yield_now().await;
        }
    }
}

/// The decision at the limit: say so and close, rather than let the client wait for what may not come.
async fn turn_away(stream: TcpStream, _place: TurnedAway) {
    let talk = async {
        stream.write_all(FULL).await?;
        stream.shutdown(Shutdown::Write)?;
        // Closing with unread bytes would reset the connection, and the answer could be lost on its way.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // Whatever goes wrong here, the connection is over.
    let _ = timeout(TURN_AWAY_MAX, talk).await;
}

/// One of the places for clients that are being turned away.
struct TurnedAway;

static TURNED_AWAY: AtomicUsize = AtomicUsize::new(0);

impl TurnedAway {
    fn enter() -> Option<TurnedAway> {
        if TURNED_AWAY.fetch_add(1, Ordering::Relaxed) < TURNED_AWAY_MAX {
            return Some(TurnedAway);
        }
        TURNED_AWAY.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for TurnedAway {
    fn drop(&mut self) {
        TURNED_AWAY.fetch_sub(1, Ordering::Relaxed);
    }
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
    content-type: text/plain; charset=utf-8\r\ncontent-length: 48\r\n\r\nAll connections are in use. Please try again...\n";

/// How many clients are turned away at the same time.
const TURNED_AWAY_MAX: usize = 256;

/// How often it is looked whether a connection has ended, where descriptors are short.
const CROWDED_PAUSE: Duration = Duration::from_millis(10);

/// How long a refused client may take to read its refusal.
const TURN_AWAY_MAX: Duration = Duration::from_secs(1);

/// How long accepting rests after an error that may last, such as running out of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How many connections are accepted in one go.
const BATCH_LEN: u64 = 32;
