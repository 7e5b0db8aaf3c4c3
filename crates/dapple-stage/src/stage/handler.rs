//! The handlers of a stage, made from services or functions.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower_service::Service;

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A handler: serves one call at a time. A stage has as many as its width needs, and keeps idle
/// ones.
pub(crate) trait Handler<Req, Resp, E>: Send {
    /// As in a service.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>>;

    /// Serves all `requests`, and returns one result for each, in the same order.
    fn call(&mut self, requests: Vec<Req>) -> BoxFuture<Vec<Result<Resp, E>>>;
}

/// Makes handlers.
pub(crate) type Factory<Req, Resp, E> = Box<dyn FnMut() -> Box<dyn Handler<Req, Resp, E>> + Send>;

/// A factory of handlers that are services.
pub(crate) fn of_services<S, Req>(mut make: impl FnMut() -> S + Send + 'static) -> Factory<Req, S::Response, S::Error>
where
    S: Service<Req> + Send + 'static,
    S::Future: Send + 'static,
    Req: Send + 'static,
{
    Box::new(move || Box::new(OfService(make())))
}

struct OfService<S>(S);

impl<S, Req> Handler<Req, S::Response, S::Error> for OfService<S>
where
    S: Service<Req> + Send,
    S::Future: Send + 'static,
{
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut requests: Vec<Req>) -> BoxFuture<Vec<Result<S::Response, S::Error>>> {
        let request = requests.pop().expect("a service is called with one request");
        let future = self.0.call(request);
        Box::pin(async move {
            let result = future.await;
            vec![result]
        })
    }
}

/// A factory of handlers that take cohorts.
pub(crate) fn of_cohorts<F, Fut, Req, Resp, E>(serve: F) -> Factory<Req, Resp, E>
where
    F: Fn(Vec<Req>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Vec<Result<Resp, E>>> + Send + 'static,
{
    Box::new(move || Box::new(OfCohorts(serve.clone())))
}

struct OfCohorts<F>(F);

impl<F, Fut, Req, Resp, E> Handler<Req, Resp, E> for OfCohorts<F>
where
    F: Fn(Vec<Req>) -> Fut + Send,
    Fut: Future<Output = Vec<Result<Resp, E>>> + Send + 'static,
{
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, requests: Vec<Req>) -> BoxFuture<Vec<Result<Resp, E>>> {
        Box::pin(self.0(requests))
    }
}

/// An async function as a service.
#[derive(Clone)]
pub(crate) struct FnService<F>(pub(crate) F);

impl<F, Fut, Req, Resp, E> Service<Req> for FnService<F>
where
    F: Fn(Req) -> Fut,
    Fut: Future<Output = Result<Resp, E>>,
{
    type Response = Resp;
    type Error = E;
    type Future = Fut;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Fut {
        (self.0)(request)
    }
}
