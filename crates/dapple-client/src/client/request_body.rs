//! The body of a request.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple_tower::BoxError;
use hyper::body::{Frame, SizeHint};

/// The body of a request: nothing, bytes, or any `http_body::Body` including its trailers. Strings
/// and bytes convert with `Into`.
#[derive(Default)]
pub struct Body {
    kind: Kind,
    fate: Arc<Fate>,
}

/// The fate of a body that hyper holds.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// Whether hyper has taken all of it.
    is_taken: AtomicBool,
    /// The error that ended it. Hyper does not always pass the error on.
    error: Mutex<Option<BoxError>>,
}

impl Fate {
    pub(super) fn is_taken(&self) -> bool {
        // Relaxed: a hint; the connection itself says when it can carry the next request.
        self.is_taken.load(Ordering::Relaxed)
    }

    pub(super) fn error(&self) -> Option<BoxError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[derive(Default)]
enum Kind {
    #[default]
    Empty,
    Whole(Bytes),
    Stream(Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = BoxError> + Send>>),
    /// The whole body was sent.
    Over,
}

impl Body {
    /// Creates an empty body.
    pub fn empty() -> Body {
        Body::default()
    }

    /// Creates a body that comes in pieces. Over HTTP/1.1 it is chunked, unless it states its
    /// length.
    pub fn new<B>(body: B) -> Body
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Body { kind: Kind::Stream(Box::pin(Mapped { body: Box::pin(body) })), fate: Arc::default() }
    }

    /// A copy for another attempt; `None` if the body comes in pieces.
    pub(super) fn again(&self) -> Option<Body> {
        let kind = match &self.kind {
            Kind::Empty => Kind::Empty,
            Kind::Whole(bytes) => Kind::Whole(bytes.clone()),
            Kind::Stream(_) | Kind::Over => return None,
        };
        Some(Body { kind, fate: Arc::default() })
    }

    /// A view of its fate.
    pub(super) fn fate(&self) -> Arc<Fate> {
        // Hyper does not poll an empty body.
        self.fate.is_taken.store(hyper::body::Body::is_end_stream(self), Ordering::Relaxed);
        self.fate.clone()
    }

    fn end(&mut self) {
        self.kind = Kind::Over;
        self.fate.is_taken.store(true, Ordering::Relaxed);
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match &mut self.kind {
            Kind::Empty | Kind::Over => None,
            Kind::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                self.end();
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            Kind::Stream(body) => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                // Hyper does not poll again if it knows the end.
                if matches!(frame, Some(Ok(_))) && (body.is_end_stream() || body.size_hint().exact() == Some(0)) {
                    self.fate.is_taken.store(true, Ordering::Relaxed);
                }
                frame
            }
        };
        match frame {
            Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
            Some(Err(error)) => {
                *self.fate.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                self.kind = Kind::Over;
                return Poll::Ready(Some(Err("the body of the request failed".into())));
            }
            None => self.end(),
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty | Kind::Over => true,
            Kind::Whole(_) => false,
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty | Kind::Over => SizeHint::with_exact(0),
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}

/// A body with boxed errors.
struct Mapped<B> {
    body: Pin<Box<B>>,
}

impl<B> hyper::body::Body for Mapped<B>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.body.as_mut().poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl From<()> for Body {
    fn from((): ()) -> Body {
        Body::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        let kind = if bytes.is_empty() { Kind::Empty } else { Kind::Whole(bytes) };
        Body { kind, fate: Arc::default() }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Body {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Body {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Body {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = hyper::body::Body::size_hint(self).exact();
        f.debug_struct("Body").field("len", &len).finish_non_exhaustive()
    }
}
