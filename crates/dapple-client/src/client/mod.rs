//! The client for programs.

mod body;
mod builder;
#[cfg(feature = "decompression")]
mod decode;
mod error;
mod exchange;
mod redirect;
mod request_body;
mod response;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dapple_io::time::{Instant, timeout_at};
use dapple_sync::task::TraceContext;
use dapple_tower::middleware::retry::Budget;
use http::{Method, Request};

use crate::upstream::Hosts;

pub use self::body::ResponseBody;
pub use self::builder::ClientBuilder;
pub use self::error::{Error, Phase};
pub use self::request_body::Body;
pub use self::response::Response;

/// An HTTP client with a pool of connections, redirects and time limits.
///
/// It speaks HTTP/2 if the server offers it over TLS, and HTTP/1.1 otherwise. A clone is cheap and
/// shares the pool: make one client, and keep it. Names, sockets, timers and TLS are Dapple's;
/// requests run in the color of the task that makes them, and each connection in a color of its
/// own.
///
/// | limit | default | changed by |
/// |---|---|---|
/// | connections to one server | 100, and 100 streams on each HTTP/2 connection | [`connections_per_host`](ClientBuilder::connections_per_host) |
/// | idle connections | 32 to one server, for 60 s | [`idle_per_host`](ClientBuilder::idle_per_host), [`idle_timeout`](ClientBuilder::idle_timeout) |
/// | time to connect, including TLS | 10 s | [`connect_timeout`](ClientBuilder::connect_timeout) |
/// | time until the head of a response | 60 s | [`head_timeout`](ClientBuilder::head_timeout) |
/// | time between two pieces of a body | 60 s | [`read_timeout`](ClientBuilder::read_timeout) |
/// | time for the whole request, including redirects and the body | no limit | [`timeout`](ClientBuilder::timeout) |
/// | length that [`Response::bytes`] accepts, decompressed | 16 MiB | [`body_bytes_max`](ClientBuilder::body_bytes_max) |
/// | redirects | 10; never from `https` to `http` | [`redirects_max`](ClientBuilder::redirects_max) |
///
/// The head of a response may have 64 KiB and 256 fields. If the server had just closed the
/// connection, the client sends the request once more on a fresh one, provided that nothing of it
/// had been sent, or its method is idempotent and its body is at hand; such retries are at most a
/// fifth of all requests, plus ten per second. The client ignores proxies in the environment
/// (`http_proxy` and the like).
///
/// ```
/// use dapple_client::Client;
/// # use dapple_io::net::TcpListener;
///
/// # let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// # runtime.block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0")?;
/// # let url = format!("http://{}/", listener.local_addr()?);
/// # drop(dapple_sched::spawn(async move {
/// #     let (stream, _) = listener.accept().await?;
/// #     stream.read(&mut [0; 1000]).await?;
/// #     stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await
/// # }));
/// let client = Client::new()?;
/// let text = client.get(&url).await?.error_for_status()?.text().await?;
/// assert_eq!(text, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    hosts: Hosts<Body>,
    options: Options,
    budget: Budget,
}

#[derive(Clone, Debug)]
struct Options {
    head_timeout: Duration,
    read_timeout: Duration,
    timeout: Option<Duration>,
    redirects_max: usize,
    body_bytes_max: usize,
    http2_prior_knowledge: bool,
    decompresses: bool,
    user_agent: http::HeaderValue,
}

impl Drop for Inner {
    /// Retires all servers, because an idle connection holds its server and so keeps itself open.
    fn drop(&mut self) {
        self.hosts.retire();
    }
}

impl Client {
    /// Creates a client with the limits of the table.
    ///
    /// # Errors
    ///
    /// None are known.
    pub fn new() -> Result<Client, Error> {
        Client::builder().build()
    }

    /// Returns a builder, for other limits.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Requests a page. The body is still in transit when this resolves.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it ends the request: it closes the HTTP/1.1 connection, or
    /// resets the HTTP/2 stream. The server may have handled the request.
    ///
    /// # Errors
    ///
    /// [`Error`]; a status such as 404 is not an error, see [`Response::error_for_status`].
    pub async fn get(&self, url: &str) -> Result<Response, Error> {
        self.send(Request::new(Body::empty()), redirect::parse(url)?).await
    }

    /// Sends a request, and resolves to its response once the response's head has arrived. The URI
    /// has scheme and host. The client sets `Host`, `Content-Length` and `Transfer-Encoding`, and
    /// `User-Agent`, `Accept` and `Accept-Encoding` if the request has none; inside a handler also `traceparent`, so that
    /// the request can be followed from program to program.
    ///
    /// ```no_run
    /// # async fn post(client: dapple_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use dapple_client::Request;
    ///
    /// let request = Request::post("https://api.example/items").header("content-type", "text/plain").body("an item")?;
    /// let response = client.request(request).await?.error_for_status()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As [`get`](Client::get).
    ///
    /// # Errors
    ///
    /// [`Error`]. `CONNECT` and changes of protocol are [`Error::Unsupported`].
    pub async fn request<B: Into<Body>>(&self, request: Request<B>) -> Result<Response, Error> {
        let url = redirect::parse(&request.uri().to_string())?;
        if request.method() == Method::CONNECT {
            return Err(Error::Unsupported("CONNECT"));
        }
        self.send(request.map(Into::into), url).await
    }

    /// The number of connections, and of idle HTTP/1.1 ones.
    pub fn connections(&self) -> (usize, usize) {
        self.inner.hosts.connections()
    }

    async fn send(&self, mut request: Request<Body>, url: url::Url) -> Result<Response, Error> {
        if let Some(context) = TraceContext::current()
            && let Ok(value) = http::HeaderValue::from_str(&context.to_string())
        {
            request.headers_mut().entry(TraceContext::HEADER).or_insert(value);
        }
        let Some(limit) = self.inner.options.timeout else {
            return exchange::send(&self.inner, request, url, None).await;
        };
        let deadline = Instant::now() + limit;
        let late = Error::TimedOut { phase: Phase::Whole, limit };
        let sending = exchange::send(&self.inner, request, url, Some((deadline, limit)));
        timeout_at(deadline, sending).await.unwrap_or(Err(late))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.inner.options).finish_non_exhaustive()
    }
}
