//! The body of a request, for the service.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::interims::Interims;

/// The body of a request, pulled piece by piece: the connection reads no more from the client than
/// the service pulls, or only a little more.
///
/// The service may leave it alone. Then the connection reads and discards the rest up to a limit,
/// or ends with the reply. A client that waits for `100 Continue` gets it when the service asks for
/// the first piece.
#[derive(Default)]
pub struct RequestBody<'a> {
    incoming: Option<&'a mut (dyn Incoming + Send)>,
    interims: Option<&'a Interims>,
}

/// The source of a request's body.
pub trait Incoming {
    /// Returns the next piece, never an empty one; `None` when there is no more, also after an
    /// error.
    ///
    /// Errors are of the kind `InvalidData` if the client broke the rules, `TimedOut` if it was too
    /// slow.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>>;

    /// The number of bytes still to come, if known.
    fn len(&self) -> Option<u64>;

    /// The fields after the body, once it has ended; `None` if there are none. They are as the
    /// client sent them.
    fn trailers(&mut self) -> Option<HeaderMap> {
        None
    }

    /// Detaches the rest of the body, to be read on while the reply is sent, if that is possible.
    /// Afterwards this source has no more.
    fn detach(&mut self) -> Option<Box<dyn Incoming + Send + Sync>> {
        None
    }
}

impl<'a> RequestBody<'a> {
    /// Creates an empty body.
    pub fn empty() -> RequestBody<'static> {
        RequestBody::default()
    }

    /// Creates a body from a source.
    pub fn new(incoming: &'a mut (dyn Incoming + Send)) -> RequestBody<'a> {
        RequestBody { incoming: Some(incoming), interims: None }
    }

    /// Adds a way to send interim responses before the reply.
    pub fn with_interims(self, interims: Option<&'a Interims>) -> RequestBody<'a> {
        RequestBody { interims, ..self }
    }

    /// The queue of interim responses; `None` if the client understands none.
    pub fn interims(&self) -> Option<&'a Interims> {
        self.interims
    }

    /// Returns the next piece, never an empty one; `None` when there is no more. Cancel safe: an
    /// unfinished call loses no piece.
    pub async fn next(&mut self) -> Option<io::Result<Bytes>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`RequestBody::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match &mut self.incoming {
            Some(incoming) => incoming.poll_next(cx),
            None => Poll::Ready(None),
        }
    }

    /// As [`Incoming::trailers`].
    pub fn trailers(&mut self) -> Option<HeaderMap> {
        self.incoming.as_mut().and_then(|incoming| incoming.trailers())
    }

    /// As [`Incoming::detach`].
    pub fn detach(&mut self) -> Option<Box<dyn Incoming + Send + Sync>> {
        self.incoming.as_mut().and_then(|incoming| incoming.detach())
    }

    /// The number of bytes still to come, if known.
    pub fn len(&self) -> Option<u64> {
        self.incoming.as_ref().map_or(Some(0), |incoming| incoming.len())
    }
}
