//! The bodies of replies.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::tunnel::Tunnel;

/// The body of a reply.
#[derive(Default)]
pub enum Body {
    /// No bytes, or no more bytes.
    #[default]
    Empty,
    /// Bytes in memory, possibly shared.
    Whole(Bytes),
    /// Bytes that come piece by piece.
    Stream(Box<dyn BodyStream>),
    /// No body: after the head the connection belongs to this tunnel. Only for HTTP/1.1; the reply
    /// has no framing.
    Tunnel(Box<dyn Tunnel>),
}

/// A body that comes piece by piece, so that a slow client costs the memory of one piece.
pub trait BodyStream: Send + 'static {
    /// Returns the next piece, never an empty one; `None` when there is no more.
    ///
    /// After the head has been sent, an error can be shown in one way only: the connection, or its
    /// stream, ends before the body is complete.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>>;

    /// The number of bytes still to come, if known.
    fn len(&self) -> Option<u64>;

    /// Asks to keep nothing in memory while no data is written: returns `true` if the body will
    /// produce the last `len` bytes again later, when memory is short. With `false` the caller
    /// keeps them.
    fn take_back(&mut self, _len: usize) -> bool {
        false
    }

    /// The fields after the body, once it has ended (RFC 9110, section 6.5). `None` by default.
    fn trailers(&mut self) -> Option<HeaderMap> {
        None
    }
}

impl Body {
    /// The number of bytes still to come, if known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Body::Empty | Body::Tunnel(_) => Some(0),
            Body::Whole(bytes) => Some(bytes.len() as u64),
            Body::Stream(stream) => stream.len(),
        }
    }

    /// Returns the next piece, never an empty one; `None` when there is no more.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Body::Stream(stream) = self {
            return stream.poll_next(cx);
        }
        Poll::Ready(match std::mem::take(self) {
            Body::Whole(bytes) if !bytes.is_empty() => Some(Ok(bytes)),
            _ => None,
        })
    }

    /// The fields after the body, once it has ended.
    pub fn trailers(&mut self) -> Option<HeaderMap> {
        match self {
            Body::Stream(stream) => stream.trailers(),
            _ => None,
        }
    }

    /// Returns the next piece, as a future.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}
