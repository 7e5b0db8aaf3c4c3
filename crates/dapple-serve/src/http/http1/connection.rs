//! The life of a connection, from request to request.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use dapple_http::{Found, Refusal};
use dapple_io::hyper_rt::HyperIo;
use tracing::debug;

use super::linger::linger;
use super::outgoing::{BATCH_LEN, Outgoing};
use super::send::{WRITE_TURN_LEN, let_others_go};
use super::watch::Watch;
use super::workspace::Lease;
use crate::host::Link;
use crate::http::clock::{now_ms, within};
use crate::http::connection::Terms;
use crate::http::pace::{Pace, millis, send_pace};
use crate::http::{Awaited, Handler, Limits, Tunnel};

/// The outcome of serving a connection.
pub enum End<S> {
    /// It has ended.
    Closed,
    /// The client speaks HTTP/2, according to its first bytes.
    Http2 {
        /// The connection.
        stream: S,
        /// All bytes read from it.
        first: Bytes,
    },
    /// The handler takes it over.
    TakenOver {
        /// The connection.
        stream: S,
        /// The bytes read from it and not answered.
        first: Bytes,
    },
}

/// One connection.
pub(super) struct Connection<S, H> {
    pub(super) stream: S,
    pub(super) handler: H,
    pub(super) limits: Arc<Limits>,
    pub(super) link: Arc<Link>,
    pub(super) watch: Watch,
    /// The deadline for a head that has begun to arrive.
    head_until_ms: Option<u64>,
}

/// The next step after the input is used up or an error.
pub(super) enum Next {
    Idle,
    Close,
    Linger,
    Abort,
    Http2,
    TakeOver,
    Tunnel(Box<dyn Tunnel>),
}

/// Serves one connection until either side ends it, it takes too long, or the server closes.
///
/// Not cancel safe: if dropped before it resolves, the connection closes in its current state.
pub async fn serve<S: dapple_io::Connection, H: Handler>(
    stream: S,
    handler: H,
    Terms { limits, handle, link }: Terms<'_>,
) -> End<S> {
    let watch = Watch::new(handle);
    let first_until = limits.first_timeout.map(|timeout| now_ms().saturating_add(millis(timeout)));
    let mut connection = Connection { stream, handler, limits, link, watch, head_until_ms: first_until };
    let mut is_first = true;
    loop {
        let Some(mut work) = connection.first_bytes(is_first).await else { return connection.end().await };
        let next = connection.requests(&mut work, is_first).await;
        is_first = false;
        match next {
            Next::Idle => {}
            Next::Close => {
                drop(work);
                return connection.end().await;
            }
            Next::Linger => {
                drop(work);
                let Connection { stream, mut watch, limits, link, .. } = connection;
                link.set_closing();
                Box::pin(linger(stream, &mut watch, &limits)).await;
                return End::Closed;
            }
            Next::Abort => {
                connection.stream.abort();
                return End::Closed;
            }
            Next::Http2 => {
                return End::Http2 { first: Bytes::copy_from_slice(work.input()), stream: connection.stream };
            }
            Next::TakeOver => {
                return End::TakenOver { first: Bytes::copy_from_slice(work.input()), stream: connection.stream };
            }
            Next::Tunnel(tunnel) => {
                let first = Bytes::copy_from_slice(work.input());
                drop(work);
                tunnel.run(Box::new(HyperIo::new(connection.stream)), first).await;
                return End::Closed;
            }
        }
    }
}

impl<S: dapple_io::Connection, H: Handler> Connection<S, H> {
    /// Ends a connection that has nothing in transit.
    async fn end(self) -> End<S> {
        poll_fn(|cx| {
            self.stream.say_end(cx);
            Poll::Ready(End::Closed)
        })
        .await
    }

    /// Waits for a request. Takes the buffer only when there are bytes to read. `None` if the
    /// connection has ended.
    async fn first_bytes(&mut self, is_first: bool) -> Option<Lease> {
        let mut idle_since_ms = None;
        self.handler.before_read(&self.stream);
        poll_fn(|cx| {
            let mut work = Lease::take();
            match work.poll_fill(&self.stream, self.limits.head.len_max, cx) {
                Poll::Ready(Ok(len)) => {
                    self.handler.after_read(&self.stream);
                    return Poll::Ready((len > 0).then_some(work));
                }
                Poll::Ready(Err(error)) => {
                    debug!(%error, "a connection ended");
                    return Poll::Ready(None);
                }
                Poll::Pending => drop(work),
            }
            if self.watch.poll_closing(cx).is_ready() {
                return Poll::Ready(None);
            }
            let now_ms = now_ms();
            let since_ms = *idle_since_ms.get_or_insert(now_ms);
            if !is_first {
                self.link.rest(now_ms);
            }
            if self.link.gives_way() {
                debug!("closed an idle connection to make room");
                return Poll::Ready(None);
            }
            let idle_until_ms = since_ms.saturating_add(millis(self.limits.idle_timeout));
            let until_ms = self.head_until_ms.filter(|_| is_first).unwrap_or(idle_until_ms);
            if now_ms >= since_ms.saturating_add(CROWDED_IDLE_MS) && self.handler.is_crowded() {
                return Poll::Ready(None);
            }
            // No event reports that the server is crowded, so the connection checks now and then.
            let look_ms = until_ms.min(now_ms.saturating_add(CROWDED_IDLE_MS));
            self.watch.poll_deadline(look_ms, now_ms, cx).map(|()| {
                self.handler.timed_out(Awaited::NextRequest);
                None
            })
        })
        .await
    }

    /// Handles all requests that have arrived, and those that arrive meanwhile.
    async fn requests(&mut self, work: &mut Lease, is_first: bool) -> Next {
        if is_first && is_http2(work.input()) {
            return Next::Http2;
        }
        for count in 1_u32.. {
            match work.find_head(&self.limits.head) {
                Ok(Some(found)) => {
                    self.link.begin();
                    if let Some(next) = self.answer_in_time(work, found).await {
                        return next;
                    }
                }
                Ok(None) if work.input().is_empty() => return self.flush(&mut work.out).await.unwrap_or(Next::Idle),
                Ok(None) => {
                    if let Some(next) = self.more_of_head(work, is_first).await {
                        return next;
                    }
                    continue;
                }
                Err(refusal) => return self.refuse(work, refusal).await,
            }
            if count % TURN_LEN == 0 || work.out.len() >= BATCH_LEN {
                if let Some(next) = self.flush(&mut work.out).await {
                    return next;
                }
                // A client with many requests at once must not delay others.
                dapple_sched::yield_now().await;
            }
        }
        Next::Close
    }

    async fn answer_in_time(&mut self, work: &mut Lease, found: Found) -> Option<Next> {
        self.head_until_ms = None;
        match self.limits.request_timeout {
            None => self.answer(work, found).await,
            Some(limit) => {
                // Boxed: the timer would enlarge every connection, and most have no such limit.
                let answer = Box::pin(within(limit, self.answer(work, found)));
                answer.await.unwrap_or_else(|| {
                    debug!("a request took longer than {limit:?}");
                    Some(Next::Abort)
                })
            }
        }
    }

    /// Writes pending output. `None` if all is written.
    pub(super) async fn flush(&mut self, out: &mut Outgoing) -> Option<Next> {
        if out.is_empty() {
            return None;
        }
        let mut pace = None;
        let written: io::Result<()> = poll_fn(|cx| {
            let mut turn_len = 0;
            loop {
                match out.poll_write(&self.stream, cx) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(len)) => {
                        if let Some(pace) = &mut pace {
                            Pace::moved(pace, len as u64, now_ms());
                        }
                        if out.is_empty() {
                            return Poll::Ready(Ok(()));
                        }
                        turn_len += len;
                        if turn_len >= WRITE_TURN_LEN {
                            return let_others_go(cx);
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        let pace = pace.get_or_insert_with(|| send_pace(&self.limits));
                        let over = self.watch.poll_deadline(pace.deadline_ms(), now_ms(), cx);
                        return over.map(|()| Err(io::ErrorKind::TimedOut.into()));
                    }
                }
            }
        })
        .await;
        written.err().map(|error| {
            debug!(%error, "cannot send a reply");
            if error.kind() == io::ErrorKind::TimedOut {
                self.handler.timed_out(Awaited::Response);
            }
            Next::Abort
        })
    }

    /// Waits for more of a head. `None` if more has arrived.
    async fn more_of_head(&mut self, work: &mut Lease, is_first: bool) -> Option<Next> {
        if let Some(next) = self.flush(&mut work.out).await {
            return Some(next);
        }
        let timeout_ms = millis(self.limits.head_timeout);
        let begin_ms = now_ms();
        self.link.await_request(begin_ms);
        let mut until_ms = *self.head_until_ms.get_or_insert(begin_ms.saturating_add(timeout_ms));
        let mut gives_way = false;
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(result) = work.poll_fill(&self.stream, self.limits.head.len_max, cx) {
                self.handler.after_read(&self.stream);
                return Poll::Ready(Some(result));
            }
            gives_way = self.link.gives_way();
            if gives_way {
                return Poll::Ready(None);
            }
            if self.watch.poll_closing(cx).is_ready() {
                until_ms = until_ms.min(now_ms().saturating_add(CLOSING_GRACE_MS));
            }
            self.watch.poll_deadline(until_ms, now_ms(), cx).map(|()| None)
        })
        .await;
        self.head_until_ms = Some(until_ms);
        let has_begun = work.input().iter().any(|byte| !matches!(byte, b'\r' | b'\n'));
        match outcome {
            Some(Ok(0)) | None if !has_begun || gives_way => Some(Next::Close),
            Some(Ok(0)) => Some(self.refuse(work, Refusal::CutShort).await),
            Some(Ok(_)) if is_first && is_http2(work.input()) => Some(Next::Http2),
            Some(Ok(_)) => None,
            Some(Err(error)) => {
                debug!(%error, "a connection ended within a request");
                Some(Next::Close)
            }
            None => Some(self.refuse(work, Refusal::TooSlow).await),
        }
    }
}

/// Whether these bytes are the HTTP/2 preface (RFC 9113, section 3.4).
fn is_http2(input: &[u8]) -> bool {
    input.starts_with(b"PRI * HTTP/2.0\r\n")
}

/// The most requests answered in one turn, if they arrived together.
const TURN_LEN: u32 = 32;

/// How long an idle connection may keep its place while others wait for it.
const CROWDED_IDLE_MS: u64 = 10_000;

/// How long a head that has begun may take when the server closes.
const CLOSING_GRACE_MS: u64 = 1_000;
