//! The body of a reply: user code; a panic ends it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::caught::caught;
use super::counted::Counted;
use crate::BoxError;

pin_project! {
    /// See the module.
    pub struct Reply<B> {
        #[pin]
        content: Content<B>,
        // `None` for a reply to input that is not a request.
        counted: Option<Counted>,
    }

    impl<B> PinnedDrop for Reply<B> {
        fn drop(this: Pin<&mut Self>) {
            // A body that panics in its destructor must not end other replies of its connection.
            let mut this = this.project();
            let _ = caught(|| this.content.set(Content::Text { text: Bytes::new() }));
        }
    }
}

pin_project! {
    #[project = ContentOf]
    enum Content<B> {
        Service { #[pin] body: B },
        Text { text: Bytes },
    }
}

impl<B> Reply<B> {
    /// Wraps the service's body.
    pub(super) fn of(body: B) -> Reply<B> {
        Reply { content: Content::Service { body }, counted: None }
    }

    /// A body of these bytes.
    pub(super) fn said(text: impl Into<Bytes>) -> Reply<B> {
        Reply { content: Content::Text { text: text.into() }, counted: None }
    }

    /// Counts the outcome of this reply.
    pub(super) fn counted(mut self, mut counted: Counted) -> Reply<B>
    where
        B: HttpBody,
    {
        if is_end(&self.content) {
            counted.complete();
        }
        self.counted = Some(counted);
        self
    }
}

/// A reply of the server's own.
pub(super) fn text<B>(status: StatusCode, text: impl Into<Bytes>) -> Response<Reply<B>> {
    plain(status, text).map(Reply::said)
}

/// The same before it has a `Reply` body.
pub(super) fn plain<T>(status: StatusCode, text: T) -> Response<T> {
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

impl<B> HttpBody for Reply<B>
where
    B: HttpBody<Data: Buf, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let polled = match this.content.as_mut().project() {
            ContentOf::Text { text } if text.is_empty() => Ok(Poll::Ready(None)),
            ContentOf::Text { text } => Ok(Poll::Ready(Some(Ok(Frame::data(std::mem::take(text)))))),
            // Also catches panics of the conversion: data and errors are user code.
            ContentOf::Service { body } => caught(|| body.poll_frame(cx).map_ok(to_bytes).map_err(Into::into)),
        };
        let Ok(polled) = polled else {
            let _ = caught(|| this.content.set(Content::Text { text: Bytes::new() }));
            return Poll::Ready(Some(Err("the reply's body panicked".into())));
        };
        if let Some(counted) = this.counted {
            match &polled {
                Poll::Ready(None) => counted.complete(),
                Poll::Ready(Some(Ok(frame))) => {
                    counted.sent(frame.data_ref().map_or(0, Bytes::len));
                    // A sender that knows this is the end does not poll again.
                    if frame.is_trailers() || is_end(&this.content) {
                        counted.complete();
                    }
                }
                _ => {}
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        is_end(&self.content)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Service { body } => caught(|| body.size_hint()).unwrap_or_default(),
            Content::Text { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}

fn is_end<B: HttpBody>(content: &Content<B>) -> bool {
    match content {
        // After a panic here, the next poll decides.
        Content::Service { body } => caught(|| body.is_end_stream()).unwrap_or(false),
        Content::Text { text } => text.is_empty(),
    }
}

fn to_bytes<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))
}

impl<B> fmt::Debug for Reply<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}
