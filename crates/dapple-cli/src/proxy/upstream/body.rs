//! The body of a response on its way from a server to a client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple_client::upstream::{BodyError, Download, Lease};
use http::HeaderMap;
use hyper::body::{Body as _, Incoming};

use super::sending::Pieces;
use super::upload::Upload;
use crate::http::{Body, BodyStream};
use crate::proxy::args::Waits;
use crate::proxy::fields;

/// What a response is counted by, and what is held until it is complete.
pub(in crate::proxy) trait Held: Send + 'static {
    /// So many bytes came.
    fn received(&self, len: u64);

    /// The response is complete.
    fn complete(&mut self);
}

/// A body as it comes. When it is complete its connection is kept for the next request; when it is dropped before, the connection, or the
/// stream on it, ends.
struct Passing<H> {
    download: Download<Upload>,
    trailers: Option<HeaderMap>,
    held: H,
    /// An upload that the server did not wait for: held so that it does not end short of its length while the response comes.
    _upload: Option<Pieces>,
}

/// The body of a response, as a client gets it.
pub(in crate::proxy) fn passing<H: Held>(
    incoming: Incoming,
    mut lease: Lease<Upload>,
    upload: Option<Pieces>,
    waits: Waits,
    mut held: H,
) -> Body {
    if incoming.is_end_stream() {
        lease.give_back();
        held.complete();
        return Body::Empty;
    }
    let download = Download::new(incoming, lease, waits.response);
    Body::Stream(Box::new(Passing { download, trailers: None, held, _upload: upload }))
}

impl<H: Held> BodyStream for Passing<H> {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Some(frame) = ready!(Pin::new(&mut self.download).poll_frame(cx)) else {
                self.held.complete();
                return Poll::Ready(None);
            };
            let frame = frame.map_err(|error| match error {
                BodyError::TimedOut(_) => io::Error::new(io::ErrorKind::TimedOut, error),
                error => io::Error::other(error),
            })?;
            match frame.into_data() {
                Ok(data) if !data.is_empty() => {
                    self.held.received(data.len() as u64);
                    return Poll::Ready(Some(Ok(data)));
                }
                Ok(_) => {}
                Err(frame) => self.trailers = frame.into_trailers().ok().and_then(fields::trailers),
            }
        }
    }

    fn len(&self) -> Option<u64> {
        let len = self.download.size_hint().exact();
        // By HTTP/2 trailers may follow also where the length was said.
        len.filter(|len| *len > 0 || self.download.is_end_stream())
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}
