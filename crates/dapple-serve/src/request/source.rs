//! The source of a request's body.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};

use crate::BoxError;
use crate::http::Incoming;

/// See the module.
pub(crate) enum Source {
    /// An HTTP/1.1 connection.
    Engine(Box<dyn Incoming + Send + Sync>),
    /// hyper: an HTTP/2 stream, or a request for another protocol.
    Hyper(hyper::body::Incoming),
}

impl Source {
    /// Returns the next frame: data, and at the end trailers.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Source::Hyper(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Source::Engine(body) => Poll::Ready(match ready!(body.poll_next(cx)) {
                Some(data) => Some(data.map(Frame::data).map_err(Into::into)),
                None => body.trailers().map(|trailers| Ok(Frame::trailers(trailers))),
            }),
        }
    }

    /// Whether it is known that no more frames come.
    pub(super) fn is_end(&self) -> bool {
        match self {
            Source::Hyper(body) => body.is_end_stream(),
            Source::Engine(body) => body.len() == Some(0),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Source::Hyper(body) => body.size_hint(),
            Source::Engine(body) => body.len().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
