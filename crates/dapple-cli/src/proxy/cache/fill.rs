//! A response in transit, read by all clients that asked for it.
//!
//! | part | actor | time |
//! |---|---|---|
//! | outcome | the fetch writes it once | all wait for it |
//! | pieces | the fetch appends | while the response is kept, all of them stay: a late reader starts with the first |
//! | window | | once it is known that the response will not be kept, pieces are freed when all have read them, and the fetch waits for the slowest reader |
//! | end | the fetch writes it once | readers that have all pieces learn of it |
//!
//! Guarded by a lock and not a color: each critical section is a push or a clone, and code that
//! polls a body cannot await.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dapple_http::cache::Selection;
use http::{HeaderMap, StatusCode};
use slab::Slab;

use super::Stored;
use crate::http::{BodyStream, Served};

/// One response in transit, or the failure `F`.
pub(crate) struct Fill<F> {
    inner: Mutex<Inner<F>>,
}

struct Inner<F> {
    outcome: Option<Outcome<F>>,
    /// The server that got the request that caused the fetch.
    served: Option<Served>,
    pieces: VecDeque<Bytes>,
    /// The number of pieces removed from the front.
    gone: usize,
    /// Whether pieces go when all have read them.
    is_window: bool,
    end: Option<End>,
    /// The fields after the body.
    trailers: Option<HeaderMap>,
    readers: Slab<ReaderPosition>,
    fetch: Option<Waker>,
}

/// The position of one reader.
#[derive(Default)]
struct ReaderPosition {
    next: usize,
    waker: Option<Waker>,
}

#[derive(Clone, Copy)]
enum End {
    Complete,
    Broken,
}

/// The outcome of a fetch, once its head is there.
#[derive(Clone)]
pub(crate) enum Outcome<F> {
    /// A response; its body follows.
    Response(Arc<Head>),
    /// The stored response is still valid; true if it replaces an error.
    Stored(Arc<Stored>, bool),
    /// The same, but the new fields are only for the request that asked first.
    Own(Arc<Stored>),
    /// There is no response.
    Failed(F),
}

/// The head of a response in transit.
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) len: Option<u64>,
    /// The requests that it answers; `None` if only the first one.
    pub(crate) selection: Option<Selection>,
    /// Whether the response will be kept, as far as is known.
    pub(crate) is_kept: bool,
}

/// A reader, first of the outcome, then of the body.
pub(crate) struct Reader<F> {
    fill: Arc<Fill<F>>,
    place: usize,
    left: Option<u64>,
}

impl<F> Default for Fill<F> {
    fn default() -> Fill<F> {
        let (pieces, gone, is_window, readers) = Default::default();
        let (outcome, served, end, trailers, fetch) = (None, None, None, None, None);
        let inner = Inner { outcome, served, pieces, gone, is_window, end, trailers, readers, fetch };
        Fill { inner: Mutex::new(inner) }
    }
}

impl<F> Fill<F> {
    /// Adds a reader that starts with the first piece; `None` if that was freed already.
    pub(crate) fn join(self: &Arc<Fill<F>>) -> Option<Reader<F>> {
        let mut inner = self.lock();
        if inner.gone > 0 {
            return None;
        }
        let place = inner.readers.insert(ReaderPosition::default());
        Some(Reader { fill: self.clone(), place, left: None })
    }

    /// Notes the server that got the request. Call it before [`decide`](Self::decide).
    pub(super) fn set_served(&self, served: Served) {
        self.lock().served = Some(served);
    }

    /// Takes the server that got the request that started the fetch.
    pub(crate) fn take_served(&self) -> Option<Served> {
        self.lock().served.take()
    }

    /// Tells all readers the outcome. Later calls change nothing.
    pub(super) fn decide(&self, outcome: Outcome<F>) {
        let mut inner = self.lock();
        inner.is_window |= matches!(&outcome, Outcome::Response(head) if !head.is_kept);
        inner.outcome.get_or_insert(outcome);
        inner.wake_all();
    }

    /// From now on pieces go when all have read them.
    pub(super) fn give_up_keeping(&self) {
        let mut inner = self.lock();
        inner.is_window = true;
        inner.drop_read();
    }

    /// Appends a piece, and if pieces go, waits for room. Returns `false` when no reader is left.
    pub(super) async fn push(&self, piece: Bytes) -> bool {
        {
            let mut inner = self.lock();
            inner.pieces.push_back(piece);
            inner.wake_all();
        }
        poll_fn(|cx| {
            let mut inner = self.lock();
            if !inner.is_window {
                return Poll::Ready(true);
            }
            if inner.readers.is_empty() {
                return Poll::Ready(false);
            }
            if inner.pieces.len() < WINDOW_LEN {
                return Poll::Ready(true);
            }
            inner.fetch = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Sets the trailers. Call it before the end.
    pub(super) fn set_trailers(&self, trailers: Option<HeaderMap>) {
        self.lock().trailers = trailers;
    }

    /// Ends the response: all pieces are there, or no more will come.
    pub(super) fn end(&self, is_complete: bool) {
        let mut inner = self.lock();
        inner.end.get_or_insert(if is_complete { End::Complete } else { End::Broken });
        inner.wake_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner<F>> {
        // Nothing under the lock can panic halfway.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> Inner<F> {
    fn wake_all(&mut self) {
        for (_, place) in &mut self.readers {
            if let Some(waker) = place.waker.take() {
                waker.wake();
            }
        }
    }

    /// Drops the pieces that all have read, if pieces go.
    fn drop_read(&mut self) {
        if !self.is_window {
            return;
        }
        let read = self.readers.iter().map(|(_, place)| place.next).min().unwrap_or(usize::MAX);
        let count = read.saturating_sub(self.gone).min(self.pieces.len());
        self.pieces.drain(..count);
        self.gone += count;
        if let Some(fetch) = self.fetch.take_if(|_| count > 0 || self.readers.is_empty()) {
            fetch.wake();
        }
    }
}

impl<F: Clone> Reader<F> {
    /// Waits for the outcome of the fetch.
    pub(crate) async fn outcome(&mut self) -> Outcome<F> {
        poll_fn(|cx| {
            let mut inner = self.fill.lock();
            if let Some(outcome) = &inner.outcome {
                return Poll::Ready(outcome.clone());
            }
            inner.readers[self.place].waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Sets the length of the body, if known.
    pub(crate) fn with_len(mut self, len: Option<u64>) -> Reader<F> {
        self.left = len;
        self
    }
}

impl<F: Send + 'static> BodyStream for Reader<F> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut inner = self.fill.lock();
        let at = inner.readers[self.place].next - inner.gone;
        if let Some(piece) = inner.pieces.get(at).cloned() {
            inner.readers[self.place].next += 1;
            inner.drop_read();
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(piece.len() as u64);
            }
            return Poll::Ready(Some(Ok(piece)));
        }
        match inner.end {
            Some(End::Complete) => Poll::Ready(None),
            Some(End::Broken) => {
                let text = "the server ended the response before it was complete";
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))))
            }
            None => {
                inner.readers[self.place].waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn len(&self) -> Option<u64> {
        self.left
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.fill.lock().trailers.clone()
    }
}

impl<F> Drop for Reader<F> {
    fn drop(&mut self) {
        let mut inner = self.fill.lock();
        inner.readers.remove(self.place);
        inner.drop_read();
    }
}

/// How many pieces of a response that is not kept are in memory at a time.
const WINDOW_LEN: usize = 4;
