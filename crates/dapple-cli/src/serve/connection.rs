//! One connection: its requests are read, answered and written in its own color, by hyper.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use dapple::Color;
use dapple::net::TcpStream;
use dapple::time::sleep;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode, Version};
use tracing::{debug, error};

use super::body::{FileStream, ReplyBody};
use super::counters::OpenConnection;
use super::pages::Content;
use super::path::{PathError, SitePath};
use super::reply::{self, Reply};
use super::site::Site;
use super::status;
use super::watched::Watched;

/// What the parts of a connection share; all of them run in its task.
struct Connection {
    site: Arc<Site>,
    /// The color of this connection, to show. Taken at the start: while a task holds a shard, that is the current one.
    color: u64,
    /// Grows with every request and every written byte; only compared, so it may wrap.
    progress: AtomicU64,
}

/// Serves one connection until either side is done with it, nothing moves any more, or the server closes.
pub(crate) async fn serve(stream: TcpStream, site: Arc<Site>, _open: OpenConnection) {
    let closing = site.handle.closing();
    let connection = Arc::new(Connection { site, color: Color::current().id(), progress: AtomicU64::new(0) });
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
async fn answer(connection: Arc<Connection>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    connection.moved(1);
    let mut reply = respond(&connection, &request).await;
    if connection.site.is_crowded() {
        reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    connection.site.counters.add_request(reply::body_len(&reply));
    Ok(reply)
}

async fn respond(connection: &Connection, request: &Request<Incoming>) -> Reply {
    let site = &*connection.site;
    let head = request.method() == Method::HEAD;
    if !head && request.method() != Method::GET {
        return reply::problem(StatusCode::METHOD_NOT_ALLOWED, head);
    }
    if !has_host(request) {
        return reply::problem(StatusCode::BAD_REQUEST, head);
    }
    let raw_path = request.uri().path();
    if raw_path == status::PATH && site.status {
        return reply::json(status::collect(site, connection.color).await, head);
    }
    let path = match SitePath::parse(raw_path) {
        Ok(path) => path,
        Err(PathError::Bad) => return reply::problem(StatusCode::BAD_REQUEST, head),
        Err(PathError::Missing) => return reply::problem(StatusCode::NOT_FOUND, head),
    };
    match site.find(&path).await {
        Ok(Content::Page(page)) => {
            let body = |bytes: Range<u64>| ReplyBody::Whole(page.body.slice(bytes.start as usize..bytes.end as usize));
            reply::file(request.headers(), head, &page.meta, page.body.len() as u64, body)
        }
        Ok(Content::File(file)) => {
            let body = |bytes| ReplyBody::Stream(FileStream::new(file.clone(), bytes, site.counters.clone()));
            reply::file(request.headers(), head, &file.meta, file.meta.stamp.len, body)
        }
        Ok(Content::Directory) => reply::with_slash(raw_path, request.uri().query(), head),
        Ok(Content::Nothing) => reply::problem(StatusCode::NOT_FOUND, head),
        Err(error) => {
            error!(%error, path = raw_path, "a request could not be answered");
            reply::problem(StatusCode::INTERNAL_SERVER_ERROR, head)
        }
    }
}

/// HTTP/1.1 requires exactly one `Host` (RFC 9112, 3.2); hyper leaves that to us.
fn has_host(request: &Request<Incoming>) -> bool {
    if request.version() != Version::HTTP_11 {
        return true;
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    hosts.next().is_some() && hosts.next().is_none()
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
