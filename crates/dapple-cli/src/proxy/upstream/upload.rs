//! The body of a request on its way to an origin.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple::sync::mpsc;
use http::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};

/// A part of a body on its way.
pub(crate) enum Part {
    Piece(Bytes),
    /// All has been sent, and these fields follow. Where this does not come the client gave up, and the origin must not take what it has for the whole.
    End(Option<HeaderMap>),
}

/// What hyper sends as the body: nothing, or what comes through a channel of one part from the color of the client.
pub(crate) struct Upload {
    parts: Option<mpsc::Receiver<Part>>,
    /// How many bytes are still to come; `None` where that is unknown.
    left: Option<u64>,
}

impl Upload {
    /// No body.
    pub(in crate::proxy) fn empty() -> Upload {
        Upload { parts: None, left: Some(0) }
    }

    /// So many bytes, if that is known, and where they go in.
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
                Some(Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client gave up")))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        // Not at the last byte: fields may follow.
        self.parts.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
