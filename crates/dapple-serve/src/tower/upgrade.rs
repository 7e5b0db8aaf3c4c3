//! Requests for another protocol, such as WebSocket, served by hyper: only hyper can make what
//! `hyper::upgrade::on` returns.
//!
//! hyper has the connection for one request. If that does not change the protocol, the connection
//! ends with the reply.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple_io::Connection;
use dapple_io::hyper_rt::Timer;
use dapple_io::time::{Sleep, sleep};
use http::header::{CONNECTION, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tracing::debug;

use super::Tower;
use crate::connections::{Holder as _, Order, farewell};
use crate::host::AdmittedConnection;
use crate::http::clock::now_ms;
use crate::http::pace::{Pace, send_pace};
use crate::link::Link;
use crate::service::HttpService;

/// Makes hyper answer the request at the start of `first`. If it changes the protocol, the handler
/// of that request owns the connection, with its place, until the server cuts it.
pub(super) async fn serve<S: Connection, V: HttpService>(tower: Tower<V>, stream: S, first: Bytes) {
    let context = &tower.0.context;
    let link = context.link.clone();
    let home: Home<S> = Arc::new(Mutex::new(Some((stream, tower.take_place()))));
    let pace = Arc::new(Mutex::new(send_pace(&context.shared.limits)));
    pace_of(&pace).rest(now_ms());
    let handed = Handed { first, link: link.clone(), home: home.clone(), pace: pace.clone() };
    let respond = service_fn(|request: Request<hyper::body::Incoming>| {
        let is_connect = request.method() == Method::CONNECT;
        let answer = tower.clone().answer_hyper(request);
        async move {
            let mut response = answer.await;
            let status = response.status();
            if status != StatusCode::SWITCHING_PROTOCOLS && !(is_connect && status.is_success()) {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(Timer::new()).header_read_timeout(None);
    let http = pin!(builder.serve_connection(handed, respond).with_upgrades());
    in_time(http, &pace).await;
    if Arc::strong_count(&home) > 1 {
        let home = Arc::downgrade(&home);
        link.set_upgraded(Box::new(move || drop(home.upgrade().map(take))));
    } else if let Some((stream, place)) = take(home) {
        link.set_closing();
        farewell(stream, &[], u64::MAX).await;
        drop(place);
    }
}

/// Runs hyper's connection until it ends, or its client takes too little of the reply.
async fn in_time(mut http: Pin<&mut impl Future<Output = hyper::Result<()>>>, pace: &Mutex<Pace>) {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if let Poll::Ready(result) = http.as_mut().poll(cx) {
            if let Err(error) = result {
                debug!(%error, "a connection ended early");
            }
            return Poll::Ready(());
        }
        loop {
            let Some(deadline_ms) = pace_of(pace).waits_until_ms() else { return Poll::Pending };
            let left_ms = deadline_ms.saturating_sub(now_ms());
            if left_ms == 0 {
                debug!("the client of an upgrade request did not take its reply");
                return Poll::Ready(());
            }
            let timer = timer.insert(Box::pin(sleep(std::time::Duration::from_millis(left_ms + CLOCK_BEHIND_MS))));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// The shared slot of a stream, through which the server can close it: after an upgrade the stream
/// belongs to a task of the program, which may never poll it again.
type Home<S> = Arc<Mutex<Option<(S, Option<AdmittedConnection>)>>>;

/// Takes a stream from its shared place. Drop the result without holding a lock.
fn take<S>(home: Home<S>) -> Option<(S, Option<AdmittedConnection>)> {
    home.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The stream, first in hyper's hands, then in those of the handler's task.
struct Handed<S> {
    first: Bytes,
    link: Arc<Link>,
    home: Home<S>,
    pace: Arc<Mutex<Pace>>,
}

impl<S: Connection> Handed<S> {
    /// Calls `poll` with the stream, unless it was closed.
    fn poll_stream<T>(&self, poll: impl FnOnce(&S) -> Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        home.as_ref().map_or_else(|| Poll::Ready(Err(ended())), |(stream, _place)| poll(stream))
    }

    /// As `poll_stream`, for writing. The task that waits to write may not be the reader, so orders
    /// wake that task, too.
    fn poll_write_by<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&S, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        check(self.link.orders().ordered())?;
        let result = self.poll_stream(|stream| poll(stream, cx));
        match result.is_pending() {
            true => {
                pace_of(&self.pace).go_on(now_ms());
                check(self.link.orders().watch_writing(cx.waker()))?;
            }
            false => pace_of(&self.pace).rest(now_ms()),
        }
        result
    }

    fn note_written(&self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(len)) = result {
            let (mut pace, now_ms) = (pace_of(&self.pace), now_ms());
            pace.moved(*len as u64, now_ms);
            pace.rest(now_ms);
        }
    }
}

impl<S: Connection> Read for Handed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        check(self.link.orders().watch(cx.waker()))?;
        if !self.first.is_empty() {
            let len = self.first.len().min(buf.remaining());
            buf.put_slice(&self.first.split_to(len));
            return Poll::Ready(Ok(()));
        }
        let mut passing = [0; PASSING_LEN];
        let len = passing.len().min(buf.remaining());
        let read = self.poll_stream(|stream| stream.poll_read(cx, &mut passing[..len]));
        read.map_ok(|len| buf.put_slice(&passing[..len]))
    }
}

impl<S: Connection> Write for Handed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = self.poll_write_by(cx, |stream, cx| stream.poll_write(cx, buf));
        self.note_written(&result);
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = self.poll_write_by(cx, |stream, cx| stream.poll_write_vectored(cx, bufs));
        self.note_written(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_by(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_by(cx, |stream, cx| stream.poll_end(cx))
    }
}

/// Only an order to cut ends an upgraded connection.
fn check(order: Order) -> io::Result<()> {
    if order == Order::Cut { Err(ended()) } else { Ok(()) }
}

/// The error of a stream that the server has closed.
fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the server ends this connection")
}

fn pace_of(pace: &Mutex<Pace>) -> std::sync::MutexGuard<'_, Pace> {
    // Nothing under the lock can panic halfway.
    pace.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How much is read at once.
const PASSING_LEN: usize = 8 << 10;

/// How far the coarse clock may be behind the timers' clock.
const CLOCK_BEHIND_MS: u64 = 20;
