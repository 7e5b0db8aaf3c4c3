//! The life of one connection.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use dapple_io::hyper_rt::{Executor, Timer};
use dapple_io::time::sleep;
use http::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;

use super::Shared;
use super::answer::{answer, turn_away};
use super::limits::HostLimits;
use super::stopper::Stage;
use crate::wire::STOPPING;

/// What speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// What becomes of a connection's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Welcome {
    Served,
    /// One too many: each is told so.
    TurnedAway,
}

/// Serves a connection until either side is done with it, nothing happens for too long, or the host ends. False where it was cut.
pub(super) async fn serve<S>(stream: S, protocol: Protocol, welcome: Welcome, shared: Arc<Shared>) -> bool
where
    S: Read + Write + Unpin + Send + 'static,
{
    let traffic = Arc::new(Traffic::default());
    let (handling, counted) = (shared.clone(), traffic.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, traffic) = (handling.clone(), counted.clone());
        async move {
            let _counted = traffic.enter(request.uri().path());
            let reply = match welcome {
                Welcome::Served => answer(shared, request).await,
                Welcome::TurnedAway => turn_away(shared.limits.connections_max),
            };
            Ok::<_, Infallible>(reply)
        }
    });
    match protocol {
        Protocol::Http2 => {
            let connection = http2_builder(&shared.limits).serve_connection(stream, service);
            let graceful = |connection: Pin<&mut http2::Connection<_, _, _>>| connection.graceful_shutdown();
            live(connection, graceful, &shared, &traffic, welcome).await
        }
        Protocol::Http1 => {
            let connection = http1_builder(&shared.limits).serve_connection(stream, service);
            let graceful = |connection: Pin<&mut http1::Connection<_, _>>| connection.graceful_shutdown();
            live(connection, graceful, &shared, &traffic, welcome).await
        }
    }
}

/// What happens on a connection.
#[derive(Default)]
struct Traffic {
    /// Requests that run; not the question whether the host ends, which stays open.
    open: AtomicUsize,
    begun: AtomicU64,
    /// Whether that question is open.
    heeding: AtomicUsize,
}

struct Entered<'a>(&'a AtomicUsize);

impl Traffic {
    /// Relaxed, all of it: read by a clock, now and then.
    fn enter(&self, path: &str) -> Entered<'_> {
        let count = if path == STOPPING { &self.heeding } else { &self.open };
        self.begun.fetch_add(1, Ordering::Relaxed);
        count.fetch_add(1, Ordering::Relaxed);
        Entered(count)
    }

    fn is_busy(&self) -> bool {
        self.open.load(Ordering::Relaxed) + self.heeding.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Event {
    Ended,
    Stage(Stage),
    Tick,
}

async fn live<C, E>(
    connection: C,
    graceful_shutdown: impl Fn(Pin<&mut C>),
    shared: &Shared,
    traffic: &Traffic,
    welcome: Welcome,
) -> bool
where
    C: Future<Output = Result<(), E>>,
    E: std::error::Error,
{
    let mut connection = pin!(connection);
    let (mut closing, mut cutting) =
        (pin!(shared.stopper.reached(Stage::Closing)), pin!(shared.stopper.reached(Stage::Cutting)));
    let mut rest = Rest::new(&shared.limits, welcome);
    let mut tick = pin!(sleep(rest.tick));
    let mut is_ending = false;
    loop {
        let event = poll_fn(|cx| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection of a stage host ended early");
                }
                return Poll::Ready(Event::Ended);
            }
            if !is_ending && closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Stage(Stage::Closing));
            }
            if cutting.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Stage(Stage::Cutting));
            }
            tick.as_mut().poll(cx).map(|()| Event::Tick)
        });
        match event.await {
            Event::Ended => return true,
            Event::Stage(Stage::Cutting) => return false,
            Event::Stage(_) => {
                is_ending = true;
                graceful_shutdown(connection.as_mut());
            }
            Event::Tick => {
                tick.set(sleep(rest.tick));
                let is_over = rest.look(traffic);
                if is_over && is_ending {
                    // It was told, and does not go: it reads nothing, or has forgotten this connection.
                    return true;
                }
                if is_over {
                    is_ending = true;
                    rest.begin_again();
                    graceful_shutdown(connection.as_mut());
                }
            }
        }
    }
}

/// How long nothing has happened.
struct Rest {
    tick: Duration,
    limit: Duration,
    rested: Duration,
    seen: u64,
}

impl Rest {
    fn new(limits: &HostLimits, welcome: Welcome) -> Rest {
        let limit = if welcome == Welcome::TurnedAway { TURNED_AWAY } else { limits.idle_timeout };
        Rest { tick: (limit / 4).clamp(TICK_MIN, TICK_MAX), limit, rested: Duration::ZERO, seen: 0 }
    }

    /// Whether that is too long.
    fn look(&mut self, traffic: &Traffic) -> bool {
        let begun = traffic.begun.load(Ordering::Relaxed);
        let has_news = begun != self.seen || traffic.is_busy();
        self.seen = begun;
        self.rested = if has_news { Duration::ZERO } else { self.rested + self.tick };
        self.rested >= self.limit
    }

    fn begin_again(&mut self) {
        self.rested = Duration::ZERO;
    }
}

fn http2_builder(limits: &HostLimits) -> http2::Builder<Executor> {
    let mut builder = http2::Builder::new(Executor::new());
    builder
        .timer(Timer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.headers_len_max)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .max_send_buf_size(SEND_BUFFER_MAX)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX);
    builder
}

fn http1_builder(limits: &HostLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(Timer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size((limits.headers_len_max as usize).max(BUFFER_MIN))
        .half_close(true);
    builder
}

/// How long a client that is one too many has to learn of it.
const TURNED_AWAY: Duration = Duration::from_secs(1);

const TICK_MIN: Duration = Duration::from_millis(50);
const TICK_MAX: Duration = Duration::from_secs(5);

/// Streams that were reset before anybody looked at them ("rapid reset"), and those that were reset for an error of the peer. Senders
/// reset streams whose reply nobody waits for any more, which is no attack.
const RESETS_MAX: usize = 1024;
const ERRORS_MAX: usize = 128;

/// What of one stream waits to be sent, and what the peer may send before somebody reads it.
const SEND_BUFFER_MAX: usize = 256 << 10;
const WINDOW: u32 = 256 << 10;

/// hyper's least.
const BUFFER_MIN: usize = 8192;

const PING_EVERY: Duration = Duration::from_secs(15);
const PONG_MAX: Duration = Duration::from_secs(10);
