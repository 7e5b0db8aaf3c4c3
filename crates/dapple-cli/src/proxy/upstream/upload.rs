//! The body of a request in transit to an origin.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple::sync::mpsc;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};

/// A part of a body.
pub(crate) enum Part {
    Piece(Bytes),
    /// The end of the body, and its trailers. Without this part, the client has cancelled the
    /// request, and the origin must not treat the body as complete.
    End(Option<HeaderMap>),
}

/// The body that hyper sends: nothing, or parts that arrive through a channel of length one from
/// the client's color.
pub(crate) struct Upload {
    parts: Option<mpsc::Receiver<Part>>,
    /// The number of bytes still to come; `None` if unknown.
    left: Option<u64>,
}

impl Upload {
    /// Creates an empty body.
    pub(in crate::proxy) fn empty() -> Upload {
        Upload { parts: None, left: Some(0) }
    }

    /// Creates a body of `len` bytes, if that is known, and the sending end for its parts.
    pub(in crate::proxy) fn channel(len: Option<u64>) -> (mpsc::Sender<Part>, Upload) {
        let (tx, rx) = mpsc::channel(1);
        (tx, Upload { parts: Some(rx), left: len })
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        let Some(parts) = &mut this.parts else { return Poll::Ready(None) };
        Poll::Ready(match std::task::ready!(parts.poll_recv(cx)) {
            Some(Part::Piece(piece)) => {
                if let Some(left) = &mut this.left {
                    *left = left.saturating_sub(piece.len() as u64);
                }
                Some(Ok(Frame::data(piece)))
            }
            Some(Part::End(trailers)) => {
                this.parts = None;
                trailers.map(|trailers| Ok(Frame::trailers(trailers)))
            }
            None => {
                this.parts = None;
                Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client cancelled the request")))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        // Not at the last byte: trailers may follow.
        self.parts.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
