//! The loop's end of the link: takes requests and answers them.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::LoopError;
use super::link::{Link, Responder};
use dapple_io::companion::Awaiting;

/// The requests for an [`EventLoop`](super::EventLoop).
///
/// As a descriptor ([`AsFd`]) it is readable while requests wait, or when the loop should stop.
/// Poll it together with the loop's own descriptors, level- or edge-triggered; never read from it.
pub struct Inbox<Q: Send + 'static, A: Send + 'static> {
    link: Arc<Link<Q, A>>,
}

impl<Q: Send + 'static, A: Send + 'static> Inbox<Q, A> {
    pub(super) fn new(link: Arc<Link<Q, A>>) -> Self {
        Inbox { link }
    }

    /// Takes the oldest request, if there is one. Also works after a stop, for a loop that answers
    /// its remaining requests.
    pub fn try_next(&self) -> Option<Asked<Q, A>> {
        self.link.take_next()
    }

    /// Whether the loop should end: [`run`](super::EventLoop::run) should return soon.
    pub fn is_stopping(&self) -> bool {
        self.link.is_stopping()
    }

    /// Waits until requests wait or the loop should stop, at most `limit`; for loops that wait for
    /// nothing else. Blocks the calling thread, and may return early.
    pub fn wait(&self, limit: Option<Duration>) {
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        // An error: interrupted by a signal.
        let _ = poll(&mut [PollFd::new(self, PollFlags::IN)], limit.as_ref());
    }
}

impl<Q: Send + 'static, A: Send + 'static> AsFd for Inbox<Q, A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.news().as_fd()
    }
}

impl<Q: Send + 'static, A: Send + 'static> fmt::Debug for Inbox<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("is_stopping", &self.is_stopping()).finish_non_exhaustive()
    }
}

/// A request and the way to answer it.
#[non_exhaustive]
pub struct Asked<Q, A: Send + 'static> {
    /// The request.
    pub request: Q,
    /// Keep it until there is an answer.
    pub reply: Reply<A>,
}

impl<Q: fmt::Debug, A: Send + 'static> fmt::Debug for Asked<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("request", &self.request).finish_non_exhaustive()
    }
}

/// The destination of an answer. If it is dropped without one, the waiting task or callback gets an
/// error.
pub struct Reply<A: Send + 'static> {
    /// `None` once it was sent.
    responder: Option<Responder<A>>,
    origin: Arc<dyn Origin<A>>,
    awaiting: Option<Awaiting>,
}

/// The link of a reply.
pub(super) trait Origin<A>: Send + Sync {
    fn abandon(&self, responder: Responder<A>);
}

impl<Q: Send + 'static, A: Send + 'static> Origin<A> for Link<Q, A> {
    fn abandon(&self, responder: Responder<A>) {
        Link::abandon(self, responder);
    }
}

impl<A: Send + 'static> Reply<A> {
    pub(super) fn new(origin: Arc<dyn Origin<A>>, responder: Responder<A>, awaiting: Awaiting) -> Self {
        Reply { responder: Some(responder), origin, awaiting: Some(awaiting) }
    }

    /// Sends the answer: wakes the waiting task, or posts to the callback's color. Works on any
    /// thread.
    pub fn send(mut self, answer: A) {
        self.respond(Ok(answer));
    }

    /// Whether the answer is still awaited: false after the task was canceled. Always true for a
    /// callback.
    pub fn is_awaited(&self) -> bool {
        !matches!(&self.responder, Some(Responder::Task(sender)) if sender.is_closed())
    }

    fn respond(&mut self, answer: Result<A, LoopError>) {
        if let Some(responder) = self.responder.take() {
            responder.respond(answer);
        }
        // After the answer has made a task or color runnable.
        self.awaiting = None;
    }
}

impl<A: Send + 'static> Drop for Reply<A> {
    fn drop(&mut self) {
        if let Some(responder) = self.responder.take() {
            self.origin.abandon(responder);
        }
    }
}

impl<A: Send + 'static> fmt::Debug for Reply<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("is_awaited", &self.is_awaited()).finish_non_exhaustive()
    }
}
