//! The life of an HTTP/2 connection.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dapple_http::frames::Traffic;
use dapple_io::hyper_rt::Timer;
use dapple_io::time::sleep;
use dapple_sched::{Color, Handle, environment};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use tracing::debug;

use super::progress::{Pieces, is_answered};
use super::rewind::Rewind;
use super::streams::Streams;
use crate::http::connection::Terms;
use crate::http::{Handler, Limits};

/// Serves one connection until either side ends it, it is idle too long, or the server closes.
/// `first` was read from it already. All streams have `color`, or one each.
///
/// Not cancel safe: if dropped before it resolves, the connection closes in its current state.
pub async fn serve<S: dapple_io::Connection, H: Handler>(
    (stream, first): (S, Bytes),
    handler: H,
    Terms { limits, handle, link }: Terms<'_>,
    color: Option<Color>,
) {
    let streams = Streams::new(color, limits.clone(), link.clone());
    let traffic = Arc::new(Traffic::default());
    let stream = Rewind::new(first, stream, handler.clone(), traffic.clone());
    let (answering, answer_limits) = (handler.clone(), limits.clone());
    let respond = service_fn(move |request| {
        let answer = answering.clone().answer_stream(request, answer_limits.clone());
        async move {
            is_answered(false);
            let response = answer.await;
            is_answered(true);
            Ok::<_, Infallible>(response.map(Pieces::new))
        }
    });
    let mut http = pin!(builder(&streams, &limits).serve_connection(stream, respond));
    let mut closing = handle.map(Handle::closing);
    let mut rest = Rest::new(&limits, streams, traffic);
    let mut tick = pin!(sleep(rest.tick));
    let mut is_ending = false;
    loop {
        let event = poll_fn(|cx| {
            if let Poll::Ready(result) = http.as_mut().poll(cx) {
                return Poll::Ready(Event::Ended(result));
            }
            // Open requests are answered first, and the replies written.
            let gives_way = link.gives_way();
            if gives_way && !is_ending {
                return Poll::Ready(Event::Ending);
            }
            if gives_way && rest.streams.open() == 0 && !rest.traffic.is_blocked() {
                return Poll::Ready(Event::GivesWay);
            }
            let is_closing = closing.as_mut().is_some_and(|closing| Pin::new(closing).poll(cx).is_ready());
            // A new client gets GOAWAY only after its first request: otherwise it would send that
            // request elsewhere, and perhaps no other server listens.
            let is_finishing = link.is_finishing() && rest.streams.begun() > 0;
            if !is_ending && (is_closing || is_finishing) {
                return Poll::Ready(Event::Ending);
            }
            tick.as_mut().poll(cx).map(|()| Event::Tick)
        });
        match event.await {
            Event::Ended(Ok(())) => return,
            Event::Ended(Err(error)) => return debug!(%error, "an HTTP/2 connection ended early"),
            Event::GivesWay => return debug!("closed an idle connection to make room"),
            Event::Ending => {
                is_ending = true;
                http.as_mut().graceful_shutdown();
            }
            Event::Tick => {
                tick.set(sleep(rest.tick));
                let rested = rest.look();
                if is_ending && rested >= limits.linger_timeout {
                    return debug!("closed an HTTP/2 connection that did not end");
                }
                if !is_ending && (rested >= rest.longest(&limits) || handler.is_crowded()) {
                    is_ending = true;
                    rest.begin_again();
                    http.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

enum Event {
    Ended(hyper::Result<()>),
    Ending,
    GivesWay,
    Tick,
}

fn builder(streams: &Streams, limits: &Limits) -> Builder<Streams> {
    let mut builder = Builder::new(streams.clone());
    builder
        .timer(Timer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_pending_accept_reset_streams(limits.resets_max)
        .max_local_error_reset_streams(ERRORS_MAX)
        .max_header_list_size(u32::try_from(limits.head.len_max).unwrap_or(u32::MAX))
        .max_send_buf_size(limits.window as usize)
        .initial_stream_window_size(limits.window)
        .initial_connection_window_size(limits.window.saturating_mul(4))
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_MAX)
        // hyper's date is the kernel's, also in a simulation, where its length in HPACK would depend on the time of day.
        .auto_date_header(!environment::is_simulated());
    builder
}

/// Measures how long a connection has been idle.
struct Rest {
    streams: Streams,
    traffic: Arc<Traffic>,
    /// How often it is checked.
    tick: Duration,
    /// The fewest bytes between two checks that count as progress.
    written_min: u64,
    seen: (u64, u64),
    rested: Duration,
}

impl Rest {
    fn new(limits: &Limits, streams: Streams, traffic: Arc<Traffic>) -> Rest {
        let tick = (limits.idle_timeout.min(limits.linger_timeout) / 4).clamp(TICK_MIN, TICK_MAX);
        let written_min = (limits.send_rate_min * tick.as_millis() as u64 / 1_000).max(1);
        Rest { streams, traffic, tick, written_min, seen: (0, 0), rested: Duration::ZERO }
    }

    /// Returns for how long there was no stream, none began, and too little was written.
    fn look(&mut self) -> Duration {
        let now = (self.streams.begun(), self.traffic.written());
        let is_busy =
            self.streams.open() > 0 || now.0 != self.seen.0 || now.1.saturating_sub(self.seen.1) >= self.written_min;
        self.seen = now;
        self.rested = if is_busy { Duration::ZERO } else { self.rested + self.tick };
        self.rested
    }

    /// The longest idle time allowed.
    fn longest(&self, limits: &Limits) -> Duration {
        limits.first_timeout.filter(|_| self.streams.begun() == 0).unwrap_or(limits.idle_timeout)
    }

    fn begin_again(&mut self) {
        self.rested = Duration::ZERO;
    }
}

/// The most streams reset for an error of the peer.
const ERRORS_MAX: usize = 128;

const PING_EVERY: Duration = Duration::from_secs(15);
const PONG_MAX: Duration = Duration::from_secs(10);

const TICK_MIN: Duration = Duration::from_millis(50);
const TICK_MAX: Duration = Duration::from_secs(1);
