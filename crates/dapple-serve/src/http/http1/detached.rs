//! The body of a request that is read on while the reply is sent, as in an echo.
//!
//! The service hands the body on ([`RequestBody::detach`](crate::http::RequestBody::detach)), and
//! its connection reads it on request, one piece at a time.
//!
//! | the exchange holds | the reader | the connection |
//! |---|---|---|
//! | nothing | asks, and waits | does nothing |
//! | a request for a piece | waits | reads from the stream |
//! | a piece, or an error | takes it | does nothing |
//! | the end, with any trailers | receives it | is done with it |
//!
//! A connection that ends first puts an error into the exchange. A dropped reader ends the
//! exchange: the connection then discards the rest of the body, up to a limit, or ends.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;

use super::incoming::{IncomingBody, Paced};
use super::watch::Watch;
use super::workspace::Lease;
use crate::http::{Incoming, Limits};

/// The remainder of a body.
#[derive(Default)]
pub(super) struct Rest {
    /// How many of the bytes that came with the head belonged to the body.
    pub(super) consumed: usize,
    /// Later bytes that did not belong to the body.
    pub(super) later: Option<Lease>,
    /// Set if another task reads the body while the reply is sent.
    pub(super) detached: Option<Box<Detached>>,
}

/// The source of a body, and its limits.
pub(super) struct Wire<'a, S> {
    pub(super) stream: &'a S,
    pub(super) watch: &'a mut Watch,
    pub(super) limits: &'a Limits,
}

/// A body that another task reads while its connection sends the reply.
pub(super) struct Detached {
    body: IncomingBody,
    feed: Feed,
}

/// The connection's end of the exchange. If dropped before the body has ended, it puts an error
/// there.
pub(super) struct Feed(Arc<Mutex<Exchange>>);

/// The reader's end of the exchange.
struct Reader(Arc<Mutex<Exchange>>);

/// The state between the connection and the reader.
#[derive(Default)]
struct Exchange {
    is_wanted: bool,
    piece: Option<Bytes>,
    /// The end of the body, or the error that ended it; comes after the piece.
    end: Option<io::Result<()>>,
    trailers: Option<HeaderMap>,
    /// Bytes that the connection has still to read, if known.
    left: Option<u64>,
    is_dropped: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

impl Feed {
    /// Creates both ends of an exchange.
    pub(super) fn new(left: Option<u64>) -> (Feed, impl Incoming + Send + Sync + 'static) {
        let exchange = Arc::new(Mutex::new(Exchange { left, ..Exchange::default() }));
        (Feed(exchange.clone()), Reader(exchange))
    }

    /// Delivers the piece that the reader asks for, as far as `source` has it. Wakes the task when
    /// the reader asks for more.
    pub(super) fn poll<B>(
        &mut self,
        source: &mut B,
        cx: &mut Context<'_>,
        next: impl FnOnce(&mut B, &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>>,
        body: impl FnOnce(&B) -> &IncomingBody,
    ) {
        {
            let mut exchange = lock(&self.0);
            exchange.connection = Some(cx.waker().clone());
            if !exchange.is_wanted || exchange.is_over() {
                return;
            }
        }
        let Poll::Ready(piece) = next(source, cx) else { return };
        self.note_end(body(source));
        let mut exchange = lock(&self.0);
        exchange.is_wanted = false;
        match piece {
            Some(Ok(piece)) => exchange.put(piece),
            Some(Err(error)) => exchange.end = Some(Err(error)),
            None => {}
        }
        let reader = exchange.reader.take();
        drop(exchange);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Delivers the end as soon as the body has ended: the connection may drop the body before the
    /// reader asks for the end.
    pub(super) fn note_end(&self, body: &IncomingBody) {
        if body.is_end() {
            let mut exchange = lock(&self.0);
            exchange.trailers = body.trailers();
            exchange.end = Some(Ok(()));
        }
    }

    /// Whether the body has ended, or the reader was dropped.
    fn is_over(&self) -> bool {
        lock(&self.0).is_over()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut exchange = lock(&self.0);
        exchange.end.get_or_insert_with(|| Err(io::ErrorKind::ConnectionReset.into()));
        let reader = exchange.reader.take();
        drop(exchange);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl Exchange {
    fn is_over(&self) -> bool {
        self.end.is_some() || self.is_dropped
    }

    fn put(&mut self, piece: Bytes) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(piece.len() as u64);
        }
        self.piece = Some(piece);
    }
}

impl Incoming for Reader {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut exchange = lock(&self.0);
        if let Some(piece) = exchange.piece.take() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if let Some(end) = &mut exchange.end {
            // The error is delivered once.
            return Poll::Ready(std::mem::replace(end, Ok(())).err().map(Err));
        }
        exchange.reader = Some(cx.waker().clone());
        // If a connection knows of a request, it is not woken again; the reader may run in the
        // connection's own task, and be polled with it.
        let is_known = std::mem::replace(&mut exchange.is_wanted, true);
        let connection = exchange.connection.take_if(|_| !is_known);
        drop(exchange);
        connection.into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    fn len(&self) -> Option<u64> {
        let exchange = lock(&self.0);
        let waiting = exchange.piece.as_ref().map_or(0, |piece| piece.len() as u64);
        exchange.left.map(|left| left + waiting)
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        lock(&self.0).trailers.take()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut exchange = lock(&self.0);
        exchange.is_dropped = true;
        let connection = exchange.connection.take();
        drop(exchange);
        connection.into_iter().for_each(Waker::wake);
    }
}

impl Detached {
    pub(super) fn new(body: IncomingBody, feed: Feed) -> Box<Detached> {
        Box::new(Detached { body, feed })
    }

    /// Reads on for the reader. Ready when the reader was dropped, or the body has ended.
    pub(super) fn poll<S: dapple_io::Connection>(
        &mut self,
        wire: Wire<'_, S>,
        paced: Paced,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let next = |body: &mut IncomingBody, cx: &mut Context<'_>| {
            body.poll_next(&mut &[][..], cx, |body, cx| body.poll_fill(wire.stream, wire.watch, wire.limits, paced, cx))
        };
        self.feed.poll(&mut self.body, cx, next, |body| body);
        if self.feed.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Discards the rest of the body, up to `left` bytes. Ready with the bytes read after it, or
    /// with `None` if the body is longer or malformed.
    pub(super) fn poll_drain<S: dapple_io::Connection>(
        &mut self,
        wire: Wire<'_, S>,
        left: &mut u64,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Lease>> {
        loop {
            if self.body.len().is_some_and(|len| len > *left) {
                return Poll::Ready(None);
            }
            let fill = |body: &mut IncomingBody, cx: &mut Context<'_>| {
                body.poll_fill(wire.stream, wire.watch, wire.limits, Paced::Always, cx)
            };
            match ready!(self.body.poll_next(&mut &[][..], cx, fill)) {
                Some(Ok(piece)) if piece.len() as u64 <= *left => *left -= piece.len() as u64,
                Some(_) => return Poll::Ready(None),
                None if self.body.is_end() => return Poll::Ready(Some(self.body.take_later())),
                None => return Poll::Ready(None),
            }
        }
    }
}

fn lock(exchange: &Mutex<Exchange>) -> MutexGuard<'_, Exchange> {
    // Nothing under the lock can panic halfway.
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}
