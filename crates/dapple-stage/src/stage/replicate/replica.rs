//! One replica, as the program starts it.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dapple_sync::sync::oneshot;
use tower_service::Service;

use crate::BoxError;
use crate::stage::handler::{BoxFuture, Factory, of_services};

/// One replica of a stage, in this process or elsewhere: the result of a start for
/// [`replicate_with`](crate::StageBuilder::replicate_with).
///
/// | a replica | made by |
/// |---|---|
/// | in this process, in a color of its own | [`Replica::new`] with any service |
/// | in a child process, or on another machine | the trait `RemoteReplica` of `dapple_remote` |
/// | started and ended in another way | [`Replica::new`] with its client, and [`lives`](Replica::lives) |
///
/// ```
/// use dapple_stage::{Replica, Stage};
/// use tower::service_fn;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let stage = Stage::builder("double").width(4).replicate_with(1..=4, async |_number| {
///         let service = service_fn(async |n: u32| Ok::<_, std::convert::Infallible>(2 * n));
///         Ok(Replica::new(service).lives(async |retired| {
///             // Acquire its resources before this line, and release them after it.
///             retired.await;
///         }))
///     });
///     assert_eq!(stage.ask(21).await.unwrap(), 42);
///     stage.stop().await;
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a replica serves only as part of a stage"]
pub struct Replica<Req, Resp> {
    pub(super) parts: Parts<Req, Resp, BoxError>,
}

/// The parts of a replica.
pub(super) struct Parts<Req, Resp, E> {
    pub(super) factory: Factory<Req, Resp, E>,
    pub(super) check: Option<Check>,
    pub(super) life: Life,
}

/// The health check.
pub(super) type Check = Arc<dyn Fn() -> BoxFuture<bool> + Send + Sync>;

type Life = Box<dyn FnOnce(Retired) -> BoxFuture<()> + Send>;

/// Resolves when a replica is not needed any more and has answered all its requests. Cancel safe.
#[derive(Debug)]
pub struct Retired(pub(super) oneshot::Receiver<Infallible>);

impl Future for Retired {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

impl<Req, Resp, E> Parts<Req, Resp, E> {
    /// The parts of a replica that lives as long as it is wanted.
    pub(super) fn of(factory: Factory<Req, Resp, E>) -> Parts<Req, Resp, E> {
        Parts { factory, check: None, life: Box::new(|retired| Box::pin(retired)) }
    }
}

impl<Req: Send + 'static, Resp: Send + 'static> Replica<Req, Resp> {
    /// Makes a replica served by clones of this service, each with one call at a time; in this
    /// process in its own color.
    pub fn new<S>(service: S) -> Replica<Req, Resp>
    where
        S: Service<Req, Response = Resp> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Replica { parts: Parts::of(of_services(move || Boxed(service.clone()))) }
    }

    /// Sets the future that runs while the replica exists. When it ends, the replica is dead, and
    /// the stage starts another one. It must end after [`Retired`]; by then no request is sent to
    /// the replica or in flight.
    pub fn lives<F, Fut>(mut self, life: F) -> Self
    where
        F: FnOnce(Retired) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        // Called inside the future: its panics are caught.
        self.parts.life = Box::new(move |retired| Box::pin(async move { life(retired).await }));
        self
    }

    /// Sets the health check, which runs four times a second. A replica that is not healthy gets no
    /// requests. A check that takes longer than 5 s or panics counts as not healthy.
    pub fn check<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        self.parts.check = Some(Arc::new(move || Box::pin(check())));
        self
    }
}

/// A service with boxed errors.
struct Boxed<S>(S);

impl<S, Req> Service<Req> for Boxed<S>
where
    S: Service<Req>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    S::Response: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let response = self.0.call(request);
        Box::pin(async move { response.await.map_err(Into::into) })
    }
}

impl<Req, Resp> fmt::Debug for Replica<Req, Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("is_checked", &self.parts.check.is_some()).finish_non_exhaustive()
    }
}
