//! The trait of services that can be served.

use std::future::{Future, poll_fn};

use bytes::Buf;
use http::{Request, Response};
use hyper::body::Body as HttpBody;
use tower_service::Service;

use crate::{Body, BoxError};

/// A `tower_service::Service` of HTTP requests: axum's `Router`, tonic's `Routes` and servers,
/// tower's `service_fn`, with any layers around them. Implemented for all of these; programs do not
/// implement it.
///
/// Each request gets a clone, which must be ready (`poll_ready`) before it is called: a service
/// that is not ready keeps its requests waiting.
pub trait HttpService: Clone + Send + 'static {
    /// The body of the service's replies.
    type ReplyBody: HttpBody<Data: Buf + Send, Error: Into<BoxError>> + Send + 'static;

    /// Returns the reply to a request.
    #[doc(hidden)]
    fn answer(
        self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Self::ReplyBody>, BoxError>> + Send + 'static;
}

impl<S, B> HttpService for S
where
    S: Service<Request<Body>, Response = Response<B>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
    B: HttpBody<Data: Buf + Send, Error: Into<BoxError>> + Send + 'static,
{
    type ReplyBody = B;

    async fn answer(mut self, request: Request<Body>) -> Result<Response<B>, BoxError> {
        poll_fn(|cx| self.poll_ready(cx)).await.map_err(Into::into)?;
        self.call(request).await.map_err(Into::into)
    }
}
