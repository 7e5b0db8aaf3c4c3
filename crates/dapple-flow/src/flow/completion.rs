//! Who is told when a request is done.

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

/// Who is told that a request is done: named with each request, not with the device, so that several parties can use one and each
/// gets its own completions (Gribble, section 5.1.1).
///
/// | completion | is told |
/// |---|---|
/// | [`none`](Self::none), or `()` | nobody |
/// | [`post`](Self::post) | a closure, once, in a color |
/// | a `&Callback` | that callback, in its color |
/// | [`push`](Self::push), or a `&Queue` | a queue, in which a place is kept free for it from the start |
///
/// A request counts as one of its sink or source, and so against its limit, until the closure or the callback has run.
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
///     // What the queue gets is up to the request.
///     let (tx, rx) = mpsc::channel();
///     sink.submit("two", Completion::post(&Color::new(), move |written: Written| drop(tx.send(written.count)))).await?;
///     sink.close().await?;
///     assert_eq!(done.pop().await.expect("it is open").count, 3);
///     assert_eq!(rx.recv(), Ok(3));
///     assert_eq!(source.next().await.expect("something came")?, "onetwo");
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Completion<R>(Kind<R>);

enum Kind<R> {
    Nobody,
    Post(Color, Box<dyn FnOnce(R) + Send>),
    Call(Callback<R>),
    Push(Box<dyn Port<R>>),
    Answer(oneshot::Sender<R>),
}

impl<R: Send + 'static> Completion<R> {
    /// Nobody is told. Of a sink that has failed, later requests learn.
    pub fn none() -> Self {
        Completion(Kind::Nobody)
    }

    /// Runs a closure in a color. If the runtime shuts down first, the closure is dropped there.
    pub fn post(color: &Color, closure: impl FnOnce(R) + Send + 'static) -> Self {
        Completion(Kind::Post(color.clone(), Box::new(closure)))
    }

    /// Pushes what the closure makes of the result: the place for what tells requests apart. It runs where the request is
    /// completed, so keep it short; if it panics, the queue gets nothing.
    ///
    /// While the queue is full, of completions that came or are to come, [`submit`](super::Sink::submit) waits and
    /// [`try_submit`](super::Sink::try_submit) refuses; one that drops its oldest is never full.
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

    /// One that is awaited.
    pub(super) fn answer() -> (Self, Pending<R>) {
        let (sender, receiver) = oneshot::channel();
        (Completion(Kind::Answer(sender)), Pending(receiver))
    }

    /// Makes sure that there will be room for the completion.
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

    /// Tells. `guard` is dropped when whoever is told has run, or has been told where nothing runs.
    pub(super) fn deliver<G: Send + 'static>(self, result: R, guard: G) {
        match self.0 {
            Kind::Nobody => {}
            Kind::Post(color, closure) => color.post(move || {
                let _until_it_has_run = guard;
                closure(result);
            }),
            Kind::Call(callback) => {
                callback.call(result);
                // A color keeps its order, so this runs after the call.
                callback.color().post(move || drop(guard));
            }
            // First the room: who has heard that a request is done finds it.
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
            Kind::Nobody => "nobody",
            Kind::Post(..) => "a closure",
            Kind::Call(_) => "a callback",
            Kind::Push(_) => "a queue",
            Kind::Answer(_) => "a future",
        };
        f.debug_tuple("Completion").field(&kind).finish()
    }
}

/// A request that was accepted; resolves to its completion.
///
/// Cancel safe: dropping it does not take the request back, only nobody is told.
#[must_use = "await it, or submit with a completion of `()`"]
pub struct Pending<R>(oneshot::Receiver<R>);

impl<R: Completed> Future for Pending<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let result = ready!(Pin::new(&mut self.0).poll(cx));
        // Nobody is left who could answer: the runtime of the device has gone.
        Poll::Ready(result.unwrap_or_else(|_| R::failed(shut_down_error())))
    }
}

impl<R> std::fmt::Debug for Pending<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

/// What requests end with.
pub trait Completed: Send + 'static {
    /// A request that was not carried out.
    fn failed(error: io::Error) -> Self;
}

/// A queue, whatever its items are.
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
        // The request is done whatever becomes of the closure, and so are those behind it.
        match catch_unwind(AssertUnwindSafe(|| map(result))) {
            Ok(item) => promise.keep(item),
            Err(payload) => {
                foreign::discard(payload);
                tracing::error!("a closure of a completion panicked; its queue gets nothing");
            }
        }
    }
}
