//! How a server is asked for.

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

/// Serves a service on a listener, over HTTP/1.1 and HTTP/2, until it is told to end: `serve(listener, service).await`.
///
/// The service is any `tower_service::Service` of HTTP requests with [`Body`](crate::Body): axum's `Router`, tonic's `Routes` and
/// servers, or a function in tower's `service_fn`. Limits and time-outs are on; the methods of [`Serve`] change them. Connections
/// have a color each, and so do streams of HTTP/2: requests are answered on all workers.
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

/// A server that is to be awaited; made by [`serve`].
///
/// # Cancel safety
///
/// Dropped while it serves, the server ends as if it had been told to, in the background: it accepts no more, and requests that are
/// being answered come to their end.
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
    /// The most connections at a time; by default what the limit on open files leaves room for, up to 100,000. That limit is raised as
    /// far as the system lets the process.
    ///
    /// Where all are taken, newcomers make others end that rest, without a request since the last, or without a whole one in the first
    /// second: those of the client with most connections, and of these who rests longest. If no place is free after 0.2 s, newcomers are
    /// refused with `503` and `Retry-After`.
    pub fn connections_max(mut self, connections_max: usize) -> Self {
        self.options.connections_max = Some(connections_max.max(1));
        self.connections.set_max(connections_max.clamp(1, descriptors::connections_max()));
        self
    }

    /// The most connections of one client at a time, an address or a `/64` of IPv6; no limit by default. More are turned away, whatever room
    /// there is. Behind a proxy all clients have one address.
    pub fn connections_per_client(self, connections_max: u32) -> Self {
        self.connections.set_per_address(PerAddress::Everybody(connections_max.max(1)));
        self
    }

    /// How long the head of a request may take, from its first byte, or from the connection's beginning, on; 10 s by default. Then
    /// comes `408`, and the connection ends. Handshakes of TLS have as much.
    pub fn header_timeout(mut self, limit: Duration) -> Self {
        self.options.header_timeout = limit;
        self
    }

    /// How long the head of a request may be; 64 KB by default and 8 KB at least. Beyond that, and beyond 100 fields, comes `431`.
    pub fn header_bytes_max(mut self, len: usize) -> Self {
        self.options.header_bytes_max = len.max(HEADER_BYTES_MIN);
        self
    }

    /// How long a handler may be kept waiting for a request's body in all; 30 s by default. Each [`rate_min`](Self::rate_min) bytes that
    /// come give a second more, up to the 30. Then the body ends with an error, and the client gets `408`.
    ///
    /// Once the reply has begun there is no limit: a client of a gRPC stream may pause. One that streams before it has a reply, and
    /// pauses, needs `None`, which is no limit at all.
    pub fn body_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.options.body_timeout = limit.into();
        self
    }

    /// How long the body of a request may be; 16 MB by default, `None` for no limit. Beyond that comes `413`: at once where the head says
    /// how long it is, and otherwise when so much has come. Holds until the reply begins.
    pub fn body_bytes_max(mut self, len: impl Into<Option<u64>>) -> Self {
        self.options.body_bytes_max = len.into();
        self
    }

    /// How long a client may take nothing of a reply; 30 s by default, and bytes extend it as they do
    /// [`body_timeout`](Self::body_timeout). Then its connection ends, in HTTP/2 the stream.
    pub fn send_timeout(mut self, limit: Duration) -> Self {
        self.options.send_timeout = limit;
        self
    }

    /// How many bytes a second a client has to send or take in the long run; 1,024 by default.
    pub fn rate_min(mut self, bytes_per_second: u64) -> Self {
        self.options.rate_min = bytes_per_second;
        self
    }

    /// How long a connection may rest between requests; 75 s by default.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.options.idle_timeout = limit;
        self
    }

    /// The most streams of one connection of HTTP/2 at a time; 128 by default. More are refused by the protocol.
    pub fn streams_max(mut self, streams_max: u32) -> Self {
        self.options.streams_max = streams_max.max(1);
        self
    }

    /// How many streams of one connection of HTTP/2 a client may reset before they were looked at; 20 by default. Beyond that its
    /// connection ends, as "rapid reset" is an attack. Where clients often give requests up, more are in order.
    pub fn resets_max(mut self, resets_max: usize) -> Self {
        self.options.resets_max = resets_max;
        self
    }

    /// How many bytes of a body wait in one stream of HTTP/2, in each direction; 64 KB by default. A connection has room for four times as
    /// many. More makes large bodies faster over a long way, and costs so much memory for each client that is slow.
    pub fn stream_window(mut self, len: u32) -> Self {
        self.options.stream_window = len.clamp(STREAM_WINDOW_MIN, STREAM_WINDOW_MAX);
        self
    }

    /// Replies to a client for which there is no connection, in the service's own words. By default that is `503` with `Retry-After`. Clients
    /// of HTTP/1.1 get it at once, those of HTTP/2 as the reply to each request.
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

    /// Chooses for [admission control](dapple_tower::admission), which is on by default: a request that would not be answered within
    /// the target delay is refused at once, with `503` and `Retry-After`, and so is one that lost its place to others while it waited.
    ///
    /// It measures what requests cost, apart for each method and target (path and query), and shares what there is among clients, an
    /// address (of IPv6 a `/64`) each. Requests for `/health`, `/healthz`, `/ready`, `/readyz`, `/live`, `/livez` and gRPC's health
    /// service are of class [`VITAL`](Class::VITAL), all others [`NORMAL`](Class::NORMAL). `grpc-timeout` is a deadline.
    pub fn admission(mut self, config: Config) -> Self {
        self.admission = Choice::Own(config);
        self
    }

    /// Sets the target delay of admission control: 100 ms by default.
    pub fn target_delay(self, target_delay: Duration) -> Self {
        self.admission(Config::with_target_delay(target_delay))
    }

    /// Takes every request, however many there are.
    pub fn no_admission(mut self) -> Self {
        self.admission = Choice::None;
        self
    }

    /// Decides about requests together with others: several servers of one runtime share its workers.
    pub fn share_admission(mut self, admission: Admission) -> Self {
        self.admission = Choice::Shared(admission);
        self
    }

    /// Gives requests classes: higher ones go first, and lower ones are refused first.
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

    /// Says more about requests than the server sees: whose they are, what they are like, when they must be done. The offer that is
    /// passed has what is known by default.
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

    /// Replies to what is refused in the service's own words, also where the service itself fails with a
    /// [`Refused`]. By default that is `503` with the reason and `Retry-After`, and for gRPC its status `UNAVAILABLE` with
    /// `grpc-retry-pushback-ms`, or `DEADLINE_EXCEEDED`. The handler has not begun, and what the request held has been dropped.
    /// Replies with a status of 400 and more get the reason in `refused-reason`, unless they have that field.
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

    /// Another process or server accepts on the same socket: at the end, clients that wait in it are left to that one. Otherwise they are
    /// served, as nothing else would.
    pub fn shares_listener(mut self) -> Self {
        self.options.shares_listener = true;
        self
    }

    /// How long clients have at the end to leave by themselves, as they hear of it in a way of their own; no time by default. Nothing is said
    /// on their connections until then, and no new ones are accepted.
    pub fn leave_timeout(mut self, limit: Duration) -> Self {
        self.options.leave_timeout = limit;
        self
    }

    /// How long connections that rest may wait, at the end, for one more request, in whose reply they are told that it is the last; 0.5 s
    /// by default.
    pub fn last_reply_timeout(mut self, limit: Duration) -> Self {
        self.options.last_reply_timeout = limit;
        self
    }

    /// How long the end may take in all; 30 s by default. Then connections are cut.
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.options.shutdown_timeout = limit;
        self
    }

    /// Ends the server when `shutdown` is ready, or [`ServeHandle::stop`] was called, or the runtime shuts down, whichever comes first.
    ///
    /// The end has stages. The server accepts whoever is connected already, and then no more: the listener is closed. Each reply is
    /// from then on the last on its connection (`connection: close`; in HTTP/2 `GOAWAY`, at once). After
    /// [`last_reply_timeout`](Self::last_reply_timeout) connections that rest are closed. Those that are left end with what they are
    /// doing, and are cut after [`shutdown_timeout`](Self::shutdown_timeout).
    pub fn with_graceful_shutdown(mut self, shutdown: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown = Some(Box::pin(shutdown));
        self
    }

    /// Ends the server at SIGTERM and SIGINT (Ctrl-C), and at once at the second of them.
    pub fn with_signals(mut self) -> Self {
        self.has_signals = true;
        self
    }

    /// Speaks TLS. Let the acceptor agree on `h2` and `http/1.1`: [`TlsAcceptor::with_alpn`](dapple_tls::TlsAcceptor::with_alpn).
    #[cfg(feature = "tls")]
    pub fn tls(mut self, acceptor: dapple_tls::TlsAcceptor) -> Self {
        self.tls = Some(acceptor);
        self
    }

    /// By which the server can be ended and looked at.
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

/// A server that serves, as a future; what `Serve` turns into. Cancel safe as [`Serve`] says.
///
/// # Errors
///
/// The listener is of no more use, or a signal cannot be watched.
pub struct Serving {
    stop: CancellationToken,
    start: Option<Box<dyn FnOnce() -> JoinHandle<io::Result<()>> + Send>>,
    task: Option<JoinHandle<io::Result<()>>>,
}

impl Future for Serving {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(start) = self.start.take() {
            // In a task of its own: whoever awaits this may be no worker, and accepting from there would take a detour.
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
