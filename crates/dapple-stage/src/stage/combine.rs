//! Two handlers with one queue.
//!
//! *Combine* fuses the code of two stages into one, which then share resources and fate (Gribble,
//! 4.1). For parallel stages this means one queue and one width for the requests of both:
//! [`StageBuilder::combine`]. For successive stages it is the inverse of a pipeline, without the
//! queue between them: [`fuse`].

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::behind::{know_either, know_stage};
use super::builder::StageBuilder;
use super::either::Either;
use super::error::StageError;
use super::handle::Stage;
use super::handler::BoxFuture;
use crate::graph::{Linked, Node};

impl<L: Send + 'static, R: Send + 'static> StageBuilder<Either<L, R>> {
    /// Makes one stage of two services. The requests of both wait in one queue in the order of
    /// arrival, and share its width and limits. They also share their fate: when the handlers of
    /// one die too often, both go out of service.
    ///
    /// ```
    /// use dapple_stage::Stage;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(2).build()?;
    /// runtime.block_on(async {
    ///     let reads = Stage::builder("reads").wrap_sync(|key: u32| format!("value {key}"));
    ///     let writes = Stage::builder("writes").wrap_sync(|_pair: (u32, String)| ());
    ///     // A disk takes at most 40 requests at a time, reads and writes together.
    ///     let disk = Stage::builder("disk").width(40).combine(reads, writes);
    ///     assert_eq!(disk.left().ask(7).await.unwrap(), "value 7");
    ///     assert_eq!(disk.right().ask((7, "seven".to_owned())).await, Ok(()));
    ///     assert_eq!(disk.stage().stats().served, 2);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// If no runtime is current and none was given.
    pub fn combine<A, B>(self, left: A, right: B) -> Combined<L, R, A::Response, B::Response, A::Error, B::Error>
    where
        A: Service<L> + Clone + Send + 'static,
        B: Service<R> + Clone + Send + 'static,
        A::Future: Send + 'static,
        B::Future: Send + 'static,
        A::Response: Send + 'static,
        B::Response: Send + 'static,
        A::Error: Send + 'static,
        B::Error: Send + 'static,
    {
        know_either::<A::Error, B::Error>();
        know_stage::<A::Error>();
        know_stage::<B::Error>();
        Combined { stage: self.wrap(Both { left, right, ready: (false, false) }) }
    }
}

/// Two services with one queue; see [`StageBuilder::combine`].
pub struct Combined<L, R, LResp, RResp, LErr, RErr>
where
    L: Send + 'static,
    R: Send + 'static,
    LResp: Send + 'static,
    RResp: Send + 'static,
    LErr: Send + 'static,
    RErr: Send + 'static,
{
    stage: CombinedStage<L, R, LResp, RResp, LErr, RErr>,
}

/// The stage of a [`Combined`].
pub type CombinedStage<L, R, LResp, RResp, LErr, RErr> = Stage<Either<L, R>, Either<LResp, RResp>, Either<LErr, RErr>>;

impl<L, R, LResp, RResp, LErr, RErr> Combined<L, R, LResp, RResp, LErr, RErr>
where
    L: Send + 'static,
    R: Send + 'static,
    LResp: Send + 'static,
    RResp: Send + 'static,
    LErr: Send + 'static,
    RErr: Send + 'static,
{
    /// The stage that serves both.
    pub fn stage(&self) -> &CombinedStage<L, R, LResp, RResp, LErr, RErr> {
        &self.stage
    }

    /// A handle for requests to the first service.
    pub fn left(&self) -> Side<L, LResp, LErr> {
        Side(Box::new(SharedQueue {
            stage: self.stage.clone(),
            request: Either::Left,
            response: |response| match response {
                Either::Left(response) => response,
                Either::Right(_) => unreachable!("the first service responds with the first kind"),
            },
            error: |error| match error {
                Either::Left(error) => error,
                Either::Right(_) => unreachable!("the first service responds with the first kind"),
            },
        }))
    }

    /// A handle for requests to the second service.
    pub fn right(&self) -> Side<R, RResp, RErr> {
        Side(Box::new(SharedQueue {
            stage: self.stage.clone(),
            request: Either::Right,
            response: |response| match response {
                Either::Right(response) => response,
                Either::Left(_) => unreachable!("the second service responds with the second kind"),
            },
            error: |error| match error {
                Either::Right(error) => error,
                Either::Left(_) => unreachable!("the second service responds with the second kind"),
            },
        }))
    }
}

impl<L, R, LResp, RResp, LErr, RErr> Clone for Combined<L, R, LResp, RResp, LErr, RErr>
where
    L: Send + 'static,
    R: Send + 'static,
    LResp: Send + 'static,
    RResp: Send + 'static,
    LErr: Send + 'static,
    RErr: Send + 'static,
{
    fn clone(&self) -> Self {
        Combined { stage: self.stage.clone() }
    }
}

impl<L, R, LResp, RResp, LErr, RErr> fmt::Debug for Combined<L, R, LResp, RResp, LErr, RErr>
where
    L: Send + 'static,
    R: Send + 'static,
    LResp: Send + 'static,
    RResp: Send + 'static,
    LErr: Send + 'static,
    RErr: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Combined").field(&self.stage).finish()
    }
}

/// A handle of a combined stage, for the requests of one of its services. A service, as [`Stage`]
/// is, with the same back-pressure.
pub struct Side<Req, Resp, E>(Box<dyn AnyDoor<Req, Resp, E>>);

impl<Req, Resp, E> Side<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    /// Waits for a place in the queue, sends the request, and waits for its response.
    ///
    /// Cancel safe: dropping it cancels the request.
    pub async fn ask(&self, request: Req) -> Result<Resp, StageError<E>> {
        let mut handle = self.0.another();
        poll_fn(|cx| handle.poll_place(cx)).await;
        handle.send(request).await
    }
}

impl<Req, Resp, E> Clone for Side<Req, Resp, E> {
    fn clone(&self) -> Self {
        Side(self.0.another())
    }
}

impl<Req, Resp, E> fmt::Debug for Side<Req, Resp, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Side").field(&self.0.node().name()).finish()
    }
}

impl<Req, Resp, E> Service<Req> for Side<Req, Resp, E> {
    type Response = Resp;
    type Error = StageError<E>;
    type Future = BoxFuture<Result<Resp, StageError<E>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StageError<E>>> {
        self.0.poll_place(cx).map(Ok)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        self.0.send(request)
    }
}

impl<Req, Resp, E> Linked for Side<Req, Resp, E> {
    fn node(&self) -> Arc<dyn Node> {
        self.0.node()
    }
}

/// A handle of a stage that hides the stage's request type.
trait AnyDoor<Req, Resp, E>: Send + Sync {
    fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<()>;
    fn send(&mut self, request: Req) -> BoxFuture<Result<Resp, StageError<E>>>;
    fn another(&self) -> Box<dyn AnyDoor<Req, Resp, E>>;
    fn node(&self) -> Arc<dyn Node>;
}

struct SharedQueue<Req, Resp, E, Q, P, F>
where
    Q: Send + 'static,
    P: Send + 'static,
    F: Send + 'static,
{
    stage: Stage<Q, P, F>,
    request: fn(Req) -> Q,
    response: fn(P) -> Resp,
    error: fn(F) -> E,
}

impl<Req, Resp, E, Q, P, F> AnyDoor<Req, Resp, E> for SharedQueue<Req, Resp, E, Q, P, F>
where
    Req: 'static,
    Resp: 'static,
    E: 'static,
    Q: Send + 'static,
    P: Send + 'static,
    F: Send + 'static,
{
    fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stage.poll_ready(cx).map(drop)
    }

    fn send(&mut self, request: Req) -> BoxFuture<Result<Resp, StageError<E>>> {
        let (response, error) = (self.response, self.error);
        let sent = self.stage.call((self.request)(request));
        Box::pin(async move {
            match sent.await {
                Ok(result) => Ok(response(result)),
                Err(failed) => Err(failed.map(error)),
            }
        })
    }

    fn another(&self) -> Box<dyn AnyDoor<Req, Resp, E>> {
        let (request, response, error) = (self.request, self.response, self.error);
        Box::new(SharedQueue { stage: self.stage.clone(), request, response, error })
    }

    fn node(&self) -> Arc<dyn Node> {
        self.stage.node()
    }
}

/// The handler of a combined stage.
struct Both<A, B> {
    left: A,
    right: B,
    /// Whether each service is ready. A ready service must not be polled again before its call.
    ready: (bool, bool),
}

impl<A: Clone, B: Clone> Clone for Both<A, B> {
    fn clone(&self) -> Self {
        // A clone does not inherit readiness.
        Both { left: self.left.clone(), right: self.right.clone(), ready: (false, false) }
    }
}

impl<A, B, L, R> Service<Either<L, R>> for Both<A, B>
where
    A: Service<L> + Clone,
    B: Service<R> + Clone,
{
    type Response = Either<A::Response, B::Response>;
    type Error = Either<A::Error, B::Error>;
    type Future = BothFuture<A::Future, B::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        if !self.ready.0 {
            match self.left.poll_ready(cx) {
                Poll::Ready(Ok(())) => self.ready.0 = true,
                other => return other.map_err(Either::Left),
            }
        }
        if !self.ready.1 {
            match self.right.poll_ready(cx) {
                Poll::Ready(Ok(())) => self.ready.1 = true,
                other => return other.map_err(Either::Right),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Either<L, R>) -> Self::Future {
        // The service that is not called gives its readiness back, because other callers may wait
        // for it.
        match request {
            Either::Left(request) => {
                let future = self.left.call(request);
                self.right = self.right.clone();
                self.ready = (false, false);
                BothFuture::Left { future }
            }
            Either::Right(request) => {
                let future = self.right.call(request);
                self.left = self.left.clone();
                self.ready = (false, false);
                BothFuture::Right { future }
            }
        }
    }
}

pin_project! {
    #[project = BothProject]
    enum BothFuture<F, G> {
        Left { #[pin] future: F },
        Right { #[pin] future: G },
    }
}

impl<F, G, LResp, RResp, LErr, RErr> Future for BothFuture<F, G>
where
    F: Future<Output = Result<LResp, LErr>>,
    G: Future<Output = Result<RResp, RErr>>,
{
    type Output = Result<Either<LResp, RResp>, Either<LErr, RErr>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            BothProject::Left { future } => {
                future.poll(cx).map(|result| result.map(Either::Left).map_err(Either::Left))
            }
            BothProject::Right { future } => {
                future.poll(cx).map(|result| result.map(Either::Right).map_err(Either::Right))
            }
        }
    }
}

/// One service of two without a queue between them: the response of `first` is the request of
/// `second`. Wrapped in a stage it is the inverse of a [`Pipeline`](super::Pipeline): one queue
/// less, and one width for both.
///
/// ```
/// use dapple_stage::{Stage, fuse};
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let parse = Stage::builder("parse").wrap_fn(async |text: &str| text.parse::<u32>());
///     let double = Stage::builder("double").wrap_sync(|n: u32| 2 * n);
///     let both = Stage::builder("parse and double").width(4).wrap(fuse(parse, double));
///     assert_eq!(both.ask("21").await.unwrap(), 42);
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn fuse<A, B>(first: A, second: B) -> Fused<A, B> {
    Fused { first, second }
}

/// Two services in sequence; see [`fuse`].
#[derive(Clone, Debug)]
pub struct Fused<A, B> {
    first: A,
    second: B,
}

impl<A, B, Req> Service<Req> for Fused<A, B>
where
    A: Service<Req>,
    B: Service<A::Response> + Clone + Send + 'static,
    A::Future: Send + 'static,
    A::Response: Send + 'static,
    A::Error: Send + 'static,
    B::Future: Send + 'static,
{
    type Response = B::Response;
    type Error = Either<A::Error, B::Error>;
    type Future = BoxFuture<Result<B::Response, Self::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.first.poll_ready(cx).map_err(left::<_, B::Error>)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let first = self.first.call(request);
        let mut second = self.second.clone();
        Box::pin(async move {
            let response = first.await.map_err(left::<_, B::Error>)?;
            poll_fn(|cx| second.poll_ready(cx)).await.map_err(right::<A::Error, _>)?;
            let second = second.call(response);
            second.await.map_err(right::<A::Error, _>)
        })
    }
}

/// Makes the error, and registers its type so that a stage around it can look into it.
fn left<L: 'static, R: 'static>(error: L) -> Either<L, R> {
    know_either::<L, R>();
    Either::Left(error)
}

fn right<L: 'static, R: 'static>(error: R) -> Either<L, R> {
    know_either::<L, R>();
    Either::Right(error)
}
