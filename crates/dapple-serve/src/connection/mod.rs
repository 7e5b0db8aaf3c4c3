//! The life of a connection.

mod first;
mod http;
mod link;
pub(crate) mod pace;
pub(crate) mod progress;
mod state;
mod streams;
mod watched;

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use dapple_io::time::{Instant, Sleep, sleep_until};
use hyper::service::service_fn;
use tracing::debug;

pub(crate) use self::link::Link;
use self::state::Expired;
use self::watched::{Home, Watched};
use crate::BoxError;
use crate::connections::{self, Holder as _, Order, farewell};
use crate::request::{Held, answer};
use crate::server::Shared;
use crate::service::HttpService;
use dapple_io::Connection;

/// All of a server's.
pub(crate) type Connections = connections::Connections<Link>;

/// A place among them.
pub(crate) type Place = connections::Place<Link>;

/// Serves one connection until either side is done with it, or it meets a limit.
///
/// Not cancel safe: dropped before it resolves, the connection is closed as it is.
pub(crate) async fn serve<S: Connection, V: HttpService>(
    (stream, place): (S, Place),
    service: Held<V>,
    link: Arc<Link>,
    shared: Arc<Shared>,
) {
    let (mut stream, home) = Watched::new(stream, place, link.clone(), shared.clone());
    let end = match first::answer(&mut stream, &link, &shared).await {
        Some(end) => {
            drop(stream);
            end
        }
        // In memory of its own: it is large, and not everybody needs it.
        None => Box::pin(by_hyper(stream, service, &link, &shared)).await,
    };
    // If hyper has read no request in what looked like one, its place is others'.
    drop(link.take_decision());
    if Arc::strong_count(&home) > 1 {
        // It speaks another protocol by now, and is whoever's that asked for it, until the server cuts it.
        let home = Arc::downgrade(&home);
        link.set_upgraded(Box::new(move || drop(home.upgrade().map(take))));
        return;
    }
    if let Some((stream, place)) = take(home) {
        close(stream, &end, &link).await;
        drop(place);
    }
}

async fn by_hyper<S: Connection, V: HttpService>(
    stream: Watched<S>,
    service: Held<V>,
    link: &Arc<Link>,
    shared: &Arc<Shared>,
) -> End {
    let (answer_link, answer_shared) = (link.clone(), shared.clone());
    let respond = service_fn(move |request| {
        let reply = answer(service.another(), request, answer_link.clone(), answer_shared.clone());
        async move { Ok::<_, Infallible>(reply.await) }
    });
    let builder = http::http(&shared.options, link);
    let mut http = pin!(builder.serve_connection_with_upgrades(stream, respond));
    let mut watch = Watch::new(link, shared);
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = http.as_mut().poll(cx) {
                return Poll::Ready(End::Done(result));
            }
            match watch.look(cx) {
                Look::Wait => return Poll::Pending,
                Look::Finish => http.as_mut().graceful_shutdown(),
                Look::End(end) => return Poll::Ready(end),
            }
        }
    })
    .await
}

/// Takes a stream away from whoever has it. To be dropped where no lock is held.
fn take<S>(home: Home<S>) -> Option<(S, Place)> {
    home.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Ready when a connection is to end on which no request can have come yet. Cancel safe.
#[cfg(feature = "tls")]
pub(crate) async fn unwanted(link: &Link) {
    poll_fn(|cx| {
        loop {
            match link.watch(cx.waker()) {
                Order::EndIfResting if link.rests_since(Instant::now()).is_err() => link.go_on(),
                Order::EndIfResting | Order::Finish | Order::Cut => return Poll::Ready(()),
                Order::GoOn | Order::LastReply => return Poll::Pending,
            }
        }
    })
    .await;
}

/// How a connection ended.
enum End {
    /// By hyper.
    Done(Result<(), BoxError>),
    Expired(Expired),
    /// To make room.
    Evicted,
    /// As the server's own end came.
    Cut,
}

async fn close<S: Connection>(stream: S, end: &End, link: &Link) {
    link.set_closing();
    let (is_reading_head, is_read, len_max) = {
        let state = link.state();
        // Of frames nothing more is needed, and there may be many; of a body that was not wanted much may be on its way.
        let len_max = if state.is_http2() { FRAMES_LEN_MAX } else { u64::MAX };
        (state.is_reading_head(), state.has_ended() || !state.has_unread(), len_max)
    };
    match end {
        End::Done(Ok(())) if is_read => {}
        End::Done(Ok(())) => farewell(stream, &[], len_max).await,
        End::Done(Err(error)) => {
            debug!(%error, "a connection ended early");
            farewell(stream, &[], len_max).await;
        }
        End::Expired(Expired::Head) if is_reading_head => farewell(stream, TOO_SLOW, len_max).await,
        End::Expired(expired) => debug!(?expired, "a connection met a limit"),
        End::Evicted => debug!("a connection that rested was closed, as there was no room for more"),
        End::Cut => {}
    }
}

/// Looks at the limits of a connection and at what the server wants of it.
struct Watch<'a> {
    link: &'a Link,
    shared: &'a Shared,
    done: Order,
    /// Fires at the next limit, or before.
    timer: std::pin::Pin<Box<Sleep>>,
}

enum Look {
    Wait,
    /// hyper is to end it, and has to be polled again.
    Finish,
    End(End),
}

impl<'a> Watch<'a> {
    fn new(link: &'a Link, shared: &'a Shared) -> Watch<'a> {
        let first = pace::after(Instant::now(), shared.options.header_timeout);
        Watch { link, shared, done: Order::GoOn, timer: Box::pin(sleep_until(first)) }
    }

    fn look(&mut self, cx: &mut Context<'_>) -> Look {
        let order = self.link.watch(cx.waker());
        if order > self.done {
            match order {
                Order::Cut => return Look::End(End::Cut),
                Order::EndIfResting if self.link.rests_since(Instant::now()).is_ok() => {
                    return Look::End(End::Evicted);
                }
                Order::EndIfResting => self.link.go_on(),
                // In HTTP/2 the peer is told at once, and nothing is lost by it. In HTTP/1.1 the next reply says it.
                Order::LastReply if !self.link.state().is_http2() => {}
                Order::LastReply | Order::Finish => {
                    self.done = order;
                    return Look::Finish;
                }
                Order::GoOn => {}
            }
        }
        self.arm(cx)
    }

    /// Sees to it that somebody looks again at the next limit.
    fn arm(&mut self, cx: &mut Context<'_>) -> Look {
        let options = &self.shared.options;
        loop {
            let deadline = self.link.state().deadline(options);
            if let Some((deadline, _)) = deadline
                && deadline < self.timer.deadline()
            {
                self.timer.as_mut().get_mut().reset(deadline);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Look::Wait;
            }
            let now = Instant::now();
            match deadline {
                Some((deadline, expired)) if deadline <= now => return Look::End(End::Expired(expired)),
                Some((deadline, _)) => self.timer.as_mut().get_mut().reset(deadline),
                // Whatever limit comes next, it comes later than this.
                None => {
                    let least = options.idle_timeout.min(options.header_timeout).min(options.send_timeout);
                    self.timer.as_mut().get_mut().reset(pace::after(now, least));
                }
            }
        }
    }
}

/// What is read of a connection of HTTP/2 after its end, so that `GOAWAY` arrives.
const FRAMES_LEN_MAX: u64 = 16 << 10;

const TOO_SLOW: &[u8] = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\
    content-type: text/plain; charset=utf-8\r\ncontent-length: 33\r\n\r\nThe request did not come in time\n";

#[cfg(test)]
mod tests {
    #[test]
    fn last_words_are_as_long_as_they_say() {
        let text = std::str::from_utf8(super::TOO_SLOW).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{text}");
    }
}
