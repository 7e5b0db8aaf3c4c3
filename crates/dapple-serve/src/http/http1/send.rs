//! Sends replies.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple_http::{DateLine, Head, LAST_CHUNK, ReplyFraming, chunk_start, write_head};
use http::header::DATE;
use http::{Method, StatusCode, Version};
use tracing::debug;

use super::connection::{Connection, Next};
use super::detached::Detached;
use super::outgoing::Outgoing;
use crate::http::clock::{now_ms, unix_s};
use crate::http::pace::{Pace, send_pace};
use crate::http::{Awaited, Body, BodyStream, Handler, Reply, Tunnel, trailers};

/// The parts of a request that decide how its reply is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    version: Version,
    is_head: bool,
    pub(super) keep_alive: bool,
    /// Whether fields may follow the body.
    pub(super) wants_trailers: bool,
}

/// The work left for a reply after its head was queued.
pub(super) enum Queued {
    /// None: the body waits as well.
    All,
    Stream(Box<dyn BodyStream>, ReplyFraming),
    Tunnel(Box<dyn Tunnel>),
}

impl Asked {
    pub(super) fn of(head: &Head<'_>) -> Asked {
        let is_head = head.request.method == Method::HEAD;
        let wants_trailers = head.request.takes_trailers();
        Asked { version: head.request.version, is_head, keep_alive: head.keep_alive, wants_trailers }
    }

    /// The settings for a reply to input that is not a request.
    pub(super) fn nothing() -> Asked {
        Asked { version: Version::HTTP_11, is_head: false, keep_alive: true, wants_trailers: false }
    }
}

/// Queues a reply, and returns whether the connection can be kept afterwards.
pub(super) fn queue(mut reply: Reply, asked: Asked, keep_alive: bool, out: &mut Outgoing) -> (bool, Queued) {
    let framing = framing(&reply, asked);
    let keep_alive = keep_alive && framing != ReplyFraming::UntilClose;
    let is_tunnel = matches!(reply.body, Body::Tunnel(_));
    let shared = match &reply.shared {
        Some(shared) => &shared.lines,
        None if is_tunnel && reply.status == StatusCode::SWITCHING_PROTOCOLS => CHANGES,
        None => &[][..],
    };
    out.text(|text| {
        DATE_LINE.with_borrow_mut(|date| {
            // A forwarded reply has the date of its origin.
            let date = if reply.headers.contains_key(DATE) { &[] } else { date.at(unix_s()) };
            write_head(
                text,
                asked.version,
                reply.status,
                shared,
                &reply.headers,
                date,
                framing,
                keep_alive || is_tunnel,
            );
        });
    });
    match (reply.observer, &mut reply.body) {
        (Some(observer), Body::Tunnel(tunnel)) => tunnel.observe(observer),
        (Some(observer), _) => out.observe(observer),
        (None, _) => {}
    }
    let queued = match reply.body {
        Body::Tunnel(tunnel) => Queued::Tunnel(tunnel),
        _ if asked.is_head || is_bodiless(reply.status) => Queued::All,
        Body::Empty => Queued::All,
        Body::Whole(bytes) => {
            out.bytes(bytes);
            Queued::All
        }
        Body::Stream(stream) => Queued::Stream(stream, framing),
    };
    if !matches!(queued, Queued::Stream(..)) {
        out.end_of_reply();
    }
    (keep_alive, queued)
}

/// How the body of a reply is framed (RFC 9112, section 6.3).
fn framing(reply: &Reply, asked: Asked) -> ReplyFraming {
    let len = match &reply.body {
        Body::Tunnel(_) => return ReplyFraming::None,
        _ if is_bodiless(reply.status) || asked.is_head => {
            let len = reply.content_len.or_else(|| reply.body.len().filter(|len| *len > 0));
            let is_said = asked.is_head || reply.status == StatusCode::NOT_MODIFIED;
            return len.filter(|_| is_said).map_or(ReplyFraming::None, ReplyFraming::Len);
        }
        // The first piece may have been taken already.
        body => reply.content_len.or_else(|| body.len()),
    };
    match len {
        Some(len) => ReplyFraming::Len(len),
        None if asked.version == Version::HTTP_10 => ReplyFraming::UntilClose,
        None => ReplyFraming::Chunked,
    }
}

/// Whether replies of this status never have a body.
fn is_bodiless(status: StatusCode) -> bool {
    status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED
}

/// Whether a reply's body comes piece by piece and its length is known.
pub(super) fn is_measured_stream(reply: &Reply, asked: Asked) -> bool {
    let is_sent = !asked.is_head && !is_bodiless(reply.status);
    is_sent && matches!(&reply.body, Body::Stream(stream) if stream.len().is_some())
}

/// A body that comes piece by piece. While one batch is written, the sender asks for the next
/// piece, so memory holds both.
pub(super) struct Streaming {
    stream: Box<dyn BodyStream>,
    framing: ReplyFraming,
    wants_trailers: bool,
    next: Option<Bytes>,
    /// Whether the last piece has arrived.
    is_ended: bool,
    /// Whether all pieces wait to be written, or are written.
    is_queued: bool,
    failure: Option<io::Error>,
    pace: Option<Pace>,
    /// How many bytes one turn may write.
    turn_len_max: usize,
}

impl<S: dapple_io::Connection, H: Handler> Connection<S, H> {
    /// Sends a body after its head was queued, and meanwhile reads a handed-on body of the request.
    /// `None` if all is written.
    pub(super) async fn stream(
        &mut self,
        out: &mut Outgoing,
        mut streaming: Streaming,
        detached: &mut Option<Box<Detached>>,
    ) -> Option<Next> {
        let framing = streaming.framing;
        let result = poll_fn(|cx| {
            self.poll_detached(detached, cx);
            self.poll_stream(&mut streaming, out, cx)
        })
        .await;
        result.err().map(|error| {
            debug!(%error, "a reply was cut short");
            if error.kind() == io::ErrorKind::TimedOut {
                self.handler.timed_out(Awaited::Response);
            }
            match (framing, error.kind()) {
                // The framing shows the client that bytes are missing.
                (ReplyFraming::Len(_) | ReplyFraming::Chunked, kind) if kind != io::ErrorKind::TimedOut => Next::Close,
                _ => Next::Abort,
            }
        })
    }

    fn poll_stream(
        &mut self,
        streaming: &mut Streaming,
        out: &mut Outgoing,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut turn_len = 0;
        loop {
            let gathered = streaming.gather(out, cx);
            if out.is_empty() {
                if gathered.is_ready() {
                    return Poll::Ready(streaming.failure.take().map_or(Ok(()), Err));
                }
                // The client is not the cause of this wait.
                if let Some(pace) = &mut streaming.pace {
                    pace.rest(now_ms());
                }
                return Poll::Pending;
            }
            match out.poll_write(&self.stream, cx) {
                Poll::Ready(Ok(len)) => {
                    if let Some(pace) = &mut streaming.pace {
                        pace.moved(len as u64, now_ms());
                    }
                    turn_len += len;
                    if turn_len >= streaming.turn_len_max {
                        streaming.turn_len_max = WRITE_TURN_LEN;
                        streaming.give_back(out);
                        return let_others_go(cx);
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    streaming.give_back(out);
                    let pace = streaming.pace.get_or_insert_with(|| send_pace(&self.limits));
                    pace.go_on(now_ms());
                    let over = self.watch.poll_deadline(pace.deadline_ms(), now_ms(), cx);
                    return over.map(|()| Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
    }
}

impl Streaming {
    /// Takes over a body; its first piece may have come already.
    pub(super) fn new(
        stream: Box<dyn BodyStream>,
        framing: ReplyFraming,
        wants_trailers: bool,
        first: Option<Bytes>,
    ) -> Streaming {
        let (next, failure, pace, is_ended, is_queued) = (None, None, None, false, false);
        let turn_len_max = FIRST_TURN_LEN;
        let mut streaming =
            Streaming { stream, framing, wants_trailers, next, is_ended, is_queued, failure, pace, turn_len_max };
        if first.is_some() {
            match streaming.checked(first) {
                Ok(first) => streaming.next = first,
                Err(error) => streaming.failure = Some(error),
            }
        }
        streaming
    }

    /// Takes pieces until the batch is full. Ready when the body has no more, also after a failure:
    /// earlier pieces are still sent.
    fn gather(&mut self, out: &mut Outgoing, cx: &mut Context<'_>) -> Poll<()> {
        while self.failure.is_none() && !self.is_queued {
            if self.turn_len_max == FIRST_TURN_LEN && out.len() >= FIRST_TURN_LEN {
                // This turn writes no more, so reading more can wait.
                return Poll::Pending;
            }
            if self.next.is_none() && !self.is_ended {
                match ready!(self.stream.poll_next(cx)).transpose().and_then(|piece| self.checked(piece)) {
                    Ok(piece) => (self.is_ended, self.next) = (piece.is_none(), piece),
                    Err(error) => self.failure = Some(error),
                }
            } else if !out.takes_more() {
                return Poll::Pending;
            } else if let Some(piece) = self.next.take() {
                self.queue(piece, out);
            } else {
                if self.framing == ReplyFraming::Chunked {
                    let trailers = self.wants_trailers.then(|| self.stream.trailers()).flatten();
                    out.text(|text| match trailers {
                        Some(trailers) => trailers::write_last_chunk(&trailers, text),
                        None => text.extend_from_slice(LAST_CHUNK),
                    });
                }
                out.end_of_reply();
                self.is_queued = true;
            }
        }
        Poll::Ready(())
    }

    /// Returns pieces that wait to be written to the body, if it can produce them again.
    fn give_back(&mut self, out: &mut Outgoing) {
        let ReplyFraming::Len(to_come) = &mut self.framing else { return };
        let Some(left) = out.last_piece_left().filter(|_| !self.is_queued && !self.is_ended) else { return };
        let len = left + self.next.as_ref().map_or(0, Bytes::len);
        if self.stream.take_back(len) {
            *to_come += len as u64;
            self.next = None;
            out.reuse();
        }
    }

    fn queue(&self, piece: Bytes, out: &mut Outgoing) {
        if self.framing != ReplyFraming::Chunked {
            return out.bytes(piece);
        }
        out.text(|text| chunk_start(piece.len(), text));
        out.bytes(piece);
        out.text(|text| text.extend_from_slice(b"\r\n"));
    }

    /// Counts a piece, or the end, against the promised length.
    fn checked(&mut self, piece: Option<Bytes>) -> io::Result<Option<Bytes>> {
        if let ReplyFraming::Len(left) = &mut self.framing {
            *left = match &piece {
                Some(piece) => left.checked_sub(piece.len() as u64).ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the body is longer than its stated \
                        length",
                    )
                })?,
                None if *left > 0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the body is shorter than its stated \
                        length",
                    ));
                }
                None => 0,
            };
        }
        Ok(piece)
    }
}

/// Pending, with a wake that goes behind all runnable work. The yield is a wake, so dropping it loses
/// nothing.
pub(super) fn let_others_go<T>(cx: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(dapple_sched::yield_now()).poll(cx);
    Poll::Pending
}

/// How many bytes of a reply are written before others have their turn: a client that takes
/// everything at once would otherwise keep the worker busy. Rejected: a line in which only two
/// large replies per worker write at a time. It cost a third more CPU, and small replies came no
/// sooner.
pub(super) const WRITE_TURN_LEN: usize = 128 << 10;

/// The same in the turn that begins a reply. That turn is queued with those of newcomers, and a
/// newcomer waits for all turns before its own. So a small reply waits for little more than the
/// heads of the large replies that begin at the same time.
const FIRST_TURN_LEN: usize = 16 << 10;

/// The fields of a response that changes the protocol (RFC 9110, section 7.8).
const CHANGES: &[u8] = b"connection: upgrade\r\n";

thread_local! {
    static DATE_LINE: RefCell<DateLine> = const { RefCell::new(DateLine::new()) };
}
