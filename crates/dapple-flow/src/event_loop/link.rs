//! The state that a loop's thread, its handles and the runtime share.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::Instant;

use dapple_sched::foreign::{self, KeptWaker};
use dapple_sched::{Callback, Handle};
use dapple_sync::sync::limit::{Turn, Turns};
use rustix::event::{EventfdFlags, eventfd};

use super::inbox::{Asked, Inbox, Reply};
use super::{AskError, EventLoop, LoopError};
use crate::lock::{Mutex, wait_timeout};
use dapple_io::companion::{Awaiting, Companion};
use dapple_sync::sync::oneshot;

/// See the [module](super).
pub(super) struct Link<Q, A: Send + 'static> {
    /// Readable while requests wait or the loop should stop. Written and read under the lock.
    news: OwnedFd,
    state: Mutex<State<Q, A>>,
    /// Notified when the loop's thread has finished.
    over: Condvar,
}

pub(super) struct State<Q, A: Send + 'static> {
    queue: VecDeque<Asked<Q, A>>,
    turns: Turns,
    is_stopping: bool,
    /// The reason for no more answers.
    end: Option<LoopError>,
    /// Responders with replies that were dropped during a panic, kept until the panic's message is
    /// known.
    orphans: Vec<Responder<A>>,
    thread: Option<ThreadId>,
}

/// The recipient of an answer.
pub(super) enum Responder<A> {
    Task(oneshot::Sender<Result<A, LoopError>>),
    Callback(Callback<Result<A, LoopError>>),
}

impl<A: Send + 'static> Responder<A> {
    pub(super) fn respond(self, answer: Result<A, LoopError>) {
        match self {
            // An error: the task was canceled.
            Responder::Task(sender) => drop(sender.send(answer)),
            Responder::Callback(callback) => callback.call(answer),
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Link<Q, A> {
    pub(super) fn new(inbox_max: usize) -> io::Result<Self> {
        Ok(Link {
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                turns: Turns::new(inbox_max),
                is_stopping: false,
                end: None,
                orphans: Vec::new(),
                thread: None,
            }),
            over: Condvar::new(),
        })
    }

    pub(super) fn news(&self) -> &OwnedFd {
        &self.news
    }

    /// Hands a request over, if there is room.
    pub(super) fn try_push(self: &Arc<Self>, request: Q, responder: Responder<A>) -> Result<(), AskError<Q>> {
        let mut state = self.state.lock();
        if state.end.is_some() || state.is_stopping {
            return Err(AskError::Over(request));
        }
        if !state.turns.try_take() {
            return Err(AskError::Full(request));
        }
        self.push(&mut state, request, responder);
        Ok(())
    }

    /// Takes room for a request, or keeps the waker until there is some. An error: there will be
    /// none.
    pub(super) fn poll_room(&self, turn: &mut Turn, waker: &Waker) -> Poll<Result<(), LoopError>> {
        let waker = KeptWaker::from(waker);
        let mut state = self.state.lock();
        let (poll, wakers) = state.turns.poll_take(turn, waker);
        let end = state.end.clone();
        drop(state);
        wakers.run();
        poll.map_err(|_| end.unwrap_or(LoopError::Ended))
    }

    /// Hands over a request that has room; the loop may have ended meanwhile.
    pub(super) fn push_taken(self: &Arc<Self>, request: Q, responder: Responder<A>) {
        let mut state = self.state.lock();
        match state.end.clone() {
            None => self.push(&mut state, request, responder),
            Some(end) => {
                drop(state);
                responder.respond(Err(end));
            }
        }
    }

    fn push(self: &Arc<Self>, state: &mut State<Q, A>, request: Q, responder: Responder<A>) {
        // A clock that stands still must wait for the answer.
        let reply = Reply::new(self.clone(), responder, Awaiting::begin());
        state.queue.push_back(Asked { request, reply });
        self.tell();
    }

    pub(super) fn leave(&self, turn: &mut Turn) {
        let wakers = self.state.lock().turns.leave(turn);
        wakers.run();
    }

    /// Takes the oldest request.
    pub(super) fn take_next(&self) -> Option<Asked<Q, A>> {
        let mut state = self.state.lock();
        let asked = state.queue.pop_front()?;
        if state.queue.is_empty() && !state.is_stopping {
            // The descriptor was readable; this resets it.
            let _ = rustix::io::read(&self.news, &mut [0; 8]);
        }
        let wakers = state.turns.give_back(1);
        drop(state);
        wakers.run();
        Some(asked)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().end.is_some()
    }

    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        let wakers = state.turns.close();
        self.tell();
        drop(state);
        wakers.run();
    }

    /// Handles a reply dropped without an answer.
    pub(super) fn abandon(&self, responder: Responder<A>) {
        let mut state = self.state.lock();
        if thread::panicking() && state.end.is_none() && state.thread == Some(thread::current().id()) {
            return state.orphans.push(responder);
        }
        let end = state.end.clone();
        drop(state);
        responder.respond(Err(end.unwrap_or(LoopError::Unanswered)));
    }

    /// Ends the loop: all waiting tasks and callbacks get the error.
    fn finish(&self, end: LoopError) {
        let mut state = self.state.lock();
        state.end = Some(end.clone());
        let (queue, orphans) = (mem::take(&mut state.queue), mem::take(&mut state.orphans));
        let wakers = state.turns.close();
        drop(state);
        self.over.notify_all();
        orphans.into_iter().for_each(|responder| responder.respond(Err(end.clone())));
        // Dropped replies find the end set. This also drops the requests.
        queue.into_iter().for_each(|asked| _ = foreign::contain(|| drop(asked)));
        wakers.run();
    }

    fn tell(&self) {
        // A full counter is readable already.
        let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
    }
}

/// Runs the loop on a new thread.
pub(super) fn start_thread<L: EventLoop>(
    name: &str,
    link: Arc<Link<L::Request, L::Answer>>,
    event_loop: L,
) -> io::Result<()> {
    let runtime = Handle::current();
    let body = {
        let link = link.clone();
        move || {
            let _entered = runtime.enter();
            link.state.lock().thread = Some(thread::current().id());
            let inbox = Inbox::new(link.clone());
            let end = match catch_unwind(AssertUnwindSafe(|| event_loop.run(inbox))) {
                Ok(()) => LoopError::Ended,
                Err(payload) => LoopError::Panicked(foreign::message(payload)),
            };
            link.finish(end);
        }
    };
    let started = thread::Builder::new().name(format!("dapple-loop-{name}")).spawn(body);
    if started.is_err() {
        link.finish(LoopError::Ended);
    }
    started.map(drop)
}

/// The handles of a loop: the drop of the last one stops the loop.
pub(super) struct Keeper<Q: Send + 'static, A: Send + 'static>(pub(super) Arc<Link<Q, A>>);

impl<Q: Send + 'static, A: Send + 'static> Drop for Keeper<Q, A> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl<Q: Send + 'static, A: Send + 'static> Companion for Link<Q, A> {
    fn stop(&self) {
        Link::stop(self);
    }

    fn await_end(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.end.is_none() {
            // REAL: a thread waits for another one.
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = wait_timeout(&self.over, state, left);
        }
        true
    }
}
