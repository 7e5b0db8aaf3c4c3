//! The life of an HTTP/3 connection.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::{sleep, timeout};
use dapple_sched::Color;
use h3::error::{Code, ConnectionError};
use h3::server::RequestResolver;
use quinn::VarInt;
use tracing::debug;

use super::answer::answer;
use super::metered;
use crate::host::Link;
use crate::http::clock::now_ms;
use crate::http::connection::Terms;
use crate::http::{Awaited, Client, Limits, Service};

type Http = h3::server::Connection<metered::Connection, Bytes>;

/// Serves one connection until either side ends it, it is idle too long, or the server closes. All
/// requests have `color`, or one each.
///
/// Not cancel safe: if dropped before it resolves, the connection closes in its current state.
pub async fn serve<V: Service>(
    quic: quinn::Connection,
    service: Arc<V>,
    client: Client,
    Terms { limits, handle, link }: Terms<'_>,
    color: Option<Color>,
) {
    let mut builder = h3::server::builder();
    builder.max_field_section_size(limits.head.len_max as u64);
    let metered = metered::Connection::new(quic.clone(), limits.head.len_max as u64);
    let latest = metered.latest();
    let built = timeout(limits.head_timeout, builder.build(metered)).await;
    let mut http: Http = match built {
        Ok(Ok(http)) => http,
        Ok(Err(error)) => return debug!(%error, "an HTTP/3 connection failed to start"),
        Err(_) => return debug!("an HTTP/3 client did not complete the start of its connection"),
    };
    let mut closing = pin!(async {
        match handle {
            Some(handle) => handle.closing().await,
            None => pending().await,
        }
    });
    let mut rest = Rest::new(&limits, quic.clone(), link);
    let mut tick = pin!(sleep(rest.tick));
    let mut is_ending = false;
    loop {
        let is_open = rest.open.load(Ordering::Relaxed) > 0;
        let link = (!is_ending || !is_open).then(|| rest.link.clone());
        match next(&mut http, (!is_ending).then_some(closing.as_mut()), link.as_deref(), tick.as_mut()).await {
            Event::Request(Ok(Some(request))) => {
                let open = rest.begin();
                let answering = answer(*request, latest.take(), service.clone(), client.clone(), limits.clone());
                let task = async move {
                    answering.await;
                    drop(open);
                };
                drop(match &color {
                    Some(color) => color.spawn(task),
                    None => dapple_sched::spawn(task),
                });
            }
            Event::Request(Ok(None)) => break,
            Event::GivesWay if !is_open => break,
            Event::Request(Err(error)) => return debug!(%error, "a connection of HTTP/3 ended"),
            Event::Ending | Event::GivesWay => {
                is_ending = true;
                go_away(&mut http, &mut rest).await;
            }
            Event::Tick => {
                tick.set(sleep(rest.tick));
                let rested = rest.look();
                if is_ending && rested >= limits.linger_timeout {
                    break;
                }
                if !is_ending && (rested >= limits.idle_timeout || service.is_crowded()) {
                    service.timed_out(Awaited::NextRequest);
                    is_ending = true;
                    go_away(&mut http, &mut rest).await;
                }
            }
        }
    }
    quic.close(VarInt::from_u32(NO_ERROR), b"");
}

/// Sends GOAWAY: no more requests are taken. A request that was on its way then is still answered.
async fn go_away(http: &mut Http, rest: &mut Rest) {
    rest.begin_again();
    // Only a window limits this frame, and every client opens that window at the start.
    if let Ok(Err(error)) = timeout(GO_AWAY_MAX, http.shutdown(1)).await {
        debug!(%error, "cannot tell an HTTP/3 connection that it ends");
    }
}

enum Event {
    Request(Result<Option<Box<RequestResolver<metered::Connection, Bytes>>>, ConnectionError>),
    Ending,
    GivesWay,
    Tick,
}

async fn next(
    http: &mut Http,
    mut closing: Option<Pin<&mut impl Future<Output = ()>>>,
    link: Option<&Link>,
    mut tick: Pin<&mut impl Future<Output = ()>>,
) -> Event {
    let mut request = pin!(http.accept());
    let event = poll_fn(|cx| {
        if let Poll::Ready(request) = request.as_mut().poll(cx) {
            return Poll::Ready(Event::Request(request.map(|request| request.map(Box::new))));
        }
        if link.is_some_and(|link| link.gives_way()) {
            return Poll::Ready(Event::GivesWay);
        }
        if closing.as_mut().is_some_and(|closing| is_ready(closing.as_mut(), cx)) {
            return Poll::Ready(Event::Ending);
        }
        tick.as_mut().poll(cx).map(|()| Event::Tick)
    });
    event.await
}

fn is_ready(future: Pin<&mut impl Future<Output = ()>>, cx: &mut Context<'_>) -> bool {
    future.poll(cx).is_ready()
}

/// Measures how long a connection has been idle.
struct Rest {
    quic: quinn::Connection,
    link: Arc<Link>,
    open: Arc<AtomicUsize>,
    begun: u64,
    /// How often it is checked.
    tick: Duration,
    /// The number of requests, and of pieces of replies put into packets.
    seen: (u64, u64),
    rested: Duration,
}

impl Rest {
    fn new(limits: &Limits, quic: quinn::Connection, link: Arc<Link>) -> Rest {
        let tick = (limits.idle_timeout.min(limits.linger_timeout) / 4).clamp(TICK_MIN, TICK_MAX);
        Rest { quic, link, open: Arc::default(), begun: 0, tick, seen: (0, 0), rested: Duration::ZERO }
    }

    /// Counts a request as begun; it lasts until the result is dropped.
    fn begin(&mut self) -> Open {
        self.begun += 1;
        self.open.fetch_add(1, Ordering::Relaxed);
        self.link.begin();
        Open(self.open.clone(), self.link.clone())
    }

    /// Returns for how long there was no request, none began, and no data was sent or taken.
    fn look(&mut self) -> Duration {
        let now = (self.begun, self.quic.stats().frame_tx.stream);
        let is_busy = self.open.load(Ordering::Relaxed) > 0 || now != self.seen;
        self.seen = now;
        self.rested = if is_busy { Duration::ZERO } else { self.rested + self.tick };
        self.rested
    }

    fn begin_again(&mut self) {
        self.rested = Duration::ZERO;
    }
}

/// Counts a request as open until it is dropped.
struct Open(Arc<AtomicUsize>, Arc<Link>);

impl Drop for Open {
    fn drop(&mut self) {
        if self.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            // The end of its reply may still be on its way, so the connection becomes idle only
            // after a while.
            self.1.await_request(now_ms());
        }
    }
}

/// The time limit for sending GOAWAY.
const GO_AWAY_MAX: Duration = Duration::from_secs(1);

const TICK_MIN: Duration = Duration::from_millis(50);
const TICK_MAX: Duration = Duration::from_secs(1);

/// `H3_NO_ERROR`.
const NO_ERROR: u32 = Code::H3_NO_ERROR.value() as u32;
