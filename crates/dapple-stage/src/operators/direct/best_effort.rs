//! Best effort: one way, without waiting; messages that find no room are lost.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use dapple_tower::middleware::shedding;
use pin_project_lite::pin_project;
use tower_service::Service;

use dapple_sync::sync::limit::{Limit, Permit};

/// Sends without waiting and without a reply. It counts a message as lost if the sink has no room
/// or fails.
///
/// | when | then |
/// |---|---|
/// | the sink is not ready | the message is lost at once, without a wait |
/// | the sink refuses, fails or dies | the message is lost |
/// | a message is sent twice | never |
///
/// The best-effort operator of Gribble's direct composition (4.2). Clones count together; a call
/// costs the same as the sink's call.
///
/// ```
/// use dapple_stage::operators::direct::BestEffort;
/// use tower::{ServiceExt, service_fn};
///
/// let only_even = service_fn(async |n: u32| if n % 2 == 0 { Ok(()) } else { Err("odd") });
/// let sink = BestEffort::new(only_even);
/// for n in 0..5 {
///     dapple_sched::block_on(sink.clone().oneshot(n)).unwrap();
/// }
/// assert_eq!((sink.delivered(), sink.lost()), (3, 2));
/// ```
#[derive(Clone)]
pub struct BestEffort<S> {
    sink: S,
    counts: Arc<Counts>,
    under_way: Limit,
}

#[derive(Default)]
struct Counts {
    delivered: AtomicU64,
    lost: AtomicU64,
}

impl<S> BestEffort<S> {
    /// Sends to `sink`.
    pub fn new(sink: S) -> BestEffort<S> {
        BestEffort { sink, counts: Arc::default(), under_way: Limit::new(UNDER_WAY_MAX) }
    }

    /// The number of messages that the sink answered without an error.
    pub fn delivered(&self) -> u64 {
        self.counts.delivered.load(Ordering::Relaxed)
    }

    /// The number of lost messages: no room, failed, or dropped.
    pub fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }

    /// Sends from a new task on the current Dapple runtime, so that there is nothing to await.
    /// Returns whether it was started: a message is lost beyond 1,024 at once, or without a
    /// runtime.
    pub fn post<M>(&mut self, message: M) -> bool
    where
        S: Service<M>,
        S::Future: Send + 'static,
        S::Response: 'static,
        S::Error: 'static,
    {
        let handle = dapple_sched::Handle::try_current();
        let place = self.under_way.try_acquire();
        let (Some(handle), Some(place)) = (handle, place) else {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        let sending = self.call(message);
        let is_under_way = sending.future.is_some();
        drop(handle.spawn(with(place, sending)));
        is_under_way
    }
}

async fn with<F: Future>(place: Permit, future: F) {
    let _place = place;
    future.await;
}

impl<S, M> Service<M> for BestEffort<S>
where
    S: Service<M>,
{
    type Response = ();
    type Error = Infallible;
    type Future = Sending<S::Future>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, message: M) -> Self::Future {
        let mut cx = Context::from_waker(Waker::noop());
        // Not in a waiting line: no task would take a place that is granted there.
        let (polled, _) = shedding::ask(|| self.sink.poll_ready(&mut cx));
        let is_ready = matches!(polled, Poll::Ready(Ok(())));
        let future = is_ready.then(|| self.sink.call(message));
        Sending { future, end: End { counts: Some(self.counts.clone()) } }
    }
}

impl<S: fmt::Debug> fmt::Debug for BestEffort<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("BestEffort");
        text.field("sink", &self.sink).field("delivered", &self.delivered()).field("lost", &self.lost()).finish()
    }
}

pin_project! {
    /// A message in transit. If it is dropped before it resolves, it counts as lost; whether the
    /// sink has it is unknown.
    #[must_use = "a message proceeds only while it is awaited"]
    pub struct Sending<F> {
        #[pin]
        future: Option<F>,
        end: End,
    }
}

impl<T, E, F: Future<Output = Result<T, E>>> Future for Sending<F> {
    type Output = Result<(), Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let is_delivered = match this.future.as_pin_mut() {
            None => false,
            Some(future) => match future.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result.is_ok(),
            },
        };
        this.end.count(is_delivered);
        Poll::Ready(Ok(()))
    }
}

impl<F> fmt::Debug for Sending<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sending")
    }
}

/// Counts once.
struct End {
    counts: Option<Arc<Counts>>,
}

impl End {
    fn count(&mut self, is_delivered: bool) {
        if let Some(counts) = self.counts.take() {
            let count = if is_delivered { &counts.delivered } else { &counts.lost };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.count(false);
    }
}

/// The limit for posted messages in flight.
const UNDER_WAY_MAX: usize = 1024;
