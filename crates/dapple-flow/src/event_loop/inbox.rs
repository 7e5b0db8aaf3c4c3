//! The loop's end: taking requests, and answering them.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::LoopError;
use super::link::{Link, Responder};
use dapple_io::companion::Awaiting;

/// Where an [`EventLoop`](super::EventLoop) finds what it is asked for.
///
/// As a descriptor ([`AsFd`]) it is readable as long as requests wait or the loop is to stop: to be polled together with
/// the loop's own descriptors, level- or edge-triggered, and never to be read from.
pub struct Inbox<Q: Send + 'static, A: Send + 'static> {
    link: Arc<Link<Q, A>>,
}

impl<Q: Send + 'static, A: Send + 'static> Inbox<Q, A> {
    pub(super) fn new(link: Arc<Link<Q, A>>) -> Self {
        Inbox { link }
    }

    /// The request that has waited longest, if there is one. Also after it was told to stop, for a loop that answers what
    /// it was asked before.
    pub fn try_next(&self) -> Option<Asked<Q, A>> {
        self.link.take_next()
    }

    /// Whether the loop is to end: [`run`](super::EventLoop::run) should return soon.
    pub fn is_stopping(&self) -> bool {
        self.link.is_stopping()
    }

    /// Waits until requests wait or the loop is to stop, `limit` at most; for loops that wait for nothing else. Blocks the
    /// calling thread, and may return for no reason.
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

/// A request, and where its answer goes.
#[non_exhaustive]
pub struct Asked<Q, A: Send + 'static> {
    /// What is asked for.
    pub request: Q,
    /// To be kept until there is an answer.
    pub reply: Reply<A>,
}

impl<Q: fmt::Debug, A: Send + 'static> fmt::Debug for Asked<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").field("request", &self.request).finish_non_exhaustive()
    }
}

/// Where an answer goes. Dropped without one, it tells who waits that there will be none.
pub struct Reply<A: Send + 'static> {
    /// `None` once it was sent.
    responder: Option<Responder<A>>,
    origin: Arc<dyn Origin<A>>,
    awaiting: Option<Awaiting>,
}

/// The link that a reply came from.
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

    /// Gives the answer: wakes the task that waits, or posts to the callback's color. Any thread.
    pub fn send(mut self, answer: A) {
        self.respond(Ok(answer));
    }

    /// Whether somebody still waits: a task that was canceled does not. Of a callback nobody can tell.
    pub fn is_awaited(&self) -> bool {
        !matches!(&self.responder, Some(Responder::Task(sender)) if sender.is_closed())
    }

    fn respond(&mut self, answer: Result<A, LoopError>) {
        if let Some(responder) = self.responder.take() {
            responder.respond(answer);
        }
        // After somebody has been made busy by the answer.
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
