//! What a request carries.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;

use super::interims::Interims;

/// The body of a request, pulled piece by piece: what is not pulled is not read from the client, or only a little of it.
///
/// Whoever answers may leave it alone. What is left is then read and dropped up to a limit, or the connection ends with the reply. A
/// client that waits for `100 Continue` gets it when the first piece is asked for.
#[derive(Default)]
pub struct RequestBody<'a> {
    incoming: Option<&'a mut (dyn Incoming + Send)>,
    interims: Option<&'a Interims>,
}

/// Where the body of a request comes from.
pub trait Incoming {
    /// The next piece, never an empty one; `None` when there is no more. After an error there is no more either.
    ///
    /// Errors are of the kind `InvalidData` where the client broke the rules, `TimedOut` where it was too slow.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>>;

    /// How many bytes are still to come, where that is known.
    fn len(&self) -> Option<u64>;

    /// The fields behind the body, once it has ended; `None` where there are none. They are as the client sent them.
    fn trailers(&mut self) -> Option<HeaderMap> {
        None
    }

    /// What is still to come, for who reads on while the reply is sent; where that can be done. Nothing comes here any more then.
    fn detach(&mut self) -> Option<Box<dyn Incoming + Send + Sync>> {
        None
    }
}

impl<'a> RequestBody<'a> {
    /// Nothing.
    pub fn empty() -> RequestBody<'static> {
        RequestBody::default()
    }

    /// What comes from there.
    pub fn new(incoming: &'a mut (dyn Incoming + Send)) -> RequestBody<'a> {
        RequestBody { incoming: Some(incoming), interims: None }
    }

    /// With a way to send interim responses, ahead of the reply.
    pub fn with_interims(self, interims: Option<&'a Interims>) -> RequestBody<'a> {
        RequestBody { interims, ..self }
    }

    /// Where interim responses go; `None` where the client understands none.
    pub fn interims(&self) -> Option<&'a Interims> {
        self.interims
    }

    /// The next piece, never an empty one; `None` when there is no more. Cancel safe: a piece not awaited to its end is not lost.
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

    /// How many bytes are still to come, where that is known.
    pub fn len(&self) -> Option<u64> {
        self.incoming.as_ref().map_or(Some(0), |incoming| incoming.len())
    }
}
