//! The body of a request on its way to an origin.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple::sync::mpsc;
use hyper::body::{Body, Frame, SizeHint};

/// What hyper sends as the body: nothing, or what comes through a channel of one piece from the color of the client.
pub(crate) struct Upload {
    pieces: Option<mpsc::Receiver<io::Result<Bytes>>>,
    /// How many bytes are still to come; `None` where that is unknown.
    left: Option<u64>,
}

impl Upload {
    /// No body.
    pub(super) fn empty() -> Upload {
        Upload { pieces: None, left: Some(0) }
    }

    /// So many bytes, if that is known, and where they go in.
    pub(super) fn channel(len: Option<u64>) -> (mpsc::Sender<io::Result<Bytes>>, Upload) {
        let (tx, rx) = mpsc::channel(1);
        (tx, Upload { pieces: Some(rx), left: len })
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        let Some(pieces) = &mut this.pieces else { return Poll::Ready(None) };
        let piece = std::task::ready!(pieces.poll_recv(cx));
        if let (Some(Ok(piece)), Some(left)) = (&piece, &mut this.left) {
            *left = left.saturating_sub(piece.len() as u64);
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none() || self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
