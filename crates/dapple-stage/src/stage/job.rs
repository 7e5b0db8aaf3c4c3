//! A request inside a stage, and the destination of its result.

use std::task::{Context, Poll};
use std::time::Instant;

use dapple_sched::Color;
use dapple_sync::sync::oneshot;

use super::core::drop_quietly;
use super::error::StageError;
use crate::Refused;

/// The drop callback of a request.
pub(crate) type DropCallback<Req> = Box<dyn FnOnce(Req, &Refused) + Send>;

/// An entry in the queue of a stage.
pub(crate) struct Job<Req, Resp, E> {
    pub(crate) request: Req,
    pub(crate) reply: Reply<Resp, E>,
    /// `None` for a new color.
    pub(crate) color: Option<Color>,
    pub(crate) arrived: Instant,
    pub(crate) on_drop: Option<DropCallback<Req>>,
}

/// The destination of a result.
pub(crate) enum Reply<Resp, E> {
    /// None: the result is dropped.
    Dropped,
    /// The caller that awaits the response.
    Caller(oneshot::Sender<Result<Resp, StageError<E>>>),
    /// Another consumer, such as the next stage of a pipeline.
    Outlet(Box<dyn Outlet<Resp, E>>),
}

/// Consumes results.
pub(crate) trait Outlet<Resp, E>: Send {
    /// Ready when nothing waits for the result any more.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready when it can take a response. Until then the request keeps its place in service:
    /// back-pressure.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Takes the result.
    fn put(self: Box<Self>, result: Result<Resp, StageError<E>>);
}

impl<Resp, E> Reply<Resp, E> {
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Reply::Dropped => Poll::Pending,
            Reply::Caller(tx) => tx.poll_closed(cx),
            Reply::Outlet(outlet) => outlet.poll_closed(cx),
        }
    }

    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Reply::Dropped | Reply::Caller(_) => Poll::Ready(()),
            Reply::Outlet(outlet) => outlet.poll_room(cx),
        }
    }

    /// Never panics, even if dropping the result does: the caller has more to do.
    pub(crate) fn put(self, result: Result<Resp, StageError<E>>) {
        match self {
            Reply::Dropped => drop_quietly(result),
            // A caller that stopped waiting does not want it.
            Reply::Caller(tx) => drop_quietly(tx.send(result)),
            Reply::Outlet(outlet) => outlet.put(result),
        }
    }
}
