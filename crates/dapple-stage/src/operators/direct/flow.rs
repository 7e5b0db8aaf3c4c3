//! Flow control: no more messages in flight than the receiver allows.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::operators::credits::Claim;
use dapple_sync::sync::limit::{Limit, Permit};

/// Keeps at most a window of messages unanswered, so that a slow receiver slows its senders down
/// instead of being flooded.
///
/// `poll_ready` waits for a place in the window and then for the sink. Senders get places in the
/// order in which they asked. All clones share the window. A receiver can set the window's size
/// with its responses ([`granted_by`](FlowControlled::granted_by)).
///
/// | when | then |
/// |---|---|
/// | the window is full | senders wait; no message is lost or queued here |
/// | the receiver fails a message | its sender gets the error, and its place is free |
/// | a sender gives up | its permit, or its position in the queue, goes to the next |
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
    /// Sends to `sink`, with at most `window` messages unanswered. A window of 0 waits until it is
    /// changed.
    pub fn new(sink: S, window: usize) -> FlowControlled<S, R> {
        FlowControlled { sink, claim: Claim::new(Limit::new(window)), grants: None }
    }

    /// Lets `grant` read the new window size from each response; `None` leaves it unchanged. A
    /// grant of 0 counts as 1, because no later response could raise it.
    pub fn granted_by(mut self, grant: impl Fn(&R) -> Option<usize> + Send + Sync + 'static) -> FlowControlled<S, R> {
        self.grants = Some(Arc::new(grant));
        self
    }

    /// The window, for reading and changing.
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
    /// If `poll_ready` was not ready.
    fn call(&mut self, message: M) -> Self::Future {
        let credit = self.claim.take().expect("await `poll_ready` before each `call`");
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

/// The number of messages that may be unanswered; see [`FlowControlled::window`].
#[derive(Clone)]
pub struct Window(Limit);

impl Window {
    /// The size of the window.
    #[allow(clippy::len_without_is_empty, reason = "a window is not a container")]
    pub fn len(&self) -> usize {
        self.0.max()
    }

    /// The places in use, including messages about to be sent.
    pub fn in_use(&self) -> usize {
        self.0.used()
    }

    /// Changes the size. Messages in flight continue.
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
    /// A message in the window. Dropping it frees its place; the sink decides about the message.
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
