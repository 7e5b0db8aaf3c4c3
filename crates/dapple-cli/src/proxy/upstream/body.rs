//! The body of a response on its way from an origin.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use dapple::time::{Instant, Sleep, sleep};
use http::HeaderMap;
use hyper::body::{Body as _, Incoming};

use super::sending::Uploading;
use super::{Origin, Sender, Upstream};
use crate::http::BodyStream;
use crate::proxy::fields;
use crate::proxy::tally::Count;

/// A body as it comes. When it is complete its connection is kept for the next request; when it is dropped before, the
/// connection ends.
pub(super) struct Download {
    incoming: Incoming,
    patience: Sleep,
    pause_max: Duration,
    lease: Lease,
    trailers: Option<HeaderMap>,
}

/// The connection that a response comes from.
pub(super) struct Lease {
    pub(super) upstream: Arc<Upstream>,
    pub(super) origin: Arc<Origin>,
    /// `None` where the connection cannot be used again, or is given back.
    pub(super) sender: Option<Sender>,
    /// An upload that the server did not wait for.
    pub(super) upload: Option<Uploading>,
}

impl Lease {
    /// The response is complete.
    pub(super) fn give_back(&mut self) {
        let is_free = self.upload.as_ref().is_none_or(Uploading::is_over);
        if let Some(sender) = self.sender.take().filter(|_| is_free) {
            self.upstream.keep(self.origin.clone(), sender);
        }
    }
}

impl Download {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> Download {
        let pause_max = lease.upstream.waits().response;
        Download { incoming, patience: sleep(pause_max), pause_max, lease, trailers: None }
    }
}

impl BodyStream for Download {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                ready!(Pin::new(&mut self.patience).poll(cx));
                let text = format!("the server sent nothing for {:?}", self.pause_max);
                return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, text))));
            };
            self.patience.reset(Instant::now() + self.pause_max);
            match frame {
                None => {
                    self.lease.give_back();
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => {
                        self.lease.upstream.tally.add(Count::BytesFromOrigins, data.len() as u64);
                        return Poll::Ready(Some(Ok(data)));
                    }
                    Ok(_) => {}
                    Err(frame) => self.trailers = frame.into_trailers().ok().and_then(fields::trailers),
                },
            }
        }
    }

    fn len(&self) -> Option<u64> {
        self.incoming.size_hint().exact()
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}
