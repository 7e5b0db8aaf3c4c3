//! The metrics address: `GET /metrics` and `GET /-/healthy` only.

use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;
use std::sync::Arc;

use dapple_http::Request;
use dapple_io::net::{Peer, TcpListener, TcpStream};
use dapple_sched::{Color, Handle};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tracing::warn;

use super::exposition::CONTENT_TYPE as EXPOSITION;
use crate::host::{Admission, AdmittedConnection, Host, PerAddress, accept};
use crate::http::connection::Terms;
use crate::http::{Body, Borrowed, Client, Reply, RequestBody, Service, http1};

/// The source of metrics.
pub trait Numbers: Send + Sync + 'static {
    /// Returns the page in Prometheus text format.
    fn collect(&self) -> impl Future<Output = String> + Send;
}

/// Serves the page as long as the server runs, including the server's end, because the last values
/// matter.
pub async fn serve<N: Numbers>(listener: TcpListener, numbers: Arc<N>) {
    serve_pages(listener, Arc::new(Page { numbers })).await;
}

/// Serves pages about the program to few clients, as [`serve`] does.
pub async fn serve_pages<V: Service>(listener: TcpListener, pages: Arc<V>) {
    let admission = Arc::new(Admission::new(OPEN_MAX, PerAddress::Unlimited));
    if let Err(error) = accept(listener, Arc::new(Pages(pages)), admission).await {
        warn!(%error, "the pages about this program are no longer served");
    }
}

/// Serves the pages on each connection.
struct Pages<V>(Arc<V>);

impl<V: Service> Host for Pages<V> {
    type Connection = TcpStream;

    fn serve(&self, stream: TcpStream, peer: Peer, place: AdmittedConnection) {
        let (page, Some(addr)) = (self.0.clone(), peer.addr()) else { return place.finish() };
        self.spawn(async move {
            let client = Client { addr, is_secure: false, color: Color::current().id(), alternative: None };
            let (handle, link) = (Handle::current(), place.link().clone());
            let terms = Terms { limits: Arc::default(), handle: Some(&handle), link: link.clone() };
            // HTTP/2 by prior knowledge is not supported here.
            let serving = pin!(http1::serve(stream, Borrowed::new(page, client), terms));
            drop(link.unless_cut(serving).await);
            place.finish();
        });
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(Color::new().spawn_background(task));
    }

    fn is_plain(&self) -> bool {
        true
    }
}

/// Prints the address, because the given one may have port 0.
pub fn announce(listener: &TcpListener) {
    let addr = listener.local_addr().map(|addr| addr.to_string()).unwrap_or_else(|error| error.to_string());
    let mut stdout = io::stdout().lock();
    // A closed stdout must not stop the server.
    let _ = writeln!(stdout, "dapple: metrics on http://{addr}/metrics").and_then(|()| stdout.flush());
}

struct Page<N> {
    numbers: Arc<N>,
}

impl<N: Numbers> Service for Page<N> {
    async fn answer(&self, request: &Request<'_>, _body: &mut RequestBody<'_>, _client: &Client) -> Reply {
        if request.method != Method::GET && request.method != Method::HEAD {
            let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed here\n".to_owned(), TEXT);
            reply.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        match request.path {
            "/metrics" => text(StatusCode::OK, self.numbers.collect().await, EXPOSITION),
            "/-/healthy" => text(StatusCode::OK, "ok\n".to_owned(), TEXT),
            _ => text(StatusCode::NOT_FOUND, "not found; try /metrics or /-/healthy\n".to_owned(), TEXT),
        }
    }

    fn refuse(&self, status: StatusCode, reason: &str, _client: &Client) -> Reply {
        text(status, format!("{reason}\n"), TEXT)
    }
}

fn text(status: StatusCode, text: String, content_type: &'static str) -> Reply {
    let mut headers = HeaderMap::with_capacity(3);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Reply::new(status, headers, Body::Whole(text.into()))
}

const TEXT: &str = "text/plain; charset=utf-8";

/// The most connections served at the same time.
const OPEN_MAX: usize = 16;
