//! The body of a response in transit from a server to a client.

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

/// Counts a response, and holds values until it is complete.
pub(in crate::proxy) trait Held: Send + 'static {
    /// Called when `len` bytes arrived.
    fn received(&self, len: u64);

    /// Called when the response is complete.
    fn complete(&mut self);
}

/// A body as it arrives. When it is complete, its connection is kept for the next request; if it is
/// dropped earlier, the connection, or its stream, ends.
struct Passing<H> {
    download: Download<Upload>,
    trailers: Option<HeaderMap>,
    held: H,
    /// An upload that the server did not wait for: it is held so that it does not end before its
    /// stated length while the response arrives.
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
        // In HTTP/2 trailers may follow even if the length was stated.
        len.filter(|len| *len > 0 || self.download.is_end_stream())
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}
