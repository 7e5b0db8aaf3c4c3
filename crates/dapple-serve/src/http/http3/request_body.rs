//! The body of an HTTP/3 request.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use dapple_io::time::timeout;
use h3::error::Code;
use h3::server::RequestStream;

use super::metered::{Credit, RecvStream};
use crate::http::clock::now_ms;
use crate::http::pace::Pace;
use crate::http::{Incoming, Limits};

/// A body as it arrives.
pub(super) struct Received {
    stream: RequestStream<RecvStream, Bytes>,
    credit: Credit,
    /// The number of bytes still to come, if the client stated a length.
    left: Option<u64>,
    is_ended: bool,
    /// Whether it differed from what its head announced.
    is_malformed: bool,
}

/// The outcome of draining a body.
pub(super) enum Drained {
    /// The body was read to its end.
    Whole,
    /// The body is longer than the limit.
    More,
    /// The body differs from what its head announced.
    Malformed(String),
    /// The client takes too long.
    Slow,
    /// The client, or the connection to it, has ended.
    Gone,
}

impl Received {
    pub(super) fn new(stream: RequestStream<RecvStream, Bytes>, credit: Credit, len: Option<u64>) -> Received {
        Received { stream, credit, left: len, is_ended: false, is_malformed: false }
    }

    /// Reads the rest and discards it, within the same limits as HTTP/1.1.
    pub(super) async fn drain(&mut self, limits: &Limits) -> Drained {
        let mut left = limits.drain_len_max;
        if self.len().is_some_and(|len| len > left) {
            return Drained::More;
        }
        let mut pace = Pace::new(limits.pause_timeout, limits.rate_grace, limits.receive_rate_min, now_ms());
        loop {
            let wait = Duration::from_millis(pace.deadline_ms().saturating_sub(now_ms()));
            let len = match timeout(wait, poll_fn(|cx| self.poll_next(cx))).await {
                Err(_) => return Drained::Slow,
                Ok(None) => return Drained::Whole,
                Ok(Some(Ok(piece))) => piece.len() as u64,
                Ok(Some(Err(error))) if self.is_malformed => return Drained::Malformed(error.to_string()),
                Ok(Some(Err(_))) => return Drained::Gone,
            };
            match left.checked_sub(len) {
                Some(less) => left = less,
                None => return Drained::More,
            }
            pace.moved(len, now_ms());
        }
    }

    /// Stops reading.
    pub(super) fn stop(mut self) {
        if self.is_malformed {
            self.stream.stop_sending(Code::H3_MESSAGE_ERROR);
        } else if !self.is_ended {
            self.stream.stop_sending(Code::H3_NO_ERROR);
        }
    }

    fn malformed(&mut self, reason: &'static str) -> Poll<Option<io::Result<Bytes>>> {
        self.is_malformed = true;
        self.end(Some(io::Error::new(io::ErrorKind::InvalidData, reason)))
    }

    fn end(&mut self, error: Option<io::Error>) -> Poll<Option<io::Result<Bytes>>> {
        self.is_ended = true;
        Poll::Ready(error.map(Err))
    }
}

impl Incoming for Received {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while !self.is_ended {
            let piece = match ready!(self.stream.poll_recv_data(cx)) {
                Ok(Some(mut data)) => data.copy_to_bytes(data.remaining()),
                Ok(None) if self.left.is_some_and(|left| left > 0) => {
                    return self.malformed("the body is shorter than its content-length");
                }
                // Discard trailers.
                Ok(None) => return self.end(None),
                Err(error) => return self.end(Some(io::Error::other(error))),
            };
            self.credit.give_back(piece.len());
            if let Some(left) = &mut self.left {
                match left.checked_sub(piece.len() as u64) {
                    Some(rest) => *left = rest,
                    None => return self.malformed("the body is longer than its content-length"),
                }
            }
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(piece)));
            }
        }
        Poll::Ready(None)
    }

    fn len(&self) -> Option<u64> {
        if self.is_ended { Some(0) } else { self.left }
    }
}
