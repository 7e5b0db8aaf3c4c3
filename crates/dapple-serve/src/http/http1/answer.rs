//! One request and its reply.

use std::future::{Future, poll_fn};
use std::io;
use std::mem;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple_http::{Field, Found, Framing, Head, HeadScan, Refusal, parse};
use http::{StatusCode, Version};
use tracing::debug;

use super::ahead::Ahead;
use super::connection::{Connection, Next};
use super::detached::{Detached, Rest, Wire};
use super::incoming::{Failure, Incoming, Paced, Reading, drain, lock};
use super::outgoing::Outgoing;
use super::send::{Asked, Queued, Streaming, is_measured_stream, queue};
use super::workspace::{Lease, Workspace};
use crate::http::{Awaited, Body, Handler, Interims, Reply, RequestBody};

/// The service's reply, and the rest of the request.
struct Outcome {
    reply: Result<Reply, Failure>,
    rest: Rest,
    /// Whether the body was read to its end, so that the start of the next request is known.
    is_complete: bool,
}

impl<S: dapple_io::Connection, H: Handler> Connection<S, H> {
    /// Answers the request with this head. `None` if the next request may follow; the reply is
    /// sent, or waits to be sent.
    pub(super) async fn answer(&mut self, work: &mut Lease, found: Found) -> Option<Next> {
        let mut fields: Vec<Field<'_>> = mem::take(&mut work.fields);
        fields.reserve(found.fields);
        let (input, out) = work.split();
        let (head, first) = (&input[found.start..found.end], &input[found.end..]);
        let head = match parse(head, fields.spare_capacity_mut(), &self.limits.head) {
            Ok(head) => head,
            Err(refusal) => return Some(self.refuse(work, refusal).await),
        };
        if self.handler.wants_connection(&head) {
            work.fields = emptied(fields);
            return Some(self.flush(&mut work.out).await.unwrap_or(Next::TakeOver));
        }
        let asked = Asked::of(&head);
        let outcome = match head.framing {
            Framing::None => self.ask(&head, first, out).await,
            // Boxed, here and below, so that rare steps do not enlarge every connection.
            _ => Box::pin(self.ask_with_body(&head, first, out)).await,
        };
        work.fields = emptied(fields);
        work.consume(found.end + outcome.rest.consumed);
        if let Some(later) = outcome.rest.later {
            go_on_with(work, later);
        }
        match outcome.reply {
            Ok(reply) => self.send(work, reply, asked, outcome.is_complete, outcome.rest.detached).await,
            Err(Failure::Gone) => Some(Next::Close),
            Err(Failure::Refused(refusal)) => Some(self.refuse(work, refusal).await),
        }
    }

    /// Asks the service. Meanwhile sends replies to earlier requests and interim responses.
    async fn ask(&mut self, head: &Head<'_>, first: &[u8], out: &mut Outgoing) -> Outcome {
        let Connection { stream, handler, .. } = self;
        let interims = Interims::default();
        let mut body = RequestBody::default().with_interims(may_be_ahead(head, &interims));
        let mut ahead = H::ENDS_WITH_CLIENT.then(|| Ahead::new(first));
        let mut answer = pin!(handler.answer(&head.request, &mut body));
        let reply = poll_fn(|cx| {
            let reply = answer.as_mut().poll(cx);
            if let Some(text) = interims.take() {
                out.text(|out| out.extend_from_slice(&text));
            }
            if let Poll::Ready(reply) = reply {
                return Poll::Ready(Ok(reply));
            }
            if ahead.as_mut().is_some_and(|ahead| ahead.poll_end(stream, handler, cx).is_ready()) {
                return Poll::Ready(Err(Failure::Gone));
            }
            write_meanwhile(stream, out, cx).map(|_| Err(Failure::Gone))
        })
        .await;
        let rest = ahead.map_or_else(Rest::default, Ahead::into_rest);
        Outcome { reply, rest, is_complete: true }
    }

    /// As `ask`, with a body that the service may read or hand on. Drops the rest of the body that
    /// the service has not read: only its end shows whether it was well-formed, and until then
    /// nothing is sent that a client could take for a complete answer.
    async fn ask_with_body(&mut self, head: &Head<'_>, first: &[u8], out: &mut Outgoing) -> Outcome {
        let Connection { stream, handler, limits, watch, .. } = self;
        let interims = Interims::default();
        let reading = Mutex::new(Reading::new(stream, &interims, watch, head, first, limits));
        let mut incoming = Incoming(&reading);
        let mut body = RequestBody::new(&mut incoming).with_interims(may_be_ahead(head, &interims));
        let answer = handler.answer(&head.request, &mut body);
        let reply = meanwhile(&reading, &interims, out, answer).await;
        let failure = reply.as_ref().err().copied().or_else(|| lock(&reading).failure());
        let is_left = {
            let reading = lock(&reading);
            !reading.is_end() && !reading.is_detached()
        };
        let is_complete = match failure {
            Some(failure) => Err(failure),
            // Handed on or not, the client may never send it.
            _ if reply.is_ok() && lock(&reading).is_awaited() => Ok(false),
            // For a body that was handed on, this is known later.
            _ if !is_left => Ok(true),
            // A reply that ends the connection need not wait for the rest of the request.
            _ if reply.as_ref().is_ok_and(|reply| reply.close) => Ok(false),
            _ => meanwhile(&reading, &interims, out, drain(&reading)).await.and_then(|drained| drained),
        };
        let rest = reading.into_inner().unwrap_or_else(PoisonError::into_inner).into_rest();
        match is_complete {
            Ok(is_complete) => Outcome { reply, rest, is_complete },
            Err(failure) => Outcome { reply: Err(failure), rest, is_complete: false },
        }
    }

    /// Sends a reply, or keeps it to send with later ones.
    async fn send(
        &mut self,
        work: &mut Lease,
        mut reply: Reply,
        asked: Asked,
        is_complete: bool,
        mut detached: Option<Box<Detached>>,
    ) -> Option<Next> {
        let mut first = None;
        // In a dialogue the client may wait for the head before it continues, and the body may wait
        // for the client.
        if detached.is_none() && is_measured_stream(&reply, asked) {
            reply.content_len = reply.body.len();
            first = match self.first_piece(&mut reply.body, &mut work.out).await {
                Ok(first) => first,
                Err(error) => {
                    debug!(%error, "cannot start a reply's body");
                    let reply = self.handler.refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string());
                    return Some(self.last(work, reply).await);
                }
            };
        }
        let mut keep_alive = asked.keep_alive && is_complete && !reply.close && !self.link.is_finishing();
        if keep_alive && self.watch.is_closing().await {
            // Requests that have arrived are still answered.
            keep_alive = matches!(HeadScan::new().find(work.input(), &self.limits.head), Ok(Some(_)));
        }
        let (keep_alive, queued) = queue(reply, asked, keep_alive, &mut work.out);
        match queued {
            Queued::All => {}
            Queued::Tunnel(tunnel) => return Some(self.flush(&mut work.out).await.unwrap_or(Next::Tunnel(tunnel))),
            Queued::Stream(stream, framing) => {
                let stream = Streaming::new(stream, framing, asked.wants_trailers, first);
                if let Some(next) = Box::pin(self.stream(&mut work.out, stream, &mut detached)).await {
                    return Some(next);
                }
            }
        }
        if let Some(detached) = detached {
            return Box::pin(self.end_of_body(work, detached, keep_alive)).await;
        }
        if keep_alive {
            return None;
        }
        let next = self.flush(&mut work.out).await;
        // A client that ends the connection itself sends no more; any other could send more, and
        // the reply would be lost when the connection closes.
        let is_agreed = !asked.keep_alive && is_complete && work.input().is_empty();
        Some(next.unwrap_or(if is_agreed { Next::Close } else { Next::Linger }))
    }

    /// Returns the first piece of a body. Until then the status can still become an error.
    async fn first_piece(&mut self, body: &mut Body, out: &mut Outgoing) -> io::Result<Option<Bytes>> {
        poll_fn(|cx| match body.poll_next(cx) {
            Poll::Ready(piece) => Poll::Ready(piece.transpose()),
            Poll::Pending => write_meanwhile(&self.stream, out, cx).map(Err),
        })
        .await
    }

    /// Reads a handed-on body while its reply is sent.
    pub(super) fn poll_detached(&mut self, detached: &mut Option<Box<Detached>>, cx: &mut Context<'_>) {
        if let Some(detached) = detached {
            // If the client ends now, that is handled after the reply.
            let _ = detached.poll(self.wire(), Paced::Never, cx);
        }
    }

    /// After the reply, continues to read the body of the request if it was handed on. `None` if
    /// the next request may follow.
    async fn end_of_body(&mut self, work: &mut Lease, mut detached: Box<Detached>, keep_alive: bool) -> Option<Next> {
        if let Some(next) = self.flush(&mut work.out).await {
            return Some(next);
        }
        poll_fn(|cx| detached.poll(self.wire(), Paced::Always, cx)).await;
        let mut left = if keep_alive { self.limits.drain_len_max } else { 0 };
        let later = poll_fn(|cx| detached.poll_drain(self.wire(), &mut left, cx)).await;
        match later.filter(|_| keep_alive) {
            Some(later) => {
                go_on_with(work, later);
                None
            }
            None => Some(Next::Linger),
        }
    }

    fn wire(&mut self) -> Wire<'_, S> {
        Wire { stream: &self.stream, watch: &mut self.watch, limits: &self.limits }
    }

    /// Sends the reason for a refusal, and ends.
    pub(super) async fn refuse(&mut self, work: &mut Workspace, refusal: Refusal) -> Next {
        if matches!(refusal, Refusal::TooSlow) {
            self.handler.timed_out(Awaited::Request);
        }
        let reply = self.handler.refuse(refusal.status(), &refusal.to_string());
        self.last(work, reply).await
    }

    /// Sends a reply that answers no request, and ends.
    async fn last(&mut self, work: &mut Workspace, reply: Reply) -> Next {
        queue(reply, Asked::nothing(), false, &mut work.out);
        self.flush(&mut work.out).await.unwrap_or(Next::Linger)
    }
}

/// Where the service may put interim responses: HTTP/1.0 has none (RFC 9110, section 15.2).
fn may_be_ahead<'a>(head: &Head<'_>, interims: &'a Interims) -> Option<&'a Interims> {
    (head.request.version == Version::HTTP_11).then_some(interims)
}

/// Continues with the input of another workspace, because all input that came with the head is
/// handled. Outgoing bytes may not be written yet.
fn go_on_with(work: &mut Lease, mut later: Lease) {
    mem::swap(&mut work.out, &mut later.out);
    mem::swap(work, &mut later);
}

/// Waits for the service, and meanwhile reads and writes what is ready.
async fn meanwhile<S: dapple_io::Connection, T>(
    reading: &Mutex<Reading<'_, S>>,
    interims: &Interims,
    out: &mut Outgoing,
    answer: impl Future<Output = T>,
) -> Result<T, Failure> {
    let mut answer = pin!(answer);
    poll_fn(|cx| {
        let answered = answer.as_mut().poll(cx);
        if answered.is_pending() {
            lock(reading).poll_feed(cx);
        }
        if let Some(text) = interims.take() {
            out.text(|out| out.extend_from_slice(&text));
        }
        if let Poll::Ready(answered) = answered {
            return Poll::Ready(Ok(answered));
        }
        write_meanwhile(lock(reading).stream, out, cx).map(|_| Err(Failure::Gone))
    })
    .await
}

/// Writes replies to earlier requests during another wait. Ready only with an error.
fn write_meanwhile<S: dapple_io::Connection>(stream: &S, out: &mut Outgoing, cx: &mut Context<'_>) -> Poll<io::Error> {
    while !out.is_empty() {
        match out.poll_write(stream, cx) {
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(error),
            Poll::Pending => break,
        }
    }
    Poll::Pending
}

/// Reuses the memory of an emptied list for fields with another lifetime.
fn emptied(mut fields: Vec<Field<'_>>) -> Vec<Field<'static>> {
    fields.clear();
    // The standard library collects in place.
    fields.into_iter().map(|_| -> Field<'static> { unreachable!("there are none") }).collect()
}
