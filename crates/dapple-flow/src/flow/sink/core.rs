//! The requests of a sink, and the task that writes them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dapple_sched::Color;
use dapple_sched::foreign::KeptWaker;

use super::super::device::Writer;
use super::super::gate::Gate;
use super::Written;
use super::drain::Drain;
use crate::flow::completion::Completion;
use crate::lock::Mutex;
use dapple_sync::sync::limit::{Turn, Wakers};

/// A sink shared by its handles. Under the lock, no user code runs, no waker is invoked, and
/// nothing is dropped.
///
/// The states of the writer:
///
/// | state | the writer is | next state | when |
/// |---|---|---|---|
/// | idle | here | draining | a request is accepted, which starts the task |
/// | draining | with the task | idle | the task finds no request |
/// | | | closed | the task has executed a [`Job::Close`] |
/// | | | failed | the device fails; or the task is dropped at the runtime's shutdown |
/// | closed, failed | gone | | |
///
/// So a sink without requests has no task and costs nothing, and a shutdown waits, up to its
/// deadline, for sinks with requests.
pub(super) struct Core<W> {
    state: Mutex<State<W>>,
    /// The color of the task.
    color: Color,
}

struct State<W> {
    /// Counts requests from acceptance until their recipient has run; weighs the unwritten bytes.
    gate: Gate,
    pending: VecDeque<Request>,
    stage: SinkState<W>,
    /// No more requests are accepted. Never reset.
    is_closing: bool,
    handles: usize,
}

enum SinkState<W> {
    Idle(W),
    Draining,
    Closed,
    Failed(Failure),
}

/// The device's error. An `io::Error` cannot be cloned.
#[derive(Clone)]
pub(super) struct Failure {
    kind: io::ErrorKind,
    text: Arc<str>,
}

pub(super) struct Request {
    pub(super) job: Job,
    pub(super) to: Completion<Written>,
    /// Bytes written so far.
    pub(super) done: usize,
    /// Whether it counts at the gate.
    pub(super) counts: bool,
}

pub(super) enum Job {
    Write(Bytes),
    /// Done when everything before it is.
    Flush,
    /// Done when everything before it would survive a power failure.
    Sync,
    Close,
}

/// Why there is no room.
pub(super) enum NoRoom {
    Full,
    Closed,
    Failed(Failure),
}

/// Releases a request's count on drop.
pub(super) struct Counted<W: Writer>(Option<Arc<Core<W>>>);

impl Failure {
    pub(super) fn new(error: &io::Error) -> Self {
        Failure { kind: error.kind(), text: error.to_string().into() }
    }

    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.text.to_string())
    }
}

impl<W: Writer> Core<W> {
    pub(super) fn new(writer: W, color: Color, requests_max: usize, bytes_max: usize) -> Arc<Self> {
        let state = State {
            gate: Gate::new(requests_max, bytes_max),
            pending: VecDeque::new(),
            stage: SinkState::Idle(writer),
            is_closing: false,
            handles: 1,
        };
        Arc::new(Core { state: Mutex::new(state), color })
    }

    pub(super) fn set_max(&self, requests_max: usize, bytes_max: usize) {
        let after = self.state.lock().gate.set_max(requests_max, bytes_max);
        after.run();
    }

    /// Waiting requests and bytes.
    pub(super) fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.gate.count(), state.gate.weight())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().no_more().is_some()
    }

    /// Takes room for one request.
    pub(super) fn try_room(&self) -> Result<(), NoRoom> {
        let mut state = self.state.lock();
        match state.no_more() {
            Some(reason) => Err(reason),
            None if state.gate.try_take() => Ok(()),
            None => Err(NoRoom::Full),
        }
    }

    /// Takes room for one request, or waits for it.
    pub(super) fn poll_room(&self, turn: &mut Turn, cx: &Context<'_>) -> Poll<Result<(), NoRoom>> {
        if !turn.is_some() {
            match self.try_room() {
                Err(NoRoom::Full) => {}
                done => return Poll::Ready(done),
            }
        }
        let waker = KeptWaker::from(cx.waker());
        let mut state = self.state.lock();
        let (poll, after) = match state.no_more() {
            Some(reason) => (Poll::Ready(Err(reason)), state.gate.leave(turn)),
            None => {
                let (poll, after) = state.gate.poll_take(turn, waker);
                // The gate closes together with the sink, so the sink has a reason to return.
                (poll.map_err(|()| NoRoom::Closed), after)
            }
        };
        drop(state);
        after.run();
        poll
    }

    pub(super) fn take_more(&self, max: usize) -> usize {
        self.state.lock().gate.take_more(max)
    }

    pub(super) fn forget_room(&self, turn: &mut Turn) {
        if turn.is_some() {
            let after = self.state.lock().gate.leave(turn);
            after.run();
        }
    }

    pub(super) fn return_room(&self, count: usize) {
        if count > 0 {
            let after = self.state.lock().gate.give_back(count, 0);
            after.run();
        }
    }

    /// Accepts a request that has room. If the sink has ended meanwhile, the recipient gets that
    /// error.
    pub(super) fn accept(self: &Arc<Self>, job: Job, to: Completion<Written>) {
        let request = Request { job, to, done: 0, counts: true };
        let mut state = self.state.lock();
        if let Some(reason) = state.no_more() {
            drop(state);
            self.complete(request, Err(reason.error()), false);
            return;
        }
        let after = match &request.job {
            Job::Write(bytes) => state.gate.add_weight(bytes.len()),
            _ => Wakers::default(),
        };
        state.pending.push_back(request);
        let writer = state.begin();
        drop(state);
        after.run();
        self.start(writer);
    }

    /// Accepts no more requests, and closes the device after the waiting ones. Waiters for room get
    /// an error.
    pub(super) fn close(self: &Arc<Self>, to: Completion<Written>) {
        let request = Request { job: Job::Close, to, done: 0, counts: false };
        let mut state = self.state.lock();
        let result = match &state.stage {
            SinkState::Closed => Ok(()),
            SinkState::Failed(failure) => Err(failure.error()),
            SinkState::Idle(_) | SinkState::Draining => {
                state.is_closing = true;
                state.pending.push_back(request);
                let writer = state.begin();
                let after = state.gate.close();
                drop(state);
                after.run();
                self.start(writer);
                return;
            }
        };
        drop(state);
        self.complete(request, result, false);
    }

    pub(super) fn add_handle(&self) {
        self.state.lock().handles += 1;
    }

    pub(super) fn drop_handle(self: &Arc<Self>) {
        let is_last = {
            let mut state = self.state.lock();
            state.handles -= 1;
            state.handles == 0 && !state.is_closing
        };
        if is_last {
            self.close(Completion::none());
        }
    }

    fn start(self: &Arc<Self>, writer: Option<W>) {
        if let Some(writer) = writer {
            // Detached: it ends when there is nothing to write. On a runtime that has shut down it
            // is dropped at once, and reports the errors.
            drop(self.color.spawn(Drain::new(self.clone(), writer)));
        }
    }

    /// The next requests for the task. False if the task has ended, and the writer is back here.
    pub(super) fn next(&self, batch: &mut VecDeque<Request>, writer: &mut Option<W>) -> bool {
        let mut state = self.state.lock();
        let count = state.pending.len().min(BATCH_MAX);
        batch.extend(state.pending.drain(..count));
        if count == 0 {
            let writer = writer.take().expect("the task has the writer until it ends");
            state.stage = SinkState::Idle(writer);
            state.pending.shrink_to(BATCH_MAX);
        }
        count > 0
    }

    /// The device is closed or has failed. Later requests get the error.
    pub(super) fn end(self: &Arc<Self>, failure: Option<Failure>, mut batch: VecDeque<Request>) {
        let mut state = self.state.lock();
        state.is_closing = true;
        batch.append(&mut state.pending);
        state.stage = match failure.clone() {
            Some(failure) => SinkState::Failed(failure),
            None => SinkState::Closed,
        };
        let after = state.gate.close();
        drop(state);
        after.run();
        for request in batch {
            let result = match (&failure, &request.job) {
                (None, Job::Close) => Ok(()),
                (None, _) => Err(NoRoom::Closed.error()),
                (Some(failure), _) => Err(failure.error()),
            };
            self.complete(request, result, true);
        }
    }

    /// Reports the result. `weighs`: the bytes of the request still count.
    pub(super) fn complete(self: &Arc<Self>, request: Request, result: io::Result<()>, weighs: bool) {
        let weight = match &request.job {
            Job::Write(bytes) if weighs => bytes.len(),
            _ => 0,
        };
        if weight > 0 {
            let after = self.state.lock().gate.give_back(0, weight);
            after.run();
        }
        let counted = Counted(request.counts.then(|| self.clone()));
        request.to.deliver(Written { count: request.done, result }, counted);
    }
}

impl<W> State<W> {
    /// The reason for accepting no request.
    fn no_more(&self) -> Option<NoRoom> {
        match &self.stage {
            SinkState::Failed(failure) => Some(NoRoom::Failed(failure.clone())),
            _ => self.is_closing.then_some(NoRoom::Closed),
        }
    }

    /// The writer for a task, if none runs yet.
    fn begin(&mut self) -> Option<W> {
        match std::mem::replace(&mut self.stage, SinkState::Draining) {
            SinkState::Idle(writer) => Some(writer),
            other => {
                self.stage = other;
                None
            }
        }
    }
}

impl NoRoom {
    pub(super) fn error(&self) -> io::Error {
        match self {
            NoRoom::Full => io::Error::new(io::ErrorKind::WouldBlock, "the sink is full"),
            NoRoom::Closed => io::Error::new(io::ErrorKind::BrokenPipe, "the sink is closed"),
            NoRoom::Failed(failure) => failure.error(),
        }
    }
}

impl<W: Writer> Drop for Counted<W> {
    fn drop(&mut self) {
        if let Some(core) = &self.0 {
            core.return_room(1);
        }
    }
}

/// The most requests handled together.
const BATCH_MAX: usize = 64;
