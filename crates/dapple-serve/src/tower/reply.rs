//! Turns the reply of a tower service into an HTTP/1.1 reply.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use hyper::body::Body as HttpBody;
use tracing::error;

use crate::BoxError;
use crate::http::{Body, BodyStream, Reply};
use crate::request::{self, Answered};

/// The reply. The engine decides its framing and the end of the connection.
pub(super) async fn of<B>(answered: Answered<B>, is_head: bool) -> Reply
where
    B: HttpBody<Data: bytes::Buf + Send, Error: Into<BoxError>> + Send + 'static,
{
    let Answered { response, is_left } = answered;
    let (parts, body) = response.into_parts();
    if parts.status.is_informational() {
        error!(status = %parts.status, "a handler replied with a status that is not valid for a reply; its request \
            gets a 500");
        return text(StatusCode::INTERNAL_SERVER_ERROR, "The handler failed.\n");
    }
    let mut headers = parts.headers;
    let ends = |value: &HeaderValue| value.as_bytes().split(|byte| *byte == b',').any(is_close);
    let close = is_left || headers.get_all(CONNECTION).iter().any(ends);
    let said_len = headers.remove(CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse().ok());
    for name in [CONNECTION, TRANSFER_ENCODING] {
        headers.remove(name);
    }
    let body = if body.is_end_stream() { Body::Empty } else { begun(body).await };
    // The service's length counts only if there is no body to measure. If a reply were shorter than
    // its stated length, the client would take the start of the next reply for its end.
    let is_said = is_head || parts.status == StatusCode::NOT_MODIFIED || body.len().is_none();
    Reply { content_len: said_len.filter(|_| is_said), close, ..Reply::new(parts.status, headers, body) }
}

/// A reply of the server's own.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Reply::new(status, headers, Body::Whole(text.into()))
}

fn is_close(word: &[u8]) -> bool {
    word.trim_ascii().eq_ignore_ascii_case(b"close")
}

/// A body, converted to one piece if all of it is here already.
async fn begun<B>(body: request::Reply<B>) -> Body
where
    B: HttpBody<Data: bytes::Buf + Send, Error: Into<BoxError>> + Send + 'static,
{
    let len = body.size_hint().exact();
    let mut frames = Frames { body: Box::pin(body), first: None, trailers: None };
    if let Some(1..=WHOLE_LEN_MAX) = len {
        let first = poll_fn(|cx| Poll::Ready(frames.poll_data(cx))).await;
        match first {
            Poll::Ready(Some(Ok(data))) if Some(data.len() as u64) == len => return Body::Whole(data),
            Poll::Ready(first) => frames.first = Some(first),
            Poll::Pending => {}
        }
    }
    Body::Stream(Box::new(frames))
}

/// The frames of a body.
struct Frames<B> {
    body: Pin<Box<request::Reply<B>>>,
    /// A frame that was taken already.
    first: Option<Option<io::Result<Bytes>>>,
    trailers: Option<HeaderMap>,
}

impl<B> Frames<B>
where
    B: HttpBody<Data: bytes::Buf, Error: Into<BoxError>>,
{
    /// Returns the next non-empty data.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            return Poll::Ready(match ready!(self.body.as_mut().poll_frame(cx)) {
                None => None,
                Some(Err(error)) => Some(Err(io::Error::other(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => Some(Ok(data)),
                    Ok(_) => continue,
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        continue;
                    }
                },
            });
        }
    }
}

impl<B> BodyStream for Frames<B>
where
    B: HttpBody<Data: bytes::Buf + Send, Error: Into<BoxError>> + Send + 'static,
{
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(first),
            None => self.poll_data(cx),
        }
    }

    fn len(&self) -> Option<u64> {
        let waiting = match &self.first {
            Some(Some(Ok(first))) => first.len() as u64,
            _ => 0,
        };
        self.body.size_hint().exact().map(|len| len + waiting)
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }
}

/// Larger bodies mostly come in pieces.
const WHOLE_LEN_MAX: u64 = 256 << 10;
