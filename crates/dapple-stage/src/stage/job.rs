//! A request on its way through a stage, and where its result goes.

use std::task::{Context, Poll};
use std::time::Instant;

use dapple_sched::Color;
use dapple_sync::sync::oneshot;

use super::core::drop_quietly;
use super::error::StageError;
use crate::Refused;

/// What runs instead of a request.
pub(crate) type DropCallback<Req> = Box<dyn FnOnce(Req, &Refused) + Send>;

/// What waits in the queue of a stage.
pub(crate) struct Job<Req, Resp, E> {
    pub(crate) request: Req,
    pub(crate) reply: Reply<Resp, E>,
    /// `None` for one of its own.
    pub(crate) color: Option<Color>,
    pub(crate) arrived: Instant,
    pub(crate) on_drop: Option<DropCallback<Req>>,
}

/// Where the result of a request goes.
pub(crate) enum Reply<Resp, E> {
    /// Nobody waits for it.
    Nobody,
    /// To who awaits the response.
    Caller(oneshot::Sender<Result<Resp, StageError<E>>>),
    /// On to something else, such as the next stage of a pipeline.
    Outlet(Box<dyn Outlet<Resp, E>>),
}

/// Takes results on.
pub(crate) trait Outlet<Resp, E>: Send {
    /// Ready when nobody waits any more for what comes out of it.
    fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ready when it can take a response. Until then the stage's place in service stays in use: back-pressure.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Takes the result.
    fn put(self: Box<Self>, result: Result<Resp, StageError<E>>);
}

impl<Resp, E> Reply<Resp, E> {
    pub(crate) fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Reply::Nobody => Poll::Pending,
            Reply::Caller(tx) => tx.poll_closed(cx),
            Reply::Outlet(outlet) => outlet.poll_closed(cx),
        }
    }

    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Reply::Nobody | Reply::Caller(_) => Poll::Ready(()),
            Reply::Outlet(outlet) => outlet.poll_room(cx),
        }
    }

    /// Never panics: who calls this has more to do, whatever the result does when it is dropped.
    pub(crate) fn put(self, result: Result<Resp, StageError<E>>) {
        match self {
            Reply::Nobody => drop_quietly(result),
            // Who has stopped waiting does not want it.
            Reply::Caller(tx) => drop_quietly(tx.send(result)),
            Reply::Outlet(outlet) => outlet.put(result),
        }
    }
}
