//! The body of a response on its way from an upstream.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use dapple::time::{Instant, Sleep, sleep};
use http::HeaderMap;
use hyper::body::{Body as _, Incoming};

use super::Turn;
use super::pool::{Sender1, Stream};
use crate::http::BodyStream;
use crate::proxy::fields;
use crate::proxy::reverse::list::Pick;
use crate::proxy::upstream::sending::Uploading;

/// A body as it comes. When it is complete its connection is kept for the next request; when it is dropped before, the connection, or the
/// stream on it, ends. It is read when the client takes it, so a slow client slows the upstream down.
pub(super) struct Download {
    incoming: Incoming,
    patience: Pin<Box<Sleep>>,
    pause_max: Duration,
    lease: Lease,
    trailers: Option<HeaderMap>,
}

/// What a request has of an upstream until its response is complete.
pub(super) struct Lease {
    pub(super) turn: Turn,
    /// `None` where the connection cannot be used again, or is given back.
    pub(super) sender: Option<Sender1>,
    pub(super) stream: Option<Stream>,
    /// An upload that the server did not wait for.
    pub(super) upload: Option<Uploading>,
    /// The request counts as in flight.
    pub(super) pick: Option<Pick>,
}

impl Lease {
    /// The response is complete.
    pub(super) fn give_back(&mut self) {
        let is_free = self.upload.as_ref().is_none_or(Uploading::is_over);
        if let Some(sender) = self.sender.take().filter(|_| is_free) {
            self.turn.upstream.keep(sender);
        }
        self.stream = None;
        self.pick = None;
    }
}

impl Download {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> Download {
        let pause_max = lease.turn.upstream.common.waits.response;
        Download { incoming, patience: Box::pin(sleep(pause_max)), pause_max, lease, trailers: None }
    }
}

impl BodyStream for Download {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                ready!(self.patience.as_mut().poll(cx));
                let text = format!("the upstream sent nothing for {:?}", self.pause_max);
                return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, text))));
            };
            self.patience.as_mut().reset(Instant::now() + self.pause_max);
            match frame {
                None => {
                    self.lease.give_back();
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => {
                        let counts = &self.lease.turn.upstream.counts;
                        counts.received.fetch_add(data.len() as u64, Ordering::Relaxed);
                        return Poll::Ready(Some(Ok(data)));
                    }
                    Ok(_) => {}
                    Err(frame) => self.trailers = frame.into_trailers().ok().and_then(fields::trailers),
                },
            }
        }
    }

    fn len(&self) -> Option<u64> {
        let len = self.incoming.size_hint().exact();
        // By HTTP/2 trailers may follow also where the length was said.
        len.filter(|len| *len > 0 || self.incoming.is_end_stream())
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}
