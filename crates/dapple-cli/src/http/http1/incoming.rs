//! The body of a request, as it comes from the connection.

use std::future::poll_fn;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple_http::{ChunkDecoder, Framing, Head, Refusal};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::transport::Transport;
use super::watch::Watch;
use super::workspace::Lease;
use crate::http::clock::now_ms;
use crate::http::pace::Pace;
use crate::http::{Incoming as _, Interims, Limits};

/// Reads a body: first what came with the head, then from the stream.
pub(super) struct Incoming<'a, S> {
    stream: &'a Mutex<&'a mut S>,
    watch: &'a mut Watch,
    framing: Decoder,
    /// What came with the head and is not dealt with.
    first: &'a [u8],
    first_len: usize,
    /// What came later. Bytes behind the body may be in it.
    later: Option<Lease>,
    /// Where the client still waits to be told to send it: the way to do that.
    go_ahead: Option<&'a Interims>,
    pace: Option<Pace>,
    limits: &'a Limits,
    failure: Option<Failure>,
}

/// What takes a body apart.
enum Decoder {
    Len(u64),
    Chunked(ChunkDecoder),
}

/// Why there is no more of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The client did something that is answered.
    Refused(Refusal),
    /// The connection is gone.
    Gone,
}

/// How a body was left.
#[derive(Default)]
pub(super) struct Rest {
    /// So many bytes of what came with the head were the body's.
    pub(super) consumed: usize,
    /// What came later and was not the body's.
    pub(super) later: Option<Lease>,
}

impl<'a, S: Transport> Incoming<'a, S> {
    /// The body behind `head`. It begins with `first`, some of which may be behind it. The stream is shared with whoever writes while the
    /// body is read, in the same task; so are interim responses.
    pub(super) fn new(
        stream: &'a Mutex<&'a mut S>,
        interims: &'a Interims,
        watch: &'a mut Watch,
        head: &Head<'_>,
        first: &'a [u8],
        limits: &'a Limits,
    ) -> Incoming<'a, S> {
        let framing = match head.framing {
            Framing::None => Decoder::Len(0),
            Framing::Len(len) => Decoder::Len(len),
            Framing::Chunked => Decoder::Chunked(ChunkDecoder::new()),
        };
        // A client that has begun to send does not wait (RFC 9110, section 10.1.1).
        let go_ahead = (head.expects_continue && first.is_empty()).then_some(interims);
        let (first_len, later, pace, failure) = (first.len(), None, None, None);
        Incoming { stream, watch, framing, first, first_len, later, go_ahead, pace, limits, failure }
    }

    /// Whether the client still waits to be told to send it.
    pub(super) fn is_awaited(&self) -> bool {
        self.go_ahead.is_some()
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Whether all of it was read.
    pub(super) fn is_end(&self) -> bool {
        match &self.framing {
            Decoder::Len(len) => *len == 0,
            Decoder::Chunked(decoder) => decoder.is_end(),
        }
    }

    /// Reads what is left and drops it, up to the limit. False: there is more than that.
    pub(super) async fn drain(&mut self) -> Result<bool, Failure> {
        let mut left = self.limits.drain_len_max;
        if self.len().is_some_and(|len| len > left) {
            return Ok(false);
        }
        while let Some(piece) = poll_fn(|cx| self.poll_next(cx)).await {
            let len = match (piece, self.failure) {
                (Ok(piece), _) => piece.len() as u64,
                (Err(_), Some(failure)) => return Err(failure),
                (Err(_), None) => return Err(Failure::Gone),
            };
            if len > left {
                return Ok(false);
            }
            left -= len;
        }
        Ok(true)
    }

    pub(super) fn into_rest(self) -> Rest {
        Rest { consumed: self.first_len - self.first.len(), later: self.later }
    }

    /// The next piece of what is in memory; `None` when that takes more, or the body is complete.
    fn decode(&mut self) -> Result<Option<Bytes>, Refusal> {
        let later = self.later.as_mut().filter(|_| self.first.is_empty());
        let input = later.as_ref().map_or(self.first, |later| later.input());
        let (consumed, data) = match &mut self.framing {
            Decoder::Len(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= len as u64;
                (len, 0..len)
            }
            Decoder::Chunked(decoder) => {
                let step = decoder.step(input)?;
                (step.consumed, step.data)
            }
        };
        let piece = (!data.is_empty()).then(|| Bytes::copy_from_slice(&input[data]));
        match later {
            Some(later) => later.consume(consumed),
            None => self.first = &self.first[consumed..],
        }
        Ok(piece)
    }

    /// Reads more into memory.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if let Some(interims) = self.go_ahead.take() {
            // Written when this has returned; until then there is nothing to be read.
            interims.push(StatusCode::CONTINUE, &HeaderMap::new());
        }
        let wanted = match &self.framing {
            Decoder::Len(left) => usize::try_from(*left).unwrap_or(usize::MAX).min(READ_LEN_MAX),
            Decoder::Chunked(_) => READ_LEN_MAX,
        };
        let later = self.later.get_or_insert_with(|| Lease::with_room(wanted));
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = later.poll_fill(&mut **stream, READ_LEN_MAX, cx);
        drop(stream);
        match filled {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(Failure::Refused(Refusal::CutShort))),
            Poll::Ready(Ok(len)) => {
                if let Some(pace) = &mut self.pace {
                    pace.moved(len as u64, now_ms());
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(Failure::Gone)),
            Poll::Pending => self.poll_pace(cx),
        }
    }

    /// The client is waited for: for how long, its pace says.
    fn poll_pace(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let (now_ms, limits) = (now_ms(), self.limits);
        let new = || Pace::new(limits.pause_timeout, limits.rate_grace, limits.receive_rate_min, now_ms);
        let pace = self.pace.get_or_insert_with(new);
        pace.go_on(now_ms);
        ready!(self.watch.poll_deadline(pace.deadline_ms(), now_ms, cx));
        Poll::Ready(Err(Failure::Refused(Refusal::TooSlow)))
    }

    fn fail(&mut self, failure: Failure) -> io::Error {
        self.failure = Some(failure);
        match failure {
            Failure::Refused(Refusal::TooSlow) => io::Error::new(io::ErrorKind::TimedOut, Refusal::TooSlow),
            Failure::Refused(refusal) => io::Error::new(io::ErrorKind::InvalidData, refusal),
            Failure::Gone => io::ErrorKind::ConnectionReset.into(),
        }
    }
}

impl<S: Transport> crate::http::Incoming for Incoming<'_, S> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if self.is_end() || self.failure.is_some() {
                return Poll::Ready(None);
            }
            match self.decode() {
                Ok(Some(piece)) => {
                    // Until the next piece is asked for, it is not the client who is slow.
                    if let Some(pace) = &mut self.pace {
                        pace.rest(now_ms());
                    }
                    return Poll::Ready(Some(Ok(piece)));
                }
                Ok(None) if self.is_end() => return Poll::Ready(None),
                Ok(None) => {}
                Err(refusal) => return Poll::Ready(Some(Err(self.fail(Failure::Refused(refusal))))),
            }
            if let Err(failure) = ready!(self.poll_fill(cx)) {
                return Poll::Ready(Some(Err(self.fail(failure))));
            }
        }
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        let Decoder::Chunked(decoder) = &self.framing else { return None };
        let trailers = decoder
            .trailers()
            .filter_map(|(name, value)| HeaderName::from_bytes(name).ok().zip(HeaderValue::from_bytes(value).ok()));
        let mut headers = HeaderMap::new();
        for (name, value) in trailers.filter(|_| decoder.is_end()) {
            headers.append(name, value);
        }
        (!headers.is_empty()).then_some(headers)
    }

    fn len(&self) -> Option<u64> {
        match &self.framing {
            Decoder::Len(len) => Some(*len),
            Decoder::Chunked(decoder) => decoder.is_end().then_some(0),
        }
    }
}

/// How much of a body is read ahead.
const READ_LEN_MAX: usize = 16 << 10;
