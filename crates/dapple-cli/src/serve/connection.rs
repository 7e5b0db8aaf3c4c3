//! One connection: its requests are read, answered and written in its own color, by hyper.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use dapple::Color;
use dapple::net::TcpStream;
use dapple::time::sleep;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tracing::debug;

use super::counters::OpenConnection;
use super::site::Site;
use super::watched::Watched;
use crate::http::hyper as hyper_messages;
use crate::http::{Body, Client, RequestBody, Service};

/// What the parts of a connection share; all of them run in its task.
struct Connection {
    site: Arc<Site>,
    client: Client,
    /// Grows with every request and every written byte; only compared, so it may wrap.
    progress: AtomicU64,
}

/// Serves one connection until either side is done with it, nothing moves any more, or the server closes.
pub(crate) async fn serve(stream: TcpStream, site: Arc<Site>, _open: OpenConnection) {
    let closing = site.handle.closing();
    let Ok(addr) = stream.peer_addr() else { return };
    // The color is taken at the start: while a task holds a shard, that is the current one.
    let client = Client { addr, is_secure: false, color: Color::current().id() };
    let connection = Arc::new(Connection { site, client, progress: AtomicU64::new(0) });
    let answering = connection.clone();
    let service = service_fn(move |request| answer(answering.clone(), request));
    let moved = connection.clone();
    let stream = Watched::new(stream, move |count| moved.moved(count));
    let http = http1::Builder::new().max_buf_size(BUFFER_MAX).serve_connection(stream, service);

    let (mut http, mut closing, mut tick) = (pin!(http), pin!(closing), pin!(sleep(TICK)));
    let mut is_closing = false;
    let (mut quiet_ticks, mut progress_seen) = (0, 0);
    loop {
        let event = poll_fn(|cx| {
            if let Poll::Ready(result) = http.as_mut().poll(cx) {
                return Poll::Ready(Event::Ended(result));
            }
            if !is_closing && closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Closing);
            }
            tick.as_mut().poll(cx).map(|()| Event::Tick)
        });
        match event.await {
            Event::Ended(Ok(())) => return,
            Event::Ended(Err(error)) => return debug!(%error, "a connection ended early"),
            Event::Closing => {
                is_closing = true;
                http.as_mut().graceful_shutdown();
            }
            Event::Tick => {
                let progress = connection.progress.load(Ordering::Relaxed);
                quiet_ticks = if progress == progress_seen { quiet_ticks + 1 } else { 0 };
                if quiet_ticks == QUIET_TICKS_MAX || (quiet_ticks > 0 && connection.site.is_crowded()) {
                    return debug!("a connection on which nothing moved was closed");
                }
                progress_seen = progress;
                tick.set(sleep(TICK));
            }
        }
    }
}

enum Event {
    Ended(hyper::Result<()>),
    Closing,
    Tick,
}

/// Answers one request and counts it.
async fn answer(connection: Arc<Connection>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    connection.moved(1);
    let (parts, mut body) = request.into_parts();
    let fields = hyper_messages::fields(&parts.headers);
    let request = hyper_messages::request(&parts, &fields);
    let reply = connection.site.answer(&request, &mut RequestBody::new(&mut body), &connection.client).await;
    let is_last = reply.close;
    let mut response = hyper_messages::response(reply);
    if is_last {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

impl Connection {
    /// Notes progress. Only the connection's task does, so this needs no read-modify-write.
    fn moved(&self, by: u64) {
        self.progress.store(self.progress.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
}

/// What a connection may have in its buffers in each direction, and so the longest head of a request.
const BUFFER_MAX: usize = 64 * 1024;

/// A connection is closed when nothing moved for three ticks: 30 s for the headers of a request, for the next request
/// on an idle connection, and for a client to take some of its response. One timer per connection instead of one per
/// request; the price is that the 30 s may be 40.
const TICK: Duration = Duration::from_secs(10);
const QUIET_TICKS_MAX: u32 = 3;
