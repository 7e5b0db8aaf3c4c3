//! Stages in sequence.
//!
//! A response of the first stage enters the queue of the next as soon as that has a place. Until
//! then the request keeps its place in service in the first stage. So a slow stage fills its own
//! queue, then the width and the queue of the stage before it, until callers wait or are refused.
//! Nothing in between grows without a bound.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use dapple_sync::sync::oneshot;
use dapple_tower::time::Sleep;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::behind::know_pipeline;
use super::core::{Order, drop_quietly, now};
use super::error::StageError;
use super::handle::{Ask, Sent, Stage};
use super::job::{Outlet, Reply};
use super::serve::message;
use crate::Refused;
use crate::graph::{Linked, Node};

/// A stage and the service that its responses go to: the *pipeline* of Gribble's design framework
/// (section 4.1). Made by [`Stage::then`].
///
/// It is a service from the requests of the first stage to the responses of the last. Each stage
/// keeps its own queue, width and limits. When the next stage has no room, the first keeps the
/// place in service; refusals of any stage reach the caller. Dropping the response cancels the
/// request in whichever stage it is.
///
/// ```
/// use dapple_stage::Stage;
/// use tower_service::Service;
/// use std::future::poll_fn;
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let parse = Stage::builder("parse").width(2).wrap_fn(async |text: &str| text.parse::<u32>());
///     let double = Stage::builder("double").width(1).wrap_sync(|n: u32| 2 * n);
///     let show = Stage::builder("show").wrap_sync(|n: u32| format!("<{n}>"));
///     let mut pipeline = parse.then(double).then(show);
///     poll_fn(|cx| pipeline.poll_ready(cx)).await.unwrap();
///     assert_eq!(pipeline.call("21").await.unwrap(), "<42>");
///     assert!(pipeline.ask("twenty-one").await.is_err());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Pipeline<Req, Mid, E, S>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
{
    first: Stage<Req, Mid, E>,
    next: S,
}

/// A type that can be followed by a service: a stage, or a pipeline through its last stage.
pub trait Then<S> {
    /// The resulting pipeline.
    type Joined;

    /// Appends `next`.
    fn then(self, next: S) -> Self::Joined;
}

impl<Req, Mid, E, S> Then<S> for Stage<Req, Mid, E>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
    S: Service<Mid> + Linked + Clone + Send + 'static,
{
    type Joined = Pipeline<Req, Mid, E, S>;

    fn then(self, next: S) -> Pipeline<Req, Mid, E, S> {
        self.core.links.add(&next.node(), "then");
        Pipeline { first: self, next }
    }
}

impl<Req, Mid, E, S, T> Then<T> for Pipeline<Req, Mid, E, S>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
    S: Then<T>,
{
    type Joined = Pipeline<Req, Mid, E, S::Joined>;

    fn then(self, next: T) -> Self::Joined {
        Pipeline { first: self.first, next: self.next.then(next) }
    }
}

impl<Req, Mid, E> Stage<Req, Mid, E>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
{
    /// A pipeline: responses of this stage enter the queue of `next`, a stage or another service;
    /// see [`Pipeline`].
    ///
    /// This stage can still be used by itself.
    pub fn then<S>(self, next: S) -> Pipeline<Req, Mid, E, S>
    where
        S: Service<Mid> + Linked + Clone + Send + 'static,
    {
        Then::then(self, next)
    }
}

impl<Req, Mid, E, S> Pipeline<Req, Mid, E, S>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
{
    /// A longer pipeline, with `next` after the last stage.
    pub fn then<T>(self, next: T) -> Pipeline<Req, Mid, E, S::Joined>
    where
        S: Then<T>,
    {
        Then::then(self, next)
    }

    /// The first stage.
    pub fn first(&self) -> &Stage<Req, Mid, E> {
        &self.first
    }

    /// The services after the first stage.
    pub fn next(&self) -> &S {
        &self.next
    }
}

impl<Req, Mid, E, S> Pipeline<Req, Mid, E, S>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
    S: Service<Mid> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    /// Waits for a place in the first stage's queue, sends the request, and waits for its response.
    ///
    /// Cancel safe: dropping it cancels the request.
    pub async fn ask(&self, request: Req) -> Result<S::Response, PipelineError<E, S::Error>> {
        let mut handle = self.clone();
        std::future::poll_fn(|cx| handle.poll_ready(cx)).await?;
        handle.call(request).await
    }

    /// As [`ask`](Self::ask), with the settings of one request ([`Ask`]): its deadline, and for the
    /// first stage its rank and drop callback. At its deadline it is given up in whichever stage it
    /// is, with [`StageError::Expired`] if it has left the first stage's queue.
    ///
    /// Cancel safe: dropping it cancels the request.
    pub async fn ask_with(
        &self,
        request: Req,
        say: impl FnOnce(Ask<Req, Mid, E>) -> Ask<Req, Mid, E>,
    ) -> Result<S::Response, PipelineError<E, S::Error>> {
        let mut ask = say(self.first.ask(request));
        ask.place().await;
        let (mut first, order) = ask.into_parts();
        send(&mut first, self.next.clone(), order).await
    }
}

impl<Req, Mid, E, S> Service<Req> for Pipeline<Req, Mid, E, S>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
    S: Service<Mid> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = PipelineError<E, S::Error>;
    type Future = PipelineResponse<Req, Mid, E, S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.first.poll_ready(cx).map_err(first)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        send(&mut self.first, self.next.clone(), Order::new(request))
    }
}

fn send<Req, Mid, E, S>(
    first: &mut Stage<Req, Mid, E>,
    next: S,
    order: Order<Req>,
) -> PipelineResponse<Req, Mid, E, S::Future, S::Error>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
    S: Service<Mid> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    let (tx, rx) = oneshot::channel();
    let feed = Feed { next, failed: None, tx };
    let limit = order.deadline.map(|deadline| (Sleep::until(deadline), now()));
    let step = match first.send_to(order, Reply::Outlet(Box::new(feed))) {
        Ok(sent) => Step::First { rx, sent },
        Err(refused) => Step::Refused { refused: Some(refused) },
    };
    PipelineResponse { step, limit }
}

impl<Req, Mid, E, S: Clone> Clone for Pipeline<Req, Mid, E, S>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
{
    fn clone(&self) -> Self {
        Pipeline { first: self.first.clone(), next: self.next.clone() }
    }
}

impl<Req, Mid, E, S> Linked for Pipeline<Req, Mid, E, S>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
{
    /// The node of the first stage, which links to the others.
    fn node(&self) -> Arc<dyn Node> {
        self.first.node()
    }
}

impl<Req, Mid, E, S: fmt::Debug> fmt::Debug for Pipeline<Req, Mid, E, S>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("first", &self.first).field("next", &self.next).finish()
    }
}

/// Why a pipeline returns no response, and in which part the request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PipelineError<A, B> {
    /// In the first stage, or between it and the next.
    First(StageError<A>),
    /// In a later part.
    Next(B),
}

impl<A: fmt::Display, B: fmt::Display> fmt::Display for PipelineError<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PipelineError::First(error) => error.fmt(f),
            PipelineError::Next(error) => error.fmt(f),
        }
    }
}

impl<A: fmt::Debug + fmt::Display + 'static, B: std::error::Error + 'static> std::error::Error for PipelineError<A, B> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PipelineError::First(error) => Some(error),
            PipelineError::Next(error) => Some(error),
        }
    }
}

/// An error that may be a refusal.
pub trait Overload {
    /// The refusal, if it is one.
    fn refused(&self) -> Option<&Refused>;
}

impl<E> Overload for StageError<E> {
    fn refused(&self) -> Option<&Refused> {
        StageError::refused(self)
    }
}

impl<A, B: Overload> Overload for PipelineError<A, B> {
    fn refused(&self) -> Option<&Refused> {
        match self {
            PipelineError::First(error) => error.refused(),
            PipelineError::Next(error) => error.refused(),
        }
    }
}

/// The end of the first stage: with the response of the next stage in progress, or without.
type Handed<F, E, N> = Result<F, PipelineError<E, N>>;

pin_project! {
    /// The response of a [`Pipeline`]. Dropping it cancels the request in its current stage.
    #[must_use = "a dropped response cancels the request"]
    pub struct PipelineResponse<Req, Mid, E, F, N>
    where
        Req: Send,
        Req: 'static,
        Mid: Send,
        Mid: 'static,
        E: Send,
        E: 'static,
    {
        #[pin]
        step: Step<Req, Mid, E, F, N>,
        // The deadline, and when its time began. It covers the parts after the first stage, which
        // enforces its own.
        limit: Option<(Sleep, Instant)>,
    }
}

pin_project! {
    #[project = StepProject]
    enum Step<Req, Mid, E, F, N>
    where
        Req: Send,
        Req: 'static,
        Mid: Send,
        Mid: 'static,
        E: Send,
        E: 'static,
    {
        Refused { refused: Option<Refused> },
        First { rx: oneshot::Receiver<Handed<F, E, N>>, sent: Sent<Req, Mid, E> },
        Next { #[pin] future: F },
    }
}

impl<Req, Mid, E, F, N, Resp> Future for PipelineResponse<Req, Mid, E, F, N>
where
    Req: Send + 'static,
    Mid: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<Resp, N>>,
    N: 'static,
{
    type Output = Result<Resp, PipelineError<E, N>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let handed = match this.step.as_mut().project() {
                StepProject::Refused { refused } => {
                    let refused = refused.take().expect("a response is not polled again after it was ready");
                    return Poll::Ready(Err(first(refused.into())));
                }
                StepProject::First { rx, .. } => match Pin::new(rx).poll(cx) {
                    Poll::Ready(handed) => handed.unwrap_or(Err(first(StageError::Stopped))),
                    Poll::Pending => return Poll::Pending,
                },
                StepProject::Next { future } => {
                    if let Poll::Ready(result) = future.poll(cx) {
                        return Poll::Ready(result.map_err(next));
                    }
                    let Some((sleep, since)) = this.limit else { return Poll::Pending };
                    ready!(Pin::new(sleep).poll(cx));
                    Err(PipelineError::First(StageError::Expired(now().saturating_duration_since(*since))))
                }
            };
            match handed {
                Ok(future) => this.step.set(Step::Next { future }),
                Err(error) => {
                    this.step.set(Step::Refused { refused: None });
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

/// Hands the response of the first stage on to the next.
struct Feed<S, F, E, N> {
    next: S,
    /// It failed, and cannot be polled again.
    failed: Option<PipelineError<E, N>>,
    tx: oneshot::Sender<Handed<F, E, N>>,
}

impl<S, Mid, E> Outlet<Mid, E> for Feed<S, S::Future, E, S::Error>
where
    S: Service<Mid> + Send,
    S::Future: Send,
    S::Error: Send + 'static,
    E: Send + 'static,
{
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.tx.poll_closed(cx)
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.failed.is_some() {
            return Poll::Ready(());
        }
        self.failed = match catch_unwind(AssertUnwindSafe(|| self.next.poll_ready(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => None,
            Ok(Poll::Ready(Err(error))) => Some(next(error)),
            Err(payload) => Some(panicked(payload)),
        };
        Poll::Ready(())
    }

    fn put(mut self: Box<Self>, result: Result<Mid, StageError<E>>) {
        let handed = match (result, self.failed.take()) {
            (Err(error), _) => Err(first(error)),
            (_, Some(error)) => Err(error),
            (Ok(response), None) => {
                let next = &mut self.next;
                catch_unwind(AssertUnwindSafe(|| next.call(response))).map_err(|payload| panicked(payload))
            }
        };
        let Feed { next, tx, .. } = *self;
        // If a caller has stopped waiting, it does not want the response; the drop of the next
        // stage's response cancels that request.
        drop_quietly((tx.send(handed), next));
    }
}

fn panicked<E: 'static, N: 'static>(payload: Box<dyn Any + Send>) -> PipelineError<E, N> {
    first(StageError::Panicked(message(payload)))
}

/// Makes the error, and registers its type so that a stage around it can look into it.
fn first<A: 'static, B: 'static>(error: StageError<A>) -> PipelineError<A, B> {
    know_pipeline::<A, B>();
    PipelineError::First(error)
}

fn next<A: 'static, B: 'static>(error: B) -> PipelineError<A, B> {
    know_pipeline::<A, B>();
    PipelineError::Next(error)
}
