//! The body of a request, as it arrives on the connection.

use std::future::poll_fn;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple_http::{ChunkDecoder, Framing, Head, Refusal};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::detached::{Detached, Feed, Rest};
use super::watch::Watch;
use super::workspace::Lease;
use crate::http::clock::now_ms;
use crate::http::pace::Pace;
use crate::http::{Interims, Limits};

/// The reading side of a connection while the service answers: the body of the request, and its
/// source. Meanwhile the connection's task writes to the stream.
pub(super) struct Reading<'a, S> {
    pub(super) stream: &'a S,
    watch: &'a mut Watch,
    limits: &'a Limits,
    body: IncomingBody,
    /// Bytes that came with the head and are not handled yet.
    first: &'a [u8],
    first_len: usize,
    /// Set while the client waits for `100 Continue`; sends it.
    go_ahead: Option<&'a Interims>,
    /// Set if the service has handed the body on; the connection reads the body for it.
    feed: Option<Feed>,
}

/// The state of an arriving body: its framing, and the bytes read.
pub(super) struct IncomingBody {
    framing: Decoder,
    /// Bytes that came after the head. Bytes after the body may follow.
    later: Option<Lease>,
    pace: Option<Pace>,
    failure: Option<Failure>,
}

/// Decodes the body's framing.
enum Decoder {
    Len(u64),
    Chunked(ChunkDecoder),
}

/// The reason why a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The client broke a rule, and gets a reply that says so.
    Refused(Refusal),
    /// The connection has ended.
    Gone,
}

impl<'a, S: dapple_io::Connection> Reading<'a, S> {
    /// Reads the body after `head`. It begins with `first`, which may also hold later bytes.
    pub(super) fn new(
        stream: &'a S,
        interims: &'a Interims,
        watch: &'a mut Watch,
        head: &Head<'_>,
        first: &'a [u8],
        limits: &'a Limits,
    ) -> Reading<'a, S> {
        let framing = match head.framing {
            Framing::None => Decoder::Len(0),
            Framing::Len(len) => Decoder::Len(len),
            Framing::Chunked => Decoder::Chunked(ChunkDecoder::new()),
        };
        // A client that has begun to send does not wait (RFC 9110, section 10.1.1).
        let go_ahead = (head.expects_continue && first.is_empty()).then_some(interims);
        let body = IncomingBody { framing, later: None, pace: None, failure: None };
        Reading { stream, watch, limits, body, first, first_len: first.len(), go_ahead, feed: None }
    }

    /// Whether the client still waits for `100 Continue`.
    pub(super) fn is_awaited(&self) -> bool {
        self.go_ahead.is_some()
    }

    pub(super) fn failure(&self) -> Option<Failure> {
        self.body.failure
    }

    /// Whether the whole body was read.
    pub(super) fn is_end(&self) -> bool {
        self.body.is_end()
    }

    /// Whether the body was handed on, so that the service does not read it.
    pub(super) fn is_detached(&self) -> bool {
        self.feed.is_some()
    }

    /// Reads the body for the task to which it was handed on, if any.
    pub(super) fn poll_feed(&mut self, cx: &mut Context<'_>) {
        if let Some(mut feed) = self.feed.take() {
            feed.poll(self, cx, Reading::poll_next, |reading| &reading.body);
            self.feed = Some(feed);
        }
    }

    /// Returns the remainder of the body, to be read on if it was handed on.
    pub(super) fn into_rest(mut self) -> Rest {
        let feed = self.feed.take().filter(|_| !self.is_end() && self.failure().is_none() && !self.is_awaited());
        let Some(feed) = feed else {
            return Rest { consumed: self.first_len - self.first.len(), later: self.body.later, detached: None };
        };
        // Output is about to reuse the request's memory.
        if !self.first.is_empty() {
            let mut later = Lease::with_room(self.first.len());
            later.put(self.first);
            self.body.later = Some(later);
        }
        Rest { consumed: self.first_len, later: None, detached: Some(Detached::new(self.body, feed)) }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Reading { stream, watch, limits, body, first, go_ahead, .. } = self;
        body.poll_next(first, cx, |body, cx| {
            if let Some(interims) = go_ahead.take() {
                // The caller writes it; until then the stream has no bytes to read.
                interims.push(StatusCode::CONTINUE, &HeaderMap::new());
            }
            let paced = if limits.paces_bodies { Paced::Always } else { Paced::Never };
            body.poll_fill(*stream, watch, limits, paced, cx)
        })
    }
}

/// The waits that count against a client that sends a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paced {
    Always,
    /// None: request and reply are a dialogue, in which the client may pause.
    Never,
}

impl IncomingBody {
    /// Whether the whole body was read.
    pub(super) fn is_end(&self) -> bool {
        match &self.framing {
            Decoder::Len(len) => *len == 0,
            Decoder::Chunked(decoder) => decoder.is_end(),
        }
    }

    /// The number of bytes still to come, if known.
    pub(super) fn len(&self) -> Option<u64> {
        match &self.framing {
            Decoder::Len(len) => Some(*len),
            Decoder::Chunked(decoder) => decoder.is_end().then_some(0),
        }
    }

    /// Returns the bytes read after the body, once that has ended.
    pub(super) fn take_later(&mut self) -> Lease {
        self.later.take().unwrap_or_else(Lease::take)
    }

    /// Returns the next piece: from `first`, from later bytes, or from the bytes that `fill` reads.
    pub(super) fn poll_next(
        &mut self,
        first: &mut &[u8],
        cx: &mut Context<'_>,
        mut fill: impl FnMut(&mut IncomingBody, &mut Context<'_>) -> Poll<Result<(), Failure>>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if self.is_end() || self.failure.is_some() {
                return Poll::Ready(None);
            }
            match self.decode(first) {
                Ok(Some(piece)) => {
                    // Until now the service had not asked for this piece, so the client was not
                    // slow.
                    if let Some(pace) = &mut self.pace {
                        pace.rest(now_ms());
                    }
                    return Poll::Ready(Some(Ok(piece)));
                }
                Ok(None) if self.is_end() => return Poll::Ready(None),
                Ok(None) => {}
                Err(refusal) => return Poll::Ready(Some(Err(self.fail(Failure::Refused(refusal))))),
            }
            if let Err(failure) = ready!(fill(self, cx)) {
                return Poll::Ready(Some(Err(self.fail(failure))));
            }
        }
    }

    /// Returns the next piece in memory; `None` if more bytes are needed, or the body is complete.
    fn decode(&mut self, first: &mut &[u8]) -> Result<Option<Bytes>, Refusal> {
        let later = self.later.as_mut().filter(|_| first.is_empty());
        let input = later.as_ref().map_or(*first, |later| later.input());
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
            None => *first = &first[consumed..],
        }
        Ok(piece)
    }

    /// Reads more bytes into memory.
    pub(super) fn poll_fill<S: dapple_io::Connection>(
        &mut self,
        stream: &S,
        watch: &mut Watch,
        limits: &Limits,
        paced: Paced,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let wanted = match &self.framing {
            Decoder::Len(left) => usize::try_from(*left).unwrap_or(usize::MAX).min(READ_LEN_MAX),
            Decoder::Chunked(_) => READ_LEN_MAX,
        };
        let later = self.later.get_or_insert_with(|| Lease::with_room(wanted));
        match later.poll_fill(stream, READ_LEN_MAX, cx) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(Failure::Refused(Refusal::CutShort))),
            Poll::Ready(Ok(len)) => {
                if let Some(pace) = &mut self.pace {
                    pace.moved(len as u64, now_ms());
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(_)) => Poll::Ready(Err(Failure::Gone)),
            Poll::Pending => {
                if paced == Paced::Never {
                    // A dialogue may pause for long, and then holds no memory.
                    self.later.take_if(|later| later.input().is_empty());
                }
                self.poll_pace(watch, limits, paced, cx)
            }
        }
    }

    /// Waits for the client as long as its pace allows.
    fn poll_pace(
        &mut self,
        watch: &mut Watch,
        limits: &Limits,
        paced: Paced,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let now_ms = now_ms();
        let new = || Pace::new(limits.pause_timeout, limits.rate_grace, limits.receive_rate_min, now_ms);
        let pace = self.pace.get_or_insert_with(new);
        if paced == Paced::Never {
            pace.rest(now_ms);
            return Poll::Pending;
        }
        pace.go_on(now_ms);
        ready!(watch.poll_deadline(pace.deadline_ms(), now_ms, cx));
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

    /// The fields after the body, once it has ended.
    pub(super) fn trailers(&self) -> Option<HeaderMap> {
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
}

/// The body of a request, as the service reads it.
pub(super) struct Incoming<'r, 'a, S>(pub(super) &'r Mutex<Reading<'a, S>>);

/// Reads the rest of a body and discards it, up to the limit. Returns `false` if there is more.
pub(super) async fn drain<S: dapple_io::Connection>(reading: &Mutex<Reading<'_, S>>) -> Result<bool, Failure> {
    let mut left = lock(reading).limits.drain_len_max;
    if lock(reading).body.len().is_some_and(|len| len > left) {
        return Ok(false);
    }
    while let Some(piece) = poll_fn(|cx| lock(reading).poll_next(cx)).await {
        let Ok(piece) = piece else { return Err(lock(reading).failure().unwrap_or(Failure::Gone)) };
        match left.checked_sub(piece.len() as u64) {
            Some(less) => left = less,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Takes a lock that only the connection's own task uses.
pub(super) fn lock<'m, 'a, S>(reading: &'m Mutex<Reading<'a, S>>) -> MutexGuard<'m, Reading<'a, S>> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: dapple_io::Connection> crate::http::Incoming for Incoming<'_, '_, S> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut reading = lock(self.0);
        if reading.is_detached() { Poll::Ready(None) } else { reading.poll_next(cx) }
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        lock(self.0).body.trailers()
    }

    fn len(&self) -> Option<u64> {
        let reading = lock(self.0);
        if reading.is_detached() { Some(0) } else { reading.body.len() }
    }

    fn detach(&mut self) -> Option<Box<dyn crate::http::Incoming + Send + Sync>> {
        let mut reading = lock(self.0);
        if reading.is_detached() || reading.failure().is_some() {
            return None;
        }
        let (feed, body) = Feed::new(reading.body.len());
        feed.note_end(&reading.body);
        reading.feed = Some(feed);
        Some(Box::new(body))
    }
}

/// The most bytes of a body that are read ahead.
const READ_LEN_MAX: usize = 16 << 10;
