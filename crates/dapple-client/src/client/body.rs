//! The body of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::{Sleep, sleep_until};
use hyper::body::{Body as _, Frame, SizeHint};

#[cfg(feature = "decompression")]
use super::decode::Decoder;
use super::error::{Error, Phase};
use super::exchange::Deadline;
use super::request_body::Body;
use crate::relay::Place;
use crate::upstream::{BodyError, Download};

/// The body of a response, piece by piece: an `http_body::Body`, including trailers. It reads when
/// the program asks for the next piece, so a slow program slows the server down. If dropped before
/// its end, it closes the HTTP/1.1 connection, or resets the HTTP/2 stream.
pub struct ResponseBody {
    /// Bytes that were read, and put back.
    front: Option<Bytes>,
    /// Their place, until the body is dropped.
    place: Option<Place>,
    download: Download<Body>,
    read_timeout: Duration,
    deadline: Option<(Pin<Box<Sleep>>, Duration)>,
    #[cfg(feature = "decompression")]
    decoder: Option<Decoder>,
}

impl ResponseBody {
    pub(super) fn new(download: Download<Body>, deadline: Deadline, read_timeout: Duration) -> ResponseBody {
        ResponseBody {
            front: None,
            place: None,
            download,
            read_timeout,
            deadline: deadline.map(|(time, limit)| (Box::pin(sleep_until(time)), limit)),
            #[cfg(feature = "decompression")]
            decoder: None,
        }
    }

    #[cfg(feature = "decompression")]
    pub(super) fn decode(&mut self, decoder: Decoder) {
        self.decoder = Some(decoder);
    }

    /// Puts bytes back that were read.
    pub(super) fn put_back(&mut self, front: Bytes, place: Place) {
        self.place = Some(place);
        self.front = Some(front).filter(|front| !front.is_empty());
    }

    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        // Checked first, because there may always be more to read.
        if let Some((deadline, limit)) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(Err(Error::TimedOut { phase: Phase::Whole, limit: *limit })));
        }
        let frame = Pin::new(&mut self.download).poll_frame(cx);
        let limit = self.read_timeout;
        frame.map_err(|error| match error {
            BodyError::TimedOut(_) => Error::TimedOut { phase: Phase::Read, limit },
            BodyError::Broken(error) => Error::of(error),
        })
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(front) = self.front.take() {
            return Poll::Ready(Some(Ok(Frame::data(front))));
        }
        #[cfg(feature = "decompression")]
        if self.decoder.is_some() {
            return self.poll_decoded(cx);
        }
        self.poll_raw(cx)
    }

    fn is_end_stream(&self) -> bool {
        if self.front.is_some() {
            return false;
        }
        #[cfg(feature = "decompression")]
        if self.decoder.is_some() {
            return false;
        }
        self.download.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.front.is_some() {
            return SizeHint::default();
        }
        #[cfg(feature = "decompression")]
        if self.decoder.is_some() {
            return SizeHint::default();
        }
        self.download.size_hint()
    }
}

#[cfg(feature = "decompression")]
impl ResponseBody {
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Poll::Ready(None) };
            match decoder.next() {
                Ok(piece) if !piece.is_empty() => return Poll::Ready(Some(Ok(Frame::data(piece)))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            match std::task::ready!(self.poll_raw(cx)) {
                Some(Ok(frame)) => match (frame.into_data(), &mut self.decoder) {
                    (Ok(data), Some(decoder)) => decoder.feed(data),
                    (Ok(data), None) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                    (Err(frame), _) => return Poll::Ready(Some(Ok(frame))),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    let is_whole = self.decoder.as_ref().map_or(Ok(()), Decoder::end);
                    return Poll::Ready(is_whole.err().map(Err));
                }
            }
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("download", &self.download).finish_non_exhaustive()
    }
}
