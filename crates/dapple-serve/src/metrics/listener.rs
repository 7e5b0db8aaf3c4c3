//! The metrics address: `GET /metrics` and `GET /-/healthy`, and nothing else.

use std::future::Future;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple::net::{TcpListener, TcpStream};
use dapple::time::sleep;
use dapple::{Color, Handle};
use dapple_http::Request;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tracing::warn;

use super::exposition::CONTENT_TYPE as EXPOSITION;
use crate::http::connection::Terms;
use crate::http::{Body, Borrowed, Client, Limits, Reply, RequestBody, Service, http1};
use crate::server::Link;

/// Whose numbers are asked for.
pub(crate) trait Numbers: Send + Sync + 'static {
    /// The page, as Prometheus reads it.
    fn collect(&self) -> impl Future<Output = String> + Send;
}

/// Answers for as long as the server runs, its end included: the last numbers are worth reading.
pub(crate) async fn serve<N: Numbers>(listener: TcpListener, numbers: Arc<N>) {
    let service = Arc::new(Page { numbers });
    let limits = Arc::new(Limits::default());
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let (stream, addr) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection for metrics could not be accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        // Whoever asks for numbers is known and asks now and then; more than these are a mistake.
        if open.fetch_add(1, Ordering::Relaxed) >= OPEN_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (service, limits, place) = (service.clone(), limits.clone(), Open(open.clone()));
        drop(Color::new().spawn_background(async move {
            let client = Client { addr, is_secure: false, color: Color::current().id(), alternative: None };
            answer(stream, service, client, limits).await;
            drop(place);
        }));
    }
}

async fn answer<N: Numbers>(stream: TcpStream, service: Arc<Page<N>>, client: Client, limits: Arc<Limits>) {
    // HTTP/2 by prior knowledge is not spoken here.
    let link = Arc::new(Link::new(None));
    drop(
        http1::serve(stream, Borrowed::new(service, client), Terms { limits, handle: Some(&Handle::current()), link })
            .await,
    );
}

/// Prints the address, as it may have been given with port 0.
pub(crate) fn announce(listener: &TcpListener) {
    let addr = listener.local_addr().map(|addr| addr.to_string()).unwrap_or_else(|error| error.to_string());
    let mut stdout = io::stdout().lock();
    // A closed stdout is no reason not to serve.
    let _ = writeln!(stdout, "dapple: metrics on http://{addr}/metrics").and_then(|()| stdout.flush());
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Page<N> {
    numbers: Arc<N>,
}

impl<N: Numbers> Service for Page<N> {
    async fn answer(&self, request: &Request<'_>, _body: &mut RequestBody<'_>, _client: &Client) -> Reply {
        if request.method != Method::GET && request.method != Method::HEAD {
            let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here\n".to_owned(), TEXT);
            reply.headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return reply;
        }
        match request.path {
            "/metrics" => text(StatusCode::OK, self.numbers.collect().await, EXPOSITION),
            "/-/healthy" => text(StatusCode::OK, "ok\n".to_owned(), TEXT),
            _ => text(StatusCode::NOT_FOUND, "here are /metrics and /-/healthy\n".to_owned(), TEXT),
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

/// How many connections are answered at the same time.
const OPEN_MAX: usize = 16;

const PAUSE: Duration = Duration::from_millis(100);
