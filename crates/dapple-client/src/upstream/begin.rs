//! The beginning of HTTP on a connection.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_io::hyper_rt::{Executor, Timer};
use hyper::body::Body;
use hyper::client::conn::{http1, http2};
use tracing::debug;

use super::pool::{STREAMS_MAX, Sender1, Sender2};
use super::{Host, OpenSlot};
use crate::{ConnectError, Scheme, Stream};

/// The sending half of a new connection, by version.
pub(super) enum Opened<B> {
    Http1(Sender1<B>),
    /// With how many requests at a time the server allows.
    Http2(Sender2<B>, Arc<AtomicUsize>),
}

/// Begins the version of HTTP that both sides agreed on. The connection counts as open until its task has ended. With `pings_idle`, one of
/// HTTP/2 sends PING also while no request is in flight.
pub(super) async fn begin<B>(
    host: &Arc<Host<B>>,
    stream: Stream,
    place: OpenSlot<B>,
    pings_idle: bool,
) -> Result<Opened<B>, ConnectError>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let broken = |source| ConnectError::Handshake { host: host.origin.name().to_owned(), source };
    let (spawn, is_h2) = (&host.config.spawn, stream.is_h2() || host.origin.scheme == Scheme::H2c);
    if !is_h2 {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_MAX).max_headers(FIELDS_MAX);
        let (sender, connection) = builder.handshake(stream).await.map_err(broken)?;
        spawn.spawn(async move {
            let _place = place;
            if let Err(error) = connection.with_upgrades().await {
                debug!(%error, "a connection to a server ended");
            }
        });
        return Ok(Opened::Http1(sender));
    }
    let mut builder = http2::Builder::new(Executor::new());
    builder
        .timer(Timer::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX)
        .keep_alive_while_idle(pings_idle);
    let (sender, connection) = builder.handshake(stream).await.map_err(broken)?;
    let streams_max = Arc::new(AtomicUsize::new(STREAMS_MAX));
    let said = streams_max.clone();
    spawn.spawn(async move {
        let _place = place;
        let mut connection = pin!(connection);
        let ended = poll_fn(|cx| {
            let ended = connection.as_mut().poll(cx);
            said.store(connection.as_ref().get_ref().current_max_send_streams(), Ordering::Relaxed);
            ended
        });
        if let Err(error) = ended.await {
            debug!(%error, "a connection of HTTP/2 to a server ended");
        }
    });
    Ok(Opened::Http2(sender, streams_max))
}

/// The largest head of a response.
const HEAD_MAX: usize = 64 * 1024;
const FIELDS_MAX: usize = 256;

/// Bytes of a response that may arrive before the program takes them: for one stream, and for all of a connection.
const WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Bytes of a request's body that may wait in hyper's buffer.
const SEND_BUFFER_MAX: usize = 64 << 10;

/// PING while a request is in flight, so that a server that vanished is noticed.
const PING_EVERY: Duration = Duration::from_secs(10);
const PONG_MAX: Duration = Duration::from_secs(10);
