//! Not more than the receiver has given leave for.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::operators::credits::Claim;
use dapple_sync::sync::limit::{Limit, Permit};

/// Keeps at most a window of messages unanswered, so that a slow receiver slows its senders down instead of being swamped.
///
/// `poll_ready` waits for a place in the window and then for the sink; those who wait get places in the order in which they
/// asked. All clones share the window. A receiver may say with its responses how large the window is to be
/// ([`granted_by`](FlowControlled::granted_by)).
///
/// | when | then |
/// |---|---|
/// | the window is full | senders wait; nothing is lost, and nothing is queued here |
/// | the receiver fails a message | its sender is told, and its place is free |
/// | a sender gives up | its place, or its place in line, goes to the next |
///
/// The flow-controlled operator of Gribble's direct composition (4.2).
///
/// ```
/// use dapple_stage::operators::direct::FlowControlled;
/// use tower::{ServiceExt, service_fn};
///
/// // The receiver answers with how many it would have under way.
/// let receiver = service_fn(async |n: usize| Ok::<_, std::convert::Infallible>(n));
/// let sink = FlowControlled::new(receiver, 1).granted_by(|reply| Some(*reply));
/// assert_eq!(sink.window().len(), 1);
/// dapple_sched::block_on(sink.clone().oneshot(8))?;
/// assert_eq!(sink.window().len(), 8);
/// # Ok::<(), std::convert::Infallible>(())
/// ```
pub struct FlowControlled<S, R> {
    sink: S,
    claim: Claim,
    grants: Option<Grants<R>>,
}

type Grants<R> = Arc<dyn Fn(&R) -> Option<usize> + Send + Sync>;

impl<S, R> FlowControlled<S, R> {
    /// Sends to `sink`, with at most `window` messages unanswered. With a window of 0 it waits until that is changed.
    pub fn new(sink: S, window: usize) -> FlowControlled<S, R> {
        FlowControlled { sink, claim: Claim::new(Limit::new(window)), grants: None }
    }

    /// Has `grant` look at each response for how large the window is to be from now on; none leaves it as it is. A grant of
    /// 0 counts as 1: otherwise there would be no response any more to say something else.
    pub fn granted_by(mut self, grant: impl Fn(&R) -> Option<usize> + Send + Sync + 'static) -> FlowControlled<S, R> {
        self.grants = Some(Arc::new(grant));
        self
    }

    /// The window, to be looked at and changed.
    pub fn window(&self) -> Window {
        Window(self.claim.limit().clone())
    }
}

impl<S, M> Service<M> for FlowControlled<S, S::Response>
where
    S: Service<M>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Flowing<S::Future, S::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        ready!(self.claim.poll_ready(cx));
        self.sink.poll_ready(cx)
    }

    /// # Panics
    /// Unless `poll_ready` was ready.
    fn call(&mut self, message: M) -> Self::Future {
        let credit = self.claim.take().expect("`poll_ready` is to be awaited before each `call`");
        let window = self.claim.limit().clone();
        Flowing { future: self.sink.call(message), grants: self.grants.clone(), window, credit: Some(credit) }
    }
}

impl<S: Clone, R> Clone for FlowControlled<S, R> {
    fn clone(&self) -> FlowControlled<S, R> {
        FlowControlled { sink: self.sink.clone(), claim: self.claim.clone(), grants: self.grants.clone() }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for FlowControlled<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowControlled").field("sink", &self.sink).field("window", &self.window()).finish()
    }
}

/// How many messages may be unanswered: [`FlowControlled::window`].
#[derive(Clone)]
pub struct Window(Limit);

impl Window {
    /// How many may be unanswered.
    #[allow(clippy::len_without_is_empty, reason = "a window is not a container")]
    pub fn len(&self) -> usize {
        self.0.max()
    }

    /// How many are, with those that are about to be sent.
    pub fn in_use(&self) -> usize {
        self.0.used()
    }

    /// Changes how many may be. What is under way goes on.
    pub fn set(&self, len: usize) {
        self.0.set_max(len);
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("len", &self.len()).field("in_use", &self.in_use()).finish()
    }
}

pin_project! {
    /// A message in the window. Dropped, its place is free; what becomes of the message is the sink's affair.
    pub struct Flowing<F, R> {
        #[pin]
        future: F,
        grants: Option<Grants<R>>,
        window: Limit,
        credit: Option<Permit>,
    }
}

impl<R, E, F: Future<Output = Result<R, E>>> Future for Flowing<F, R> {
    type Output = Result<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<R, E>> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let granted = this.grants.as_ref().zip(result.as_ref().ok()).and_then(|(grant, response)| grant(response));
        if let Some(granted) = granted {
            this.window.set_max(granted.max(1));
        }
        this.credit.take();
        Poll::Ready(result)
    }
}

impl<F, R> fmt::Debug for Flowing<F, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flowing")
    }
}
