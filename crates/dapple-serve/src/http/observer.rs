//! Observers, which learn the outcome of a reply.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};

use super::body::Body;

/// Goes with a reply and learns its outcome. If dropped without [`Observer::complete`], the reply
/// was cut.
pub trait Observer: Send {
    /// Called when `len` more bytes of the body were handed to the kernel, or to the HTTP version
    /// that frames them.
    fn sent(&mut self, len: u64);

    /// Called when the whole reply was.
    fn complete(&mut self);
}

/// A body that hyper sends, with its observer.
pub struct ObservedBody {
    body: Body,
    observer: Option<Box<dyn Observer>>,
}

impl ObservedBody {
    /// A body that ends before it begins is complete at once.
    pub fn new(body: Body, observer: Option<Box<dyn Observer>>) -> ObservedBody {
        let mut observed = ObservedBody { body, observer };
        observed.look_for_end();
        observed
    }

    /// hyper does not poll a body again if it knows that the body has ended.
    fn look_for_end(&mut self) {
        if self.observer.is_some() && self.is_end_stream() {
            self.complete();
        }
    }

    fn complete(&mut self) {
        if let Some(mut observer) = self.observer.take() {
            observer.complete();
        }
    }
}

impl hyper::body::Body for ObservedBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let piece = Pin::new(&mut self.body).poll_frame(cx);
        match &piece {
            Poll::Ready(None) => self.complete(),
            Poll::Ready(Some(Ok(frame))) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                if let Some(observer) = &mut self.observer {
                    observer.sent(len as u64);
                }
                // Nothing follows trailers, and hyper does not poll again.
                if frame.is_trailers() {
                    self.complete();
                }
                self.look_for_end();
            }
            _ => {}
        }
        piece
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
