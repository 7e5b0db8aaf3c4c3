//! A server: its options, its life, its end.

use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_io::hyper_rt::Timer;
use dapple_io::signal::{SIGINT, SIGTERM, Signal, signal};
use dapple_io::time::timeout;
use dapple_sched::{Handle, JoinHandle};
use dapple_sync::task::CancellationToken;
use hyper_util::server::conn::auto;
use tracing::{info, warn};

use crate::accept::{Accepting, unless};
use crate::connection::{Order, Streams};
use crate::connections::Connections;
use crate::descriptors;
use crate::handle::{Counts, ServeHandle};
use crate::listener::Listener;
use crate::options::{HEADER_BYTES_MIN, Options};
use crate::service::HttpService;

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
        connections: Arc::new(Connections::new(descriptors::connections_max())),
        counts: Arc::default(),
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
    listener: L,
    service: V,
    options: Options,
    stop: CancellationToken,
    connections: Arc<Connections>,
    counts: Arc<Counts>,
    shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    has_signals: bool,
    #[cfg(feature = "tls")]
    tls: Option<dapple_tls::TlsAcceptor>,
}

/// What all connections of a server share.
pub(crate) struct Shared {
    pub(crate) options: Arc<Options>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) http: auto::Builder<Streams>,
}

impl<L, V> Serve<L, V> {
    /// The most connections at a time; by default what the limit on open files leaves room for, up to 100,000. That limit is raised as
    /// far as the system lets the process.
    ///
    /// Where all are taken, those are closed that have rested longest: without a request since the last, or without a whole one in the
    /// first second. Newcomers wait 0.2 s for a place, in the kernel, and are then refused with `503` and `Retry-After`.
    pub fn connections_max(mut self, connections_max: usize) -> Self {
        self.options.connections_max = Some(connections_max.max(1));
        self.connections.set_max(connections_max.clamp(1, descriptors::connections_max()));
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
        ServeHandle { stop: self.stop.clone(), connections: self.connections.clone(), counts: self.counts.clone() }
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

impl<L: Listener, V: HttpService> Serve<L, V> {
    async fn run(mut self) -> io::Result<()> {
        let mut signals = match self.has_signals {
            true => Some([signal(SIGTERM)?, signal(SIGINT)?]),
            false => None,
        };
        if let Some(asked) = self.options.connections_max
            && asked > self.connections.max()
        {
            let connections_max = self.connections.max();
            warn!(
                asked,
                connections_max, "the limit on open files leaves room for fewer connections; raise it with `ulimit -n`"
            );
        }
        let options = Arc::new(self.options);
        let shared =
            Arc::new(Shared { http: builder(&options), options, connections: self.connections, counts: self.counts });
        let accepting = Accepting {
            listener: self.listener,
            service: self.service,
            shared: shared.clone(),
            #[cfg(feature = "tls")]
            tls: self.tls,
        };
        let stop = stopping(self.stop.clone(), self.shutdown.take(), signals.as_mut());
        let accepted = accepting.run(pin!(stop)).await;
        match &mut signals {
            Some(signals) => {
                if unless(pin!(any(signals)), shared.finish()).await.is_none() {
                    warn!("a second signal: connections are cut");
                }
            }
            None => shared.finish().await,
        }
        shared.cut();
        accepted
    }
}

impl Shared {
    /// The stages of the end, until no connection is left or they have taken too long.
    async fn finish(&self) {
        let (options, connections) = (&self.options, &self.connections);
        let stages = async {
            connections.order(Order::LastReply);
            let _ = timeout(options.last_reply_timeout, connections.all_ended()).await;
            connections.order(Order::Finish);
            connections.all_ended().await;
        };
        let _ = timeout(options.shutdown_timeout, stages).await;
    }

    fn cut(&self) {
        let open = self.connections.open();
        if open > 0 {
            info!(open, "connections were cut at the end");
            self.counts.cut(open);
            self.connections.order(Order::Cut);
        }
    }
}

/// Ready when the server is to end.
async fn stopping(
    stop: CancellationToken,
    mut shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    signals: Option<&mut [Signal; 2]>,
) {
    let handle = Handle::current();
    let (mut stop, mut closing) = (pin!(stop.cancelled()), pin!(handle.closing()));
    let mut signals = pin!(async {
        match signals {
            Some(signals) => any(signals).await,
            None => std::future::pending().await,
        }
    });
    poll_fn(|cx| {
        let is_ready = shutdown.as_mut().is_some_and(|shutdown| shutdown.as_mut().poll(cx).is_ready())
            || stop.as_mut().poll(cx).is_ready()
            || closing.as_mut().poll(cx).is_ready()
            || signals.as_mut().poll(cx).is_ready();
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The next of the signals. Cancel safe.
async fn any([a, b]: &mut [Signal; 2]) {
    let (mut a, mut b) = (pin!(a.recv()), pin!(b.recv()));
    poll_fn(|cx| if a.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { b.as_mut().poll(cx) }).await;
}

fn builder(options: &Arc<Options>) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams(options.clone()));
    builder
        .http1()
        .timer(Timer::new())
        // The connection's own task sees to that.
        .header_read_timeout(None)
        .max_buf_size(options.header_bytes_max);
    builder
        .http2()
        .timer(Timer::new())
        .max_concurrent_streams(options.streams_max)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .max_header_list_size(u32::try_from(options.header_bytes_max).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER_MAX)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX);
    builder
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

/// Streams that were reset before anybody looked at them ("rapid reset"), and those that were reset for an error of the peer.
const RESETS_MAX: usize = 20;
const ERRORS_MAX: usize = 128;

/// What of one stream waits in hyper's buffer to be sent.
const SEND_BUFFER_MAX: usize = 64 << 10;

/// What of a request's body the peer may send before somebody reads it.
const WINDOW: u32 = 64 << 10;

/// A peer that answers no PING is gone.
const PING_EVERY: Duration = Duration::from_secs(15);
const PONG_MAX: Duration = Duration::from_secs(10);
