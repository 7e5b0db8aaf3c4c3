//! What a reply carries.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::tunnel::Tunnel;

/// The body of a reply.
#[derive(Default)]
pub enum Body {
    /// Nothing, or nothing more.
    #[default]
    Empty,
    /// Bytes in memory, shared with whoever keeps them.
    Whole(Bytes),
    /// Bytes that come piece by piece.
    Stream(Box<dyn BodyStream>),
    /// No body: behind the head the connection is somebody else's. Only where HTTP/1.1 is spoken; a reply with it has no framing.
    Tunnel(Box<dyn Tunnel>),
}

/// A body that comes piece by piece, so that a slow client costs one piece of memory.
pub trait BodyStream: Send + 'static {
    /// The next piece, never an empty one; `None` when there is no more.
    ///
    /// An error after the head has been sent leaves only one way to say so: the connection, or the stream within it, ends before
    /// the body is complete.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>>;

    /// How many bytes are still to come, where that is known.
    fn len(&self) -> Option<u64>;

    /// Nothing is written for now: the last `len` bytes of what came are to come once more, later, if there is too little memory to keep
    /// them until then. False: they are kept.
    fn take_back(&mut self, _len: usize) -> bool {
        false
    }

    /// The fields behind the body, once that has come to its end (RFC 9110, section 6.5). Who has none says nothing.
    fn trailers(&mut self) -> Option<HeaderMap> {
        None
    }
}

impl Body {
    /// How many bytes are still to come, where that is known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Body::Empty | Body::Tunnel(_) => Some(0),
            Body::Whole(bytes) => Some(bytes.len() as u64),
            Body::Stream(stream) => stream.len(),
        }
    }

    /// The next piece, never an empty one; `None` when there is no more.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Body::Stream(stream) = self {
            return stream.poll_next(cx);
        }
        Poll::Ready(match std::mem::take(self) {
            Body::Whole(bytes) if !bytes.is_empty() => Some(Ok(bytes)),
            _ => None,
        })
    }

    /// The fields behind the body, once that has come to its end.
    pub fn trailers(&mut self) -> Option<HeaderMap> {
        match self {
            Body::Stream(stream) => stream.trailers(),
            _ => None,
        }
    }

    /// The next piece, as a future.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}
