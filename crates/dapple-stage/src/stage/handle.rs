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
use super::queue::QueueRank;
use super::stats::StageStats;
use crate::graph::{Linked, Node};
use crate::{Reason, Refused};

/// A handler behind a bounded queue, with a bound on the requests it serves at a time.
///
/// [`Stage::builder`] makes one of any service or async function (the *wrap* of Gribble's design
/// framework, section 4.1). A `Stage` is a handle: clones send to the same queue. It is a
/// [`tower_service::Service`]: `poll_ready` is pending while the queue is full, and then reserves a
/// place for this handle's next `call`. Dropping a handle gives its place, or its position in the
/// waiting line, back. A stage built to [shed](StageBuilder::shed) is always ready, and its `call`
/// returns [`Refused`] when the queue is full. Its handlers run as tasks on Dapple; the handle and
/// its futures work in any executor.
///
/// After the last handle is dropped, the stage still serves the requests it has taken.
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
    /// Starts the builder of a stage with that name. Logs and graphs show the name.
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

    /// The runtime that serves.
    pub fn runtime(&self) -> &Handle {
        &self.core.handle
    }

    /// Sends a request when awaited: waits for a place in the queue, then for the response. [`Ask`]
    /// has the settings of one request.
    ///
    /// Nothing happens before it is awaited or sent in another way.
    pub fn ask(&self, request: Req) -> Ask<Req, Resp, E> {
        Ask { stage: self.clone(), order: Order::new(request) }
    }

    /// Registers `E` as an error type in this program. Errors of every service that fails with `E`
    /// then become the source of its stage's errors, in which [`Refused::find`](Refused::find)
    /// searches for a refusal. Boxed errors and errors of this crate need no call; for other types,
    /// Rust cannot tell a stage whether they are errors.
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

    /// The stage's state and counters. Costs two locks.
    pub fn stats(&self) -> StageStats {
        self.core.stats()
    }

    /// The stage's load.
    pub fn load(&self) -> Load {
        self.core.load()
    }

    /// Changes how many calls may be in service. Calls in service continue. An adaptive width
    /// becomes fixed.
    pub fn set_width(&self, width: usize) {
        self.core.set_width(width);
    }

    /// Replaces the service with another version without losing a request: waiting and new requests
    /// go to the new one; calls in service finish in the old one. A stage that was out of service
    /// serves again.
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

    /// Stops taking requests through any handle, and resolves when all accepted requests are
    /// served.
    ///
    /// Cancel safe: the stage stops even if the future is dropped.
    pub fn stop(&self) -> impl Future<Output = ()> + Send + use<Req, Resp, E> {
        self.core.shut(false);
        let core = self.core.clone();
        async move { core.rest().await }
    }

    /// As [`stop`](Self::stop), but refuses waiting requests.
    ///
    /// Cancel safe: the stage stops even if the future is dropped.
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

    /// Sends in the place that this handle holds, if any.
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

    /// Sends a request, with its result going to `reply`.
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
    /// Another handle of the same stage, without a place in the queue.
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

    /// Ready when the queue has a place, which is then reserved for this handle. Ready at once if
    /// `call` would refuse in any case.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StageError<E>>> {
        self.poll_place(cx).map(Ok)
    }

    /// Puts the request into the queue. Without a reserved place it takes a free one, and refuses
    /// if there is none.
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

/// A request about to be sent to a stage, with its settings.
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
#[must_use = "a request is sent only when it is awaited"]
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
    /// Sets when the response becomes useless. A request that still waits then is dropped; if it is
    /// in service, the stage gives it up ([`StageError::Expired`]).
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.order.deadline = Some(deadline);
        self
    }

    /// Sets the [deadline](Self::deadline) to this long from now.
    pub fn within(self, time: Duration) -> Self {
        self.deadline(after(now(), time))
    }

    /// Sets the *drop callback*, which runs instead of the request when the stage refuses it or
    /// drops it from the queue. It runs at once in a new color, because that of the request may be
    /// busy. It does not run when the caller itself stops waiting.
    pub fn on_drop(mut self, run: impl FnOnce(Req, &Refused) + Send + 'static) -> Self {
        self.order.on_drop = Some(Box::new(run));
        self
    }

    /// Sets the rank. The request goes before all of lower rank; 0 is the lowest and the default.
    pub fn rank(mut self, rank: u8) -> Self {
        self.order.rank = Some(rank);
        self
    }

    /// Sends it now; refuses if the queue is full.
    pub fn now(mut self) -> Response<Req, Resp, E> {
        self.stage.send(self.order)
    }

    /// Sends it now, and drops its result.
    ///
    /// # Errors
    ///
    /// When the stage refuses it.
    pub fn and_forget(mut self) -> Result<(), Refused> {
        let Stage { core, ticket } = &mut self.stage;
        core.submit(ticket, self.order, Reply::Dropped).map(drop)
    }

    async fn send(mut self) -> Result<Resp, StageError<E>> {
        self.place().await;
        self.stage.send(self.order).await
    }

    pub(crate) fn into_parts(self) -> (Stage<Req, Resp, E>, Order<Req>) {
        (self.stage, self.order)
    }

    /// Waits for a place in the queue, or for the deadline. A request sent after the deadline is
    /// refused.
    pub(crate) async fn place(&mut self) {
        let Some(deadline) = self.order.deadline else {
            return poll_fn(|cx| self.stage.poll_place(cx)).await;
        };
        // On a task of the stage's runtime, because this future may be polled in an executor
        // without timers.
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

/// A task that is aborted when it is dropped.
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

    /// Cancel safe as [`Response`] is: a request not yet in the queue is not sent.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// The response of a stage.
///
/// Dropping it cancels the request: a waiting one leaves the queue at once, with all that it holds;
/// for one in service, the handler's future is dropped at the next turn of its color. Awaiting it
/// in parts, through `&mut`, loses no result.
#[must_use = "a dropped response cancels the request; use `and_forget` if you need no response"]
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
    Sent { rx: oneshot::Receiver<Result<Resp, StageError<E>>>, place: QueueRank, core: Arc<Core<Req, Resp, E>> },
    Over,
}

/// A sent request with its result going elsewhere. Dropping it removes the request from the queue,
/// if it still waits.
pub(crate) struct Sent<Req, Resp, E>
where
    Req: Send + 'static,
    Resp: Send + 'static,
    E: Send + 'static,
{
    place: QueueRank,
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
