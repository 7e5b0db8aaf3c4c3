//! The handle of a stage: a service that can be cloned.

use std::convert::Infallible;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dapple_sched::Handle;
use dapple_sync::sync::oneshot;
use dapple_tower::time::{Sleep, after};
use tower_service::Service;

use super::behind;
use super::builder::StageBuilder;
use super::core::{Core, Order, now};
use super::error::StageError;
use super::handler;
use super::job::Reply;
use super::policy::Load;
use super::queue::Place;
use super::stats::StageStats;
use crate::graph::{Linked, Node};
use crate::{Reason, Refused};

/// A handler behind a bounded queue, with a bound for how many requests it serves at a time.
///
/// Made by [`Stage::builder`] from any service or async function (the *wrap* of Gribble's design framework, section 4.1). A
/// `Stage` is a handle: clones send to the same queue. It is a [`tower_service::Service`]: `poll_ready` is pending while the
/// queue is full, and then gives this handle a place that its next `call` uses; a handle that is dropped gives its
/// place, or its place in line, back. A stage that was built to [shed](StageBuilder::shed) is always ready, and its `call`
/// says [`Refused`] when the queue is full. Its handlers run as tasks on Dapple; the handle and its futures can be used in any
/// executor.
///
/// When all handles are gone, what was taken in is still served.
///
/// ```
/// use dapple_stage::Stage;
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let stage = Stage::builder("double").queue_len_max(100).width(4).wrap_fn(async |n: u32| Ok::<_, std::io::Error>(2 * n));
///     assert_eq!(stage.ask(21).await?, 42);
///     assert_eq!(stage.stats().served, 1);
///     Ok::<_, dapple_stage::StageError<std::io::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Stage<Req, Resp, E = Infallible>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(crate) core: Arc<Core<Req, Resp, E>>,
    /// See [`Queue`](super::queue::Queue).
    ticket: Option<u64>,
}

impl<Req: Send + 'static> Stage<Req, (), Infallible> {
    /// Describes a stage of that name. The name is for people: in logs and graphs.
    pub fn builder(name: impl Into<String>) -> StageBuilder<Req> {
        StageBuilder::new(name.into())
    }
}

impl<Req, Resp, E> Stage<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    pub(crate) fn new(core: Core<Req, Resp, E>) -> Stage<Req, Resp, E> {
        Stage { core: Arc::new(core), ticket: None }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The runtime on which it serves.
    pub fn runtime(&self) -> &Handle {
        &self.core.handle
    }

    /// Sends a request, to be awaited: it waits for a place in the queue and then for its response. What can be said about a
    /// request is in [`Ask`].
    ///
    /// Nothing happens before it is awaited, or sent in another way.
    pub fn ask(&self, request: Req) -> Ask<Req, Resp, E> {
        Ask { stage: self.clone(), order: Order::new(request) }
    }

    /// Has the errors of its service, and of all others in the program that fail with `E`, be the source of this stage's, where a
    /// [refusal](Refused::find) is looked for. Boxes of errors and errors of this crate are found without that; of
    /// other types Rust does not tell a stage whether they are errors.
    ///
    /// ```
    /// use dapple_stage::{Refused, Stage, StageError};
    /// use std::time::Duration;
    ///
    /// #[derive(Debug, thiserror::Error)]
    /// #[error("no account")]
    /// struct NoAccount(#[source] StageError<std::io::Error>);
    ///
    /// let runtime = dapple_io::runtime_builder().workers(2).build()?;
    /// runtime.block_on(async {
    ///     let accounts = Stage::builder("accounts").wrap_fn(async |id: u32| Ok::<_, std::io::Error>(id));
    ///     let pages = Stage::builder("pages")
    ///         .wrap_fn(move |id| {
    ///             let account = accounts.ask(id).within(Duration::ZERO);
    ///             async move { account.await.map_err(NoAccount) }
    ///         })
    ///         .with_sources();
    ///     assert!(Refused::find(&pages.ask(7).await.unwrap_err()).is_some());
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_sources(self) -> Self
    where
        E: std::error::Error,
    {
        behind::know::<E>();
        self
    }

    /// What the stage is doing, and what it did so far. Costs two locks.
    pub fn stats(&self) -> StageStats {
        self.core.stats()
    }

    /// How much it has to do.
    pub fn load(&self) -> Load {
        self.core.load()
    }

    /// Changes how many calls may be in service. What is in service stays there. A width that was found by
    /// measuring is fixed from now on.
    pub fn set_width(&self, width: usize) {
        self.core.set_width(width);
    }

    /// Has another version of the service take over without losing a request: what waits and what comes goes to the new
    /// one; what is in service finishes in the old one. A stage that was taken out comes back.
    ///
    /// ```
    /// use dapple_stage::Stage;
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let stage = Stage::builder("greeting").wrap_sync(|name: &str| format!("Hello {name}"));
    ///     assert_eq!(stage.ask("you").await.unwrap(), "Hello you");
    ///     stage.replace_sync(|name: &str| format!("Welcome, {name}"));
    ///     assert_eq!(stage.ask("you").await.unwrap(), "Welcome, you");
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn replace<S>(&self, service: S)
    where
        S: Service<Req, Response = Resp, Error = E> + Clone + Send + 'static,
        S::Future: Send + 'static,
    {
        self.replace_with(move || service.clone());
    }

    /// As [`replace`](Self::replace), with a factory.
    pub fn replace_with<S>(&self, make: impl FnMut() -> S + Send + 'static)
    where
        S: Service<Req, Response = Resp, Error = E> + Send + 'static,
        S::Future: Send + 'static,
    {
        self.core.replace(handler::of_services(make));
    }

    /// As [`replace`](Self::replace), with an async function.
    pub fn replace_fn<F, Fut>(&self, serve: F)
    where
        F: Fn(Req) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<Resp, E>> + Send + 'static,
    {
        self.replace(handler::FnService(serve));
    }

    /// As [`replace`](Self::replace), with a plain function.
    pub fn replace_sync(&self, serve: impl Fn(Req) -> Resp + Clone + Send + 'static) {
        self.replace(handler::FnService(move |request| std::future::ready(Ok(serve(request)))));
    }

    /// Takes nothing more in, from any handle, and resolves when what was taken in is served.
    ///
    /// Cancel safe: dropped, it has stopped the stage none the less.
    pub fn stop(&self) -> impl Future<Output = ()> + Send + use<Req, Resp, E> {
        self.core.shut(false);
        let core = self.core.clone();
        async move { core.rest().await }
    }

    /// As [`stop`](Self::stop), but what waits in the queue is refused.
    ///
    /// Cancel safe: dropped, it has stopped the stage none the less.
    pub fn stop_now(&self) -> impl Future<Output = ()> + Send + use<Req, Resp, E> {
        self.core.shut(true);
        let core = self.core.clone();
        async move { core.rest().await }
    }

    fn poll_place(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.policy.sheds {
            return Poll::Ready(());
        }
        let core = &self.core;
        core.queue.poll_place(&mut self.ticket, cx, |len| Refused::new(Reason::Full { len }, core.delay()))
    }

    /// Sends, in the place that this handle has, if any.
    pub(crate) fn send(&mut self, order: Order<Req>) -> Response<Req, Resp, E> {
        let (tx, rx) = oneshot::channel();
        let sent = self.core.submit(&mut self.ticket, order, Reply::Caller(tx));
        Response {
            state: match sent {
                Ok(place) => State::Sent { rx, place, core: self.core.clone() },
                Err(refused) => State::Refused(refused),
            },
        }
    }

    /// Sends a request whose result goes to `reply`.
    pub(crate) fn send_to(&mut self, order: Order<Req>, reply: Reply<Resp, E>) -> Result<Sent<Req, Resp, E>, Refused> {
        let place = self.core.submit(&mut self.ticket, order, reply)?;
        Ok(Sent { place, core: self.core.clone() })
    }
}

impl<Req, Resp, E> Clone for Stage<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    /// Another handle of the same stage; it has no place in the queue of its own yet.
    fn clone(&self) -> Self {
        Stage { core: self.core.clone(), ticket: None }
    }
}

impl<Req, Resp, E> Drop for Stage<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn drop(&mut self) {
        self.core.queue.release(&mut self.ticket);
    }
}

impl<Req, Resp, E> fmt::Debug for Stage<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Load { queue_len, in_service, width, .. } = self.load();
        f.debug_struct("Stage")
            .field("name", &self.name())
            .field("queue_len", &queue_len)
            .field("in_service", &in_service)
            .field("width", &width)
            .finish_non_exhaustive()
    }
}

impl<Req, Resp, E> Service<Req> for Stage<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    type Response = Resp;
    type Error = StageError<E>;
    type Future = Response<Req, Resp, E>;

    /// Ready when the queue has a place, which is then kept for this handle; at once where `call` would refuse in any case.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StageError<E>>> {
        self.poll_place(cx).map(Ok)
    }

    /// Puts the request into the queue. Without a place from `poll_ready` it takes one that is free, and refuses when there is none.
    fn call(&mut self, request: Req) -> Response<Req, Resp, E> {
        self.send(Order::new(request))
    }
}

impl<Req, Resp, E> Linked for Stage<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn node(&self) -> Arc<dyn Node> {
        self.core.clone()
    }
}

/// A request that is about to be sent to a stage, and what is said about it.
///
/// ```
/// use std::time::Duration;
/// use dapple_stage::Stage;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let stage = Stage::builder("length").wrap_sync(|text: String| text.len());
///     let length = stage
///         .ask("some text".to_owned())
///         .within(Duration::from_secs(60))
///         .on_drop(|text, why| eprintln!("no length of {text:?}: {why}"))
///         .await;
///     assert_eq!(length, Ok(9));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "nothing is sent before this is awaited"]
pub struct Ask<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    stage: Stage<Req, Resp, E>,
    order: Order<Req>,
}

impl<Req, Resp, E> Ask<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    /// When its response is of no use any more. A request that still waits then is dropped; one that is in service is given
    /// up ([`StageError::Expired`]).
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.order.deadline = Some(deadline);
        self
    }

    /// As [`deadline`](Self::deadline), from now on.
    pub fn within(self, time: Duration) -> Self {
        self.deadline(after(now(), time))
    }

    /// What runs instead of the request when the stage refuses it, or drops it from the queue: the *drop callback*. It runs in a
    /// color of its own, at once: that of the request may be busy. When the caller itself stops waiting, nothing runs.
    pub fn on_drop(mut self, run: impl FnOnce(Req, &Refused) + Send + 'static) -> Self {
        self.order.on_drop = Some(Box::new(run));
        self
    }

    /// It goes before all of lower rank; 0 is the lowest, and what is not said.
    pub fn rank(mut self, rank: u8) -> Self {
        self.order.rank = Some(rank);
        self
    }

    /// Sends it now, and refuses when the queue is full.
    pub fn now(mut self) -> Response<Req, Resp, E> {
        self.stage.send(self.order)
    }

    /// Sends it now, and waits for nothing: its result is dropped.
    ///
    /// # Errors
    ///
    /// When the stage does not take it.
    pub fn and_forget(mut self) -> Result<(), Refused> {
        let Stage { core, ticket } = &mut self.stage;
        core.submit(ticket, self.order, Reply::Nobody).map(drop)
    }

    async fn send(mut self) -> Result<Resp, StageError<E>> {
        self.place().await;
        self.stage.send(self.order).await
    }

    pub(crate) fn into_parts(self) -> (Stage<Req, Resp, E>, Order<Req>) {
        (self.stage, self.order)
    }

    /// Waits for a place in the queue, or until it is too late: who is sent then is refused.
    pub(crate) async fn place(&mut self) {
        let Some(deadline) = self.order.deadline else {
            return poll_fn(|cx| self.stage.poll_place(cx)).await;
        };
        // On a task of the stage's runtime, as this future may be polled in an executor that has no timers.
        let mut late = None;
        poll_fn(|cx| {
            if self.stage.poll_place(cx).is_ready() {
                return Poll::Ready(());
            }
            let handle = &self.stage.core.handle;
            let late = late.get_or_insert_with(|| Late(handle.spawn(Sleep::until(deadline))));
            Pin::new(&mut late.0).poll(cx).map(drop)
        })
        .await;
    }
}

/// A task that is over when nobody waits for it.
struct Late(dapple_sched::JoinHandle<()>);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<Req, Resp, E> IntoFuture for Ask<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    type Output = Result<Resp, StageError<E>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    /// Cancel safe as [`Response`] is: a request that was not yet in the queue is not sent.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// The response of a stage, to be awaited.
///
/// Dropped, it cancels the request: one that waits leaves the queue at once, with all that it holds; of one that is in
/// service the handler's future is dropped as soon as its color has a turn. The result is not lost when it is awaited
/// in parts, by `&mut`.
#[must_use = "dropped, it cancels the request; use `and_forget` where no response is wanted"]
pub struct Response<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    state: State<Req, Resp, E>,
}

enum State<Req, Resp, E> {
    Refused(Refused),
    Sent { rx: oneshot::Receiver<Result<Resp, StageError<E>>>, place: Place, core: Arc<Core<Req, Resp, E>> },
    Over,
}

/// A request that was sent, whose result goes elsewhere. Dropped, it takes it out of the queue, if it still waits.
pub(crate) struct Sent<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    place: Place,
    core: Arc<Core<Req, Resp, E>>,
}

impl<Req, Resp, E> Drop for Sent<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn drop(&mut self) {
        self.core.cancel(self.place);
    }
}

impl<Req, Resp, E> Future for Response<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    type Output = Result<Resp, StageError<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.state {
            State::Refused(refused) => Err(refused.clone().into()),
            State::Sent { rx, .. } => match Pin::new(rx).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result.unwrap_or(Err(StageError::Stopped)),
            },
            State::Over => panic!("a response is not polled again after it was ready"),
        };
        self.state = State::Over;
        Poll::Ready(result)
    }
}

impl<Req, Resp, E> Unpin for Response<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
}

impl<Req, Resp, E> Drop for Response<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn drop(&mut self) {
        if let State::Sent { place, core, .. } = &self.state {
            core.cancel(*place);
        }
    }
}

impl<Req, Resp, E> fmt::Debug for Response<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Refused(refused) => return f.debug_tuple("Response").field(refused).finish(),
            State::Sent { .. } => "sent",
            State::Over => "over",
        };
        write!(f, "Response({state})")
    }
}
