//! Admission as tower middleware.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{Admission, Gated, Offer};
use crate::{BoxError, Refused};

/// Wraps a service with [`Admit`].
///
/// ```
/// use dapple_tower::admission::{Admission, AdmissionLayer, Class, Config, Offer};
///
/// // The facts about a request of this service: its client and its importance.
/// let offer = |user: &u64| Offer::now().client(*user).class(if *user < 10 { Class::HIGH } else { Class::NORMAL });
/// let layer = AdmissionLayer::new(Admission::new(Config::default())).offer(offer);
/// # let _: AdmissionLayer<_> = layer;
/// ```
#[derive(Clone)]
pub struct AdmissionLayer<D = fn() -> Offer> {
    admission: Admission,
    describe: D,
}

/// A service with admission: a request that would be late gets a [`Refused`], and does not reach
/// the inner service.
///
/// Always ready: it refuses instead of letting callers wait outside. Admitted requests wait inside,
/// in order.
#[derive(Clone)]
pub struct Admit<S, D = fn() -> Offer> {
    inner: S,
    admission: Admission,
    describe: D,
}

/// Makes an [`Offer`] of a request. Any `Fn(&Req) -> Offer` does.
pub trait Describe<Req> {
    /// The facts about the request.
    fn describe(&self, request: &Req) -> Offer;
}

impl<Req> Describe<Req> for fn() -> Offer {
    fn describe(&self, _request: &Req) -> Offer {
        self()
    }
}

/// A function that describes requests.
#[derive(Clone, Copy)]
pub struct By<F>(F);

impl<Req, F: Fn(&Req) -> Offer> Describe<Req> for By<F> {
    fn describe(&self, request: &Req) -> Offer {
        (self.0)(request)
    }
}

impl AdmissionLayer {
    /// Treats all requests equally, until [`AdmissionLayer::offer`] says otherwise.
    pub fn new(admission: Admission) -> AdmissionLayer {
        AdmissionLayer { admission, describe: Offer::now }
    }
}

impl<D> AdmissionLayer<D> {
    /// Describes requests with `offer`, which runs once for each and must be quick.
    pub fn offer<F>(self, offer: F) -> AdmissionLayer<By<F>> {
        AdmissionLayer { admission: self.admission, describe: By(offer) }
    }
}

impl<S, D: Clone> Layer<S> for AdmissionLayer<D> {
    type Service = Admit<S, D>;

    fn layer(&self, inner: S) -> Admit<S, D> {
        Admit { inner, admission: self.admission.clone(), describe: self.describe.clone() }
    }
}

impl<S, D> Admit<S, D> {
    /// The admission that decides; its clones share the learned costs.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }
}

impl<S, D, Req> Service<Req> for Admit<S, D>
where
    S: Service<Req> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    Req: Send + 'static,
    D: Describe<Req>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = AdmitFuture<S, Req>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        match self.admission.offer(self.describe.describe(&request)) {
            Ok(admitted) => {
                let service = self.inner.clone();
                let make: Make<S, Req> = Box::new(move || Oneshot::Readies { service, request: Some(request) });
                AdmitFuture { state: State::Admitted { gated: admitted.run(make) } }
            }
            Err(refused) => AdmitFuture { state: State::Refused { refused: Some(refused) } },
        }
    }
}

type Make<S, Req> = Box<dyn FnOnce() -> Oneshot<S, Req> + Send>;

pin_project! {
    /// The response of a service in an [`Admit`], or a [`Refused`].
    ///
    /// Cancel safety: if dropped, it gives its slot to another request, and drops the service's own
    /// future if it has begun.
    pub struct AdmitFuture<S, Req>
    where
        S: Service<Req>,
    {
        #[pin]
        state: State<S, Req>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Req>
    where
        S: Service<Req>,
    {
        Admitted {
            #[pin]
            gated: Gated<Make<S, Req>, Oneshot<S, Req>>,
        },
        Refused {
            refused: Option<Refused>,
        },
    }
}

impl<S, Req> Future for AdmitFuture<S, Req>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
{
    type Output = Result<S::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Admitted { gated } => match ready!(gated.poll(cx)) {
                Ok(result) => Poll::Ready(result.map_err(Into::into)),
                Err(refused) => Poll::Ready(Err(refused.into())),
            },
            StateProjection::Refused { refused } => {
                let refused = refused.take().expect("a future is not polled after its end");
                Poll::Ready(Err(refused.into()))
            }
        }
    }
}

impl<S, Req> fmt::Debug for AdmitFuture<S, Req>
where
    S: Service<Req>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmitFuture").finish_non_exhaustive()
    }
}

pin_project! {
    /// Waits until a service is ready, and calls it.
    #[project = OneshotProjection]
    enum Oneshot<S, Req>
    where
        S: Service<Req>,
    {
        Readies {
            service: S,
            request: Option<Req>,
        },
        Called {
            #[pin]
            future: S::Future,
        },
    }
}

impl<S: Service<Req>, Req> Future for Oneshot<S, Req> {
    type Output = Result<S::Response, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let future = match self.as_mut().project() {
                OneshotProjection::Readies { service, request } => {
                    ready!(service.poll_ready(cx))?;
                    service.call(request.take().expect("it is called once"))
                }
                OneshotProjection::Called { future } => return future.poll(cx),
            };
            self.set(Oneshot::Called { future });
        }
    }
}
