//! Completions: the recipient of a request's result.

use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dapple_sched::{Callback, Color, foreign};

use super::queue::{PopError, Promise, Queue};
use crate::shut_down_error;
use dapple_sync::sync::oneshot;

/// The recipient of a request's result. Each request names its own, not the device, so that several
/// parties can use one device and each gets its own completions (Gribble, section 5.1.1).
///
/// | completion | recipient |
/// |---|---|
/// | [`none`](Self::none), or `()` | none |
/// | [`post`](Self::post) | a closure, once, in a color |
/// | a `&Callback` | that callback, in its color |
/// | [`push`](Self::push), or a `&Queue` | a queue, with a place reserved from the start |
///
/// A request counts against the limit of its sink or source until the closure or the callback has
/// run.
///
/// ```
/// use std::sync::mpsc;
/// use dapple_flow::flow::{self, Completion, Queue, Written};
/// use dapple_sched::Color;
///
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// runtime.block_on(async {
///     let (sink, mut source) = flow::pipe()?;
///     let done = Queue::new(8);
///     sink.submit("one", &done).await?;
///     // The closure decides which item the queue gets.
///     let (tx, rx) = mpsc::channel();
///     sink.submit("two", Completion::post(&Color::new(), move |written: Written| drop(tx.send(written.count)))).await?;
///     sink.close().await?;
///     assert_eq!(done.pop().await.expect("the sink is open").count, 3);
///     assert_eq!(rx.recv(), Ok(3));
///     assert_eq!(source.next().await.expect("something came")?, "onetwo");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Completion<R>(Kind<R>);

enum Kind<R> {
    Dropped,
    Post(Color, Box<dyn FnOnce(R) + Send>),
    Call(Callback<R>),
    Push(Box<dyn Port<R>>),
    Answer(oneshot::Sender<R>),
}

impl<R: Send + 'static> Completion<R> {
    /// No recipient. If a sink fails, its later requests return the error.
    pub fn none() -> Self {
        Completion(Kind::Dropped)
    }

    /// Runs a closure in a color. If the runtime shuts down first, the closure is dropped there.
    pub fn post(color: &Color, closure: impl FnOnce(R) + Send + 'static) -> Self {
        Completion(Kind::Post(color.clone(), Box::new(closure)))
    }

    /// Pushes the result of the closure, which can tag requests. The closure runs where the request
    /// is completed, so keep it short; if it panics, the queue gets nothing.
    ///
    /// While the queue is full, counting reserved places, [`submit`](super::Sink::submit) waits and
    /// [`try_submit`](super::Sink::try_submit) refuses; a queue that drops its oldest is never
    /// full.
    ///
    /// ```
    /// use dapple_flow::flow::{self, Completion, Queue, Written};
    ///
    /// let runtime = dapple_io::runtime_builder().workers(1).build()?;
    /// runtime.block_on(async {
    ///     let (sink, _source) = flow::pipe()?;
    ///     let done = Queue::new(8);
    ///     for id in [7, 8] {
    ///         sink.submit("hello", Completion::push(&done, move |written: Written| (id, written.count))).await?;
    ///     }
    ///     assert_eq!(done.pop().await, Some((7, 5)));
    ///     assert_eq!(done.pop().await, Some((8, 5)));
    ///     std::io::Result::Ok(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn push<T: Send + 'static>(queue: &Queue<T>, map: impl FnOnce(R) -> T + Send + 'static) -> Self {
        Completion(Kind::Push(Box::new(Push {
            queue: queue.clone(),
            promise: None,
            map: Some(map),
            result: PhantomData,
        })))
    }

    /// A completion that is awaited.
    pub(super) fn answer() -> (Self, Pending<R>) {
        let (sender, receiver) = oneshot::channel();
        (Completion(Kind::Answer(sender)), Pending(receiver))
    }

    /// Reserves room for the completion.
    pub(super) fn try_reserve(&mut self) -> Result<(), PopError> {
        match &mut self.0 {
            Kind::Push(port) => port.try_reserve(),
            _ => Ok(()),
        }
    }

    /// As `try_reserve`, and waits.
    pub(super) fn poll_reserve(&mut self, cx: &Context<'_>) -> Poll<Result<(), PopError>> {
        match &mut self.0 {
            Kind::Push(port) => port.poll_reserve(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Delivers the result. `guard` is dropped after the recipient has run, or at delivery if
    /// nothing runs.
    pub(super) fn deliver<G: Send + 'static>(self, result: R, guard: G) {
        match self.0 {
            Kind::Dropped => {}
            Kind::Post(color, closure) => color.post(move || {
                let _until_it_has_run = guard;
                closure(result);
            }),
            Kind::Call(callback) => {
                callback.call(result);
                // A color keeps its order, so this runs after the call.
                callback.color().post(move || drop(guard));
            }
            // Free the room first: a recipient that sees the completion can then use the room.
            Kind::Push(port) => {
                drop(guard);
                port.deliver(result);
            }
            Kind::Answer(sender) => {
                drop(guard);
                // An error: the future was dropped.
                drop(sender.send(result));
            }
        }
    }
}

impl<R: Send + 'static> From<()> for Completion<R> {
    fn from((): ()) -> Self {
        Completion::none()
    }
}

impl<R: Send + 'static> From<&Callback<R>> for Completion<R> {
    fn from(callback: &Callback<R>) -> Self {
        Completion(Kind::Call(callback.clone()))
    }
}

impl<R: Send + 'static> From<&Queue<R>> for Completion<R> {
    fn from(queue: &Queue<R>) -> Self {
        Completion::push(queue, |result| result)
    }
}

impl<R> std::fmt::Debug for Completion<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match &self.0 {
            Kind::Dropped => "none",
            Kind::Post(..) => "a closure",
            Kind::Call(_) => "a callback",
            Kind::Push(_) => "a queue",
            Kind::Answer(_) => "a future",
        };
        f.debug_tuple("Completion").field(&kind).finish()
    }
}

/// An accepted request; resolves to its result.
///
/// Cancel safe: if dropped, the request still runs, and its result is discarded.
#[must_use = "await it, or submit with a completion of `()`"]
pub struct Pending<R>(oneshot::Receiver<R>);

impl<R: Completed> Future for Pending<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let result = ready!(Pin::new(&mut self.0).poll(cx));
        // The device's runtime has gone, so no answer can come.
        Poll::Ready(result.unwrap_or_else(|_| R::failed(shut_down_error())))
    }
}

impl<R> std::fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// The result type of requests.
pub trait Completed: Send + 'static {
    /// The result of a request that was not carried out.
    fn failed(error: io::Error) -> Self;
}

/// A queue with any item type.
trait Port<R>: Send {
    fn try_reserve(&mut self) -> Result<(), PopError>;
    fn poll_reserve(&mut self, cx: &Context<'_>) -> Poll<Result<(), PopError>>;
    fn deliver(self: Box<Self>, result: R);
}

struct Push<T, R, F> {
    queue: Queue<T>,
    promise: Option<Promise<T>>,
    map: Option<F>,
    result: PhantomData<fn(R)>,
}

impl<T: Send, R, F: FnOnce(R) -> T + Send> Port<R> for Push<T, R, F> {
    fn try_reserve(&mut self) -> Result<(), PopError> {
        if self.promise.is_none() {
            self.promise = Some(Promise::try_new(&self.queue)?);
        }
        Ok(())
    }

    fn poll_reserve(&mut self, cx: &Context<'_>) -> Poll<Result<(), PopError>> {
        if self.promise.is_none() {
            self.promise = Some(ready!(Promise::poll_new(&mut self.queue, cx))?);
        }
        Poll::Ready(Ok(()))
    }

    fn deliver(mut self: Box<Self>, result: R) {
        let promise = self.promise.take().expect("reserved before the request was accepted");
        let map = self.map.take().expect("delivered once");
        // The request and those before it are done, even if the closure panics.
        match catch_unwind(AssertUnwindSafe(|| map(result))) {
            Ok(item) => promise.keep(item),
            Err(payload) => {
                foreign::discard(payload);
                tracing::error!("a closure of a completion panicked; its queue gets nothing");
            }
        }
    }
}
