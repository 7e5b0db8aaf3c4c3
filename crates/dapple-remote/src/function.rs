//! An async function as a service.

use std::future::Future;
use std::marker::PhantomData;
use std::task::{Context, Poll};

use tower_service::Service;

/// Always ready; calls the function.
pub(crate) struct Function<F, E> {
    function: F,
    errors: PhantomData<fn() -> E>,
}

impl<F, E> Function<F, E> {
    pub(crate) fn new(function: F) -> Self {
        Function { function, errors: PhantomData }
    }
}

impl<F: Clone, E> Clone for Function<F, E> {
    fn clone(&self) -> Self {
        Function::new(self.function.clone())
    }
}

impl<Req, Resp, F, Fut, E> Service<Req> for Function<F, E>
where
    F: FnMut(Req) -> Fut,
    Fut: Future<Output = Result<Resp, E>>,
{
    type Response = Resp;
    type Error = E;
    type Future = Fut;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Fut {
        (self.function)(request)
    }
}
