//! tokio's context around one service.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use dapple_io::tokio_compat::Context;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::service::HttpService;
use crate::{Body, BoxError};

/// A service that runs its handlers and reply bodies with the context of a tokio runtime; made by
/// [`Serve::with_tokio`](crate::Serve::with_tokio).
///
/// Cost: a request enters the context once for its handler's start, once for each poll of its handler and of its reply's body, and
/// twice to drop them.
pub struct WithTokio<V> {
    /// `None` once it was passed to a request's handler.
    service: Option<V>,
    context: Arc<Context>,
}

impl<V> WithTokio<V> {
    /// In the context that the calling thread has, or else in that of a tokio runtime of the service's own, with one thread.
    pub(crate) fn new(service: V) -> io::Result<WithTokio<V>> {
        let context = match tokio::runtime::Handle::try_current() {
            Ok(handle) => Context::of(handle),
            Err(_) => Context::start()?,
        };
        Ok(WithTokio { service: Some(service), context: Arc::new(context) })
    }
}

impl<V: Clone> Clone for WithTokio<V> {
    fn clone(&self) -> WithTokio<V> {
        let _entered = self.context.enter();
        WithTokio { service: self.service.clone(), context: self.context.clone() }
    }
}

impl<V> Drop for WithTokio<V> {
    fn drop(&mut self) {
        let _entered = self.context.enter();
        self.service = None;
    }
}

impl<V: HttpService> HttpService for WithTokio<V> {
    type ReplyBody = InContext<V::ReplyBody>;

    fn answer(
        mut self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Self::ReplyBody>, BoxError>> + Send + 'static {
        let context = self.context.clone();
        let service = self.service.take().expect("only this function and `drop` take it");
        let answering = {
            let _entered = context.enter();
            service.answer(request)
        };
        let answering = InContext { inner: Some(answering), context: context.clone() };
        async move {
            let reply = answering.await?;
            Ok(reply.map(|body| InContext { inner: Some(body), context }))
        }
    }
}

pin_project! {
    /// A future or body that is polled and dropped in the context.
    pub struct InContext<T> {
        // `None` once it has been dropped.
        #[pin]
        inner: Option<T>,
        context: Arc<Context>,
    }

    impl<T> PinnedDrop for InContext<T> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _entered = this.context.enter();
            this.inner.set(None);
        }
    }
}

impl<F: Future> Future for InContext<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.context.enter();
        this.inner.as_pin_mut().expect("it is there until the drop").poll(cx)
    }
}

impl<B: HttpBody> HttpBody for InContext<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.project();
        let _entered = this.context.enter();
        this.inner.as_pin_mut().expect("it is there until the drop").poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}
