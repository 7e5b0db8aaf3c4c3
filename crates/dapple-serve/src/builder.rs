//! The builder for a server.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::JoinHandle;
use dapple_sync::task::CancellationToken;
use dapple_tower::Refused;
use dapple_tower::admission::{Admission, Class, Config, Offer};
use http::Response;
use http::request::Parts;

use crate::admission::{Choice, Describe, Gate};
use crate::descriptors;
use crate::handle::{Counts, Numbers, ServeHandle};
use crate::host::{Admission as ConnectionAdmission, PerAddress};
use crate::options::{HEADER_BYTES_MIN, Options, STREAM_WINDOW_MAX, STREAM_WINDOW_MIN};
use crate::request::OnRefusal;
use crate::service::HttpService;
use crate::tower::OnFull;
use dapple_io::net::{Listener, Peer};

/// Serves a service on a listener, over HTTP/1.1 and HTTP/2, until it is told to end:
/// `serve(listener, service).await`.
///
/// The service is any `tower_service::Service` of HTTP requests with [`Body`](crate::Body): axum's
/// `Router`, tonic's `Routes` and servers, or a function in tower's `service_fn`. Limits and
/// time-outs are on; the methods of [`Serve`] change them. Each connection and each HTTP/2 stream
/// has a color of its own, so all workers answer requests.
///
/// ```
/// use std::convert::Infallible;
/// use std::io::{Read, Write};
/// use dapple_io::net::TcpListener;
/// use dapple_serve::{Body, serve};
/// use http::{Request, Response};
///
/// // With tower it is `service_fn(|_| async { … })`, with axum a `Router`.
/// #[derive(Clone)]
/// struct Hello;
///
/// impl tower_service::Service<Request<Body>> for Hello {
///     type Response = Response<String>;
///     type Error = Infallible;
///     type Future = std::future::Ready<Result<Response<String>, Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
///         std::task::Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, _: Request<Body>) -> Self::Future {
///         std::future::ready(Ok(Response::new("hello".to_owned())))
///     }
/// }
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// let listener = runtime.block_on(async { TcpListener::bind("127.0.0.1:0") })?;
/// let address = listener.local_addr()?;
/// runtime.spawn(async move { serve(listener, Hello).await });
///
/// let mut client = std::net::TcpStream::connect(address)?;
/// client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
/// let mut reply = String::new();
/// client.read_to_string(&mut reply)?;
/// assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.ends_with("hello"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn serve<L: Listener, V: HttpService>(listener: L, service: V) -> Serve<L, V> {
    Serve {
        listener,
        service,
        options: Options::default(),
        stop: CancellationToken::new(),
        connections: Arc::new(ConnectionAdmission::new(descriptors::connections_max(), PerAddress::Unlimited)),
        counts: Arc::default(),
        gate: Arc::default(),
        numbers: Arc::default(),
        admission: Choice::Own(Config::default()),
        describe: Vec::new(),
        on_refusal: None,
        on_full: None,
        shutdown: None,
        has_signals: false,
        #[cfg(feature = "tls")]
        tls: None,
    }
}

/// A server that starts when it is awaited; made by [`serve`].
///
/// # Cancel safety
///
/// If dropped while it serves, the server shuts down in the background as on request: it accepts no
/// more connections, and finishes the requests that it is answering.
#[must_use = "a server serves when it is awaited"]
pub struct Serve<L, V> {
    pub(crate) listener: L,
    pub(crate) service: V,
    pub(crate) options: Options,
    pub(crate) stop: CancellationToken,
    pub(crate) connections: Arc<ConnectionAdmission>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) gate: Arc<OnceLock<Arc<Gate>>>,
    pub(crate) numbers: Arc<OnceLock<Arc<Numbers>>>,
    pub(crate) admission: Choice,
    pub(crate) describe: Vec<Describe>,
    pub(crate) on_refusal: Option<OnRefusal>,
    pub(crate) on_full: Option<OnFull>,
    pub(crate) shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pub(crate) has_signals: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<dapple_tls::TlsAcceptor>,
}

impl<L, V> Serve<L, V> {
    /// Sets the most connections at a time; by default as many as the limit on open files leaves
    /// room for, up to 100,000. The server raises that limit as far as the system allows.
    ///
    /// When all are taken, newcomers displace idle connections: those that wait for their next
    /// request, and those that have not sent a whole request after their first second. The client
    /// with the most connections loses its longest idle connection first. If no place is free after
    /// 0.2 s, newcomers are refused with `503` and `Retry-After`.
    pub fn connections_max(mut self, connections_max: usize) -> Self {
        self.options.connections_max = Some(connections_max.max(1));
        self.connections.set_max(connections_max.clamp(1, descriptors::connections_max()));
        self
    }

    /// Sets the most connections of one client at a time; 0, the default, is no limit. A client is an
    /// address, or a `/64` of IPv6. The server turns more away even when there is room. Behind a
    /// proxy all clients have one address.
    pub fn connections_per_client(self, connections_max: u32) -> Self {
        self.connections.set_per_address(match connections_max {
            0 => PerAddress::Unlimited,
            max => PerAddress::Everybody(max),
        });
        self
    }

    /// Sets how long the head of a request may take, from its first byte or from the start of the
    /// connection; 10 s by default. Then the server replies `408` and ends the connection. TLS
    /// handshakes have the same limit.
    pub fn head_timeout(mut self, limit: Duration) -> Self {
        self.options.head_timeout = limit;
        self
    }

    /// Sets how long the head of a request may be, in bytes; 64 KB by default and at least 8 KB.
    /// Longer heads, and heads with more than 100 fields, get `431`.
    pub fn head_max_bytes(mut self, len: usize) -> Self {
        self.options.head_max_bytes = len.max(HEADER_BYTES_MIN);
        self
    }

    /// Sets how long a handler may wait for a request's body in total; 30 s by default. Each
    /// [`receive_rate_min`](Self::receive_rate_min) bytes that arrive give one more second, up to the limit again.
    /// Then the body ends with an error, and the client gets `408`.
    ///
    /// There is no limit once the reply has begun: the client of a gRPC stream may pause. A client
    /// that streams and pauses before it gets a reply needs `None`, which means no limit.
    pub fn body_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.options.body_timeout = limit.into();
        self
    }

    /// Sets how long the body of a request may be, in bytes; 16 MB by default, `None` for no limit.
    /// A longer body gets `413`: at once if the head states the length, otherwise when the limit is
    /// exceeded. Holds until the reply begins.
    pub fn body_max_bytes(mut self, len: impl Into<Option<u64>>) -> Self {
        self.options.body_max_bytes = len.into();
        self
    }

    /// Sets how long a client may stop reading a reply; 30 s by default. Bytes that it takes extend
    /// the time as in [`body_timeout`](Self::body_timeout). Then its connection ends; in HTTP/2,
    /// its stream.
    pub fn pause_timeout(mut self, limit: Duration) -> Self {
        self.options.pause_timeout = limit;
        self
    }

    /// Sets the bytes of a body per second that a client must send on average; 1,024 by default.
    pub fn receive_rate_min(mut self, bytes_per_second: u64) -> Self {
        self.options.receive_rate_min = bytes_per_second;
        self
    }

    /// Sets how many bytes of a reply per second a client must take on average; 1,024 by default, 0
    /// is no limit.
    pub fn send_rate_min(mut self, bytes_per_second: u64) -> Self {
        self.options.send_rate_min = bytes_per_second;
        self
    }

    /// Sets how long a connection may be idle between requests; 75 s by default.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.options.idle_timeout = limit;
        self
    }

    /// Sets the most streams of one HTTP/2 connection at a time; 128 by default. The protocol
    /// refuses more.
    pub fn streams_max(mut self, streams_max: u32) -> Self {
        self.options.streams_max = streams_max.max(1);
        self
    }

    /// Sets how many streams of one HTTP/2 connection a client may reset before the server read
    /// them; 20 by default. Beyond that the connection ends, because "rapid reset" is an attack.
    /// Raise it for clients that often cancel requests.
    pub fn resets_max(mut self, resets_max: usize) -> Self {
        self.options.resets_max = resets_max;
        self
    }

    /// Sets how many bytes of a body wait in one HTTP/2 stream, in each direction; 64 KB by
    /// default. A connection has room for four times as many. A larger window makes large bodies
    /// faster over long distances, and costs that much memory for each slow client.
    pub fn stream_window_bytes(mut self, len: u32) -> Self {
        self.options.stream_window_bytes = len.clamp(STREAM_WINDOW_MIN, STREAM_WINDOW_MAX);
        self
    }

    /// Sets the reply to a client that gets no connection; `503` with `Retry-After` by default.
    /// HTTP/1.1 clients get it at once, HTTP/2 clients as the reply to each request.
    ///
    /// ```
    /// use http::{Response, StatusCode};
    ///
    /// # fn with<L, V>(server: dapple_serve::Serve<L, V>) -> dapple_serve::Serve<L, V> {
    /// server.on_full(|| {
    ///     let mut response = Response::new("{\"error\":\"full\"}".to_owned());
    ///     *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    ///     response
    /// })
    /// # }
    /// ```
    pub fn on_full(mut self, reply: impl Fn() -> Response<String> + Send + Sync + 'static) -> Self {
        self.on_full = Some(Arc::new(reply));
        self
    }

    /// Configures [admission control](dapple_tower::admission), which is on by default: it refuses
    /// at once, with `503` and `Retry-After`, a request that would miss the target delay, and a
    /// waiting request that lost its place to others.
    ///
    /// It measures the cost of requests for each method and target (path and query), and shares
    /// capacity among clients (an address, or a `/64` of IPv6). Requests for `/health`, `/healthz`,
    /// `/ready`, `/readyz`, `/live`, `/livez` and gRPC's health service are of class
    /// [`VITAL`](Class::VITAL), all others [`NORMAL`](Class::NORMAL). `grpc-timeout` is a deadline.
    pub fn admission(mut self, config: Config) -> Self {
        self.admission = Choice::Own(config);
        self
    }

    /// Sets the target delay of admission control: 100 ms by default.
    pub fn target_delay(self, target_delay: Duration) -> Self {
        self.admission(Config::with_target_delay(target_delay))
    }

    /// Turns admission control off: the server takes every request.
    pub fn no_admission(mut self) -> Self {
        self.admission = Choice::None;
        self
    }

    /// Uses an admission control that others use too: several servers of one runtime share its
    /// workers.
    pub fn share_admission(mut self, admission: Admission) -> Self {
        self.admission = Choice::Shared(admission);
        self
    }

    /// Sets the classes of requests: higher classes go first, and lower ones are refused first.
    ///
    /// ```
    /// # fn with<L, V>(server: dapple_serve::Serve<L, V>) -> dapple_serve::Serve<L, V> {
    /// use dapple_tower::admission::Class;
    ///
    /// server.classify(|request, _peer| match request.headers.contains_key("x-api-key") {
    ///     true => Class::HIGH,
    ///     false => Class::NORMAL,
    /// })
    /// # }
    /// ```
    pub fn classify(self, classify: impl Fn(&Parts, &Peer) -> Class + Send + Sync + 'static) -> Self {
        self.describe(move |parts, peer, offer| offer.class(classify(parts, peer)))
    }

    /// Describes requests beyond what the server sees: their client, their kind, their deadline.
    /// The closure gets the default offer.
    ///
    /// ```
    /// # fn with<L, V>(server: dapple_serve::Serve<L, V>) -> dapple_serve::Serve<L, V> {
    /// use std::hash::{DefaultHasher, Hash, Hasher};
    ///
    /// // Behind a proxy, all connections have one address; who asks is in a field.
    /// server.describe(|request, _peer, offer| {
    ///     let mut hasher = DefaultHasher::new();
    ///     request.headers.get("x-real-ip").hash(&mut hasher);
    ///     offer.client(hasher.finish())
    /// })
    /// # }
    /// ```
    pub fn describe(mut self, describe: impl Fn(&Parts, &Peer, Offer) -> Offer + Send + Sync + 'static) -> Self {
        self.describe.push(Arc::new(describe));
        self
    }

    /// Sets the reply to a refused request, also if the service itself fails with a [`Refused`]. By
    /// default that is `503` with the reason and `Retry-After`, and for gRPC its status
    /// `UNAVAILABLE` with `grpc-retry-pushback-ms`, or `DEADLINE_EXCEEDED`. The handler has not
    /// begun, and the request has been dropped. Replies with a status of 400 or more get the reason
    /// in `refused-reason`, unless they have that field.
    ///
    /// ```
    /// # fn with<L, V>(server: dapple_serve::Serve<L, V>) -> dapple_serve::Serve<L, V> {
    /// use http::{Response, StatusCode};
    ///
    /// server.on_refusal(|refused| {
    ///     let mut response = Response::new(format!("{{\"error\":\"{}\"}}", refused.reason));
    ///     *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    ///     response
    /// })
    /// # }
    /// ```
    pub fn on_refusal(mut self, reply: impl Fn(&Refused) -> Response<String> + Send + Sync + 'static) -> Self {
        self.on_refusal = Some(Arc::new(reply));
        self
    }

    /// States that another process or server accepts on the same socket: at the end, clients that
    /// wait in the socket are left to it. Otherwise this server serves them.
    pub fn shares_listener(mut self) -> Self {
        self.options.shares_listener = true;
        self
    }

    /// Sets how long clients have to leave by themselves at the end, for a program that announces
    /// the end in its own way; zero by default. Meanwhile connections get no notice, and the server
    /// accepts no new ones.
    pub fn leave_timeout(mut self, limit: Duration) -> Self {
        self.options.leave_timeout = limit;
        self
    }

    /// Sets how long idle connections stay open at the end for one more request; its reply says
    /// that it is the last. 0.5 s by default.
    pub fn last_reply_timeout(mut self, limit: Duration) -> Self {
        self.options.last_reply_timeout = limit;
        self
    }

    /// Sets how long the end may take in total; 30 s by default. Then the server cuts the remaining
    /// connections.
    pub fn drain(mut self, limit: Duration) -> Self {
        self.options.drain = limit;
        self
    }

    /// Ends the server when `shutdown` is ready, or [`ServeHandle::stop`] was called, or the
    /// runtime shuts down, whichever comes first.
    ///
    /// The end has stages. The server accepts the clients that are connected already, then closes
    /// the listener. From then on each reply is the last on its connection (`connection: close`; in
    /// HTTP/2 `GOAWAY`, at once). After [`last_reply_timeout`](Self::last_reply_timeout) idle
    /// connections are closed. Busy connections finish their work, and are cut after
    /// [`drain`](Self::drain).
    pub fn with_graceful_shutdown(mut self, shutdown: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = Some(Box::pin(shutdown));
        self
    }

    /// Ends the server at SIGTERM and SIGINT (Ctrl-C), and at once at the second signal.
    pub fn with_signals(mut self) -> Self {
        self.has_signals = true;
        self
    }

    /// Speaks TLS. Let the acceptor agree on `h2` and `http/1.1`:
    /// [`TlsAcceptor::with_alpn`](dapple_tls::TlsAcceptor::with_alpn).
    #[cfg(feature = "tls")]
    pub fn tls(mut self, acceptor: dapple_tls::TlsAcceptor) -> Self {
        self.tls = Some(acceptor);
        self
    }

    /// Runs the service's handlers and reply bodies with the context of a tokio runtime, so that libraries made for tokio work in them:
    /// `tokio::spawn`, reqwest, sqlx, axum's `ws`. The rest of the program needs no adapter.
    ///
    /// The server takes the runtime of the caller's tokio context, or else starts a separate one,
    /// with one thread. Its own runtime ends with the server, and drops the tasks that are left in
    /// it. A Dapple runtime that was built with `tokio()` needs no call of this.
    ///
    /// Cost: the context is entered at each poll of a handler and of a reply's body; other servers of the process pay nothing.
    ///
    /// # Errors
    ///
    /// The system's, if the tokio runtime cannot start.
    #[cfg(feature = "tokio-compat")]
    pub fn with_tokio(self) -> io::Result<Serve<L, crate::WithTokio<V>>> {
        Ok(Serve {
            service: crate::WithTokio::new(self.service)?,
            listener: self.listener,
            options: self.options,
            stop: self.stop,
            connections: self.connections,
            counts: self.counts,
            gate: self.gate,
            numbers: self.numbers,
            admission: self.admission,
            describe: self.describe,
            on_refusal: self.on_refusal,
            on_full: self.on_full,
            shutdown: self.shutdown,
            has_signals: self.has_signals,
            #[cfg(feature = "tls")]
            tls: self.tls,
        })
    }

    /// Returns a handle that can end and inspect the server.
    pub fn handle(&self) -> ServeHandle {
        let (stop, connections) = (self.stop.clone(), self.connections.clone());
        ServeHandle {
            stop,
            connections,
            counts: self.counts.clone(),
            gate: self.gate.clone(),
            numbers: self.numbers.clone(),
        }
    }
}

impl<L: Listener, V: HttpService> IntoFuture for Serve<L, V> {
    type Output = io::Result<()>;
    type IntoFuture = Serving;

    fn into_future(self) -> Serving {
        Serving { stop: self.stop.clone(), start: Some(Box::new(move || dapple_sched::spawn(self.run()))), task: None }
    }
}

/// A running server, as a future; `Serve` turns into it. Cancel safe as [`Serve`] says.
///
/// # Errors
///
/// The listener no longer works, or a signal cannot be watched.
pub struct Serving {
    stop: CancellationToken,
    start: Option<Box<dyn FnOnce() -> JoinHandle<io::Result<()>> + Send>>,
    task: Option<JoinHandle<io::Result<()>>>,
}

impl Future for Serving {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(start) = self.start.take() {
            // In a task of its own: the awaiting thread may not be a worker, and accepting from
            // there would be slower.
            self.task = Some(start());
        }
        let task = self.task.as_mut().expect("it was started above");
        Pin::new(task).poll(cx).map(|result| result.unwrap_or_else(|error| Err(io::Error::other(error.to_string()))))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl<L, V> fmt::Debug for Serve<L, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").field("options", &self.options).finish_non_exhaustive()
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}
