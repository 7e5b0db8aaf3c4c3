//! A response on its way, read by all who asked for it.
//!
//! | what | who | when |
//! |---|---|---|
//! | outcome | the fetch writes it once | all wait for it |
//! | pieces | the fetch appends | while it is kept, all of them stay: who joins late reads from the first one |
//! | window | | once it is known that it will not be kept, pieces go as soon as all have read them, and the fetch waits for the slowest |
//! | end | the fetch writes it once | readers that have all pieces learn of it |
//!
//! Behind a lock and not a color: what is done under it is a push or a clone, and a body is polled where nothing can be awaited.

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

/// One response on its way, or the failure `F`.
pub(crate) struct Fill<F> {
    inner: Mutex<Inner<F>>,
}

struct Inner<F> {
    outcome: Option<Outcome<F>>,
    /// Which server was asked, for the request that caused the fetch.
    served: Option<Served>,
    pieces: VecDeque<Bytes>,
    /// How many pieces have gone from the front.
    gone: usize,
    /// Whether pieces go when all have read them.
    is_window: bool,
    end: Option<End>,
    /// The fields behind the body.
    trailers: Option<HeaderMap>,
    readers: Slab<ReaderPosition>,
    fetch: Option<Waker>,
}

/// Where one reader is.
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

/// What a fetch has found, once its head is there.
#[derive(Clone)]
pub(crate) enum Outcome<F> {
    /// A response whose body follows.
    Response(Arc<Head>),
    /// What was stored is still right; true where it stands in for an error.
    Stored(Arc<Stored>, bool),
    /// The same, but what came with it is for the request that asked first only.
    Own(Arc<Stored>),
    /// There is no response.
    Failed(F),
}

/// The head of a response on its way.
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) len: Option<u64>,
    /// For which requests it stands; `None` where it is for the one who asked first only.
    pub(crate) selection: Option<Selection>,
    /// Whether it will be kept, as far as is known.
    pub(crate) is_kept: bool,
}

/// One reader: first of the outcome, then of the body.
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
    /// A reader from the first piece on; `None` where that has gone already.
    pub(crate) fn join(self: &Arc<Fill<F>>) -> Option<Reader<F>> {
        let mut inner = self.lock();
        if inner.gone > 0 {
            return None;
        }
        let place = inner.readers.insert(ReaderPosition::default());
        Some(Reader { fill: self.clone(), place, left: None })
    }

    /// Which server was asked. To be said before [`decide`](Self::decide).
    pub(super) fn set_served(&self, served: Served) {
        self.lock().served = Some(served);
    }

    /// The server that was asked, for the request that began the fetch.
    pub(crate) fn take_served(&self) -> Option<Served> {
        self.lock().served.take()
    }

    /// Tells all what was found. Later calls change nothing.
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

    /// Appends a piece, and where pieces go waits until there is room. False when nobody reads any more.
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

    /// What comes behind the last piece. To be said before the end.
    pub(super) fn set_trailers(&self, trailers: Option<HeaderMap>) {
        self.lock().trailers = trailers;
    }

    /// All pieces are there, or there will be no more.
    pub(super) fn end(&self, is_complete: bool) {
        let mut inner = self.lock();
        inner.end.get_or_insert(if is_complete { End::Complete } else { End::Broken });
        inner.wake_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner<F>> {
        // Nothing that can panic half-way happens under the lock.
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

    /// Drops the pieces that all have read, where that is how it is.
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
    /// Waits for what the fetch finds.
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

    /// Of a body that is so long.
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

/// How many pieces are there at a time of what is not kept.
const WINDOW_LEN: usize = 4;
