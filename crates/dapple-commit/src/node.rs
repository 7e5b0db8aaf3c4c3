//! The driver of a machine: a thread that takes inputs, writes the log, and gives packets to the
//! courier.
//!
//! It is a thread and not a task, because it waits for the disk and calls the user's resource,
//! which may block as well. All inputs that arrive meanwhile are written together, with one wait
//! for the disk. In a simulation it is a task, see `task`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use dapple_sched::environment;
use dapple_sched::foreign::KeptWaker;
use dapple_tower::switch::{Condvar, JoinHandle, Mutex, lock, spawn_thread, this_thread, wait_for};

use super::Packet;
use super::courier::Outbox;
use super::log::{Storage, WriteError};
use super::machine::{Machine, Output};

/// A machine with its surroundings.
pub(super) trait Role: Send + 'static {
    type Machine: Machine;
    /// The requests of callers.
    type Call: Send;

    fn machine(&mut self) -> &mut Self::Machine;
    fn call(&mut self, now: Duration, call: Self::Call);
    /// Does any action other than sending or writing.
    fn act(&mut self, now: Duration, output: Output);
    /// The log cannot be written any more, and no call will be answered.
    fn fail(&mut self, error: &Arc<io::Error>);
}

pub(super) enum Input<C> {
    Packet(Packet),
    Call(C),
}

pub(super) type Inputs<C> = VecDeque<Input<C>>;

pub(super) struct Inbox<C> {
    inputs: Inputs<C>,
    state: Running,
    /// Of a node that is a task and waits.
    pub(super) waker: Option<KeptWaker>,
}

impl<C> Inbox<C> {
    /// The new inputs, empty if a timer is due; `None` when the node should stop. If it is not ready, the node waits.
    pub(super) fn next(&mut self, is_due: bool) -> Poll<Option<Inputs<C>>> {
        if !self.inputs.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.inputs)));
        }
        if matches!(self.state, Running::Stopping) {
            return Poll::Ready(None);
        }
        if is_due { Poll::Ready(Some(Inputs::new())) } else { Poll::Pending }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Running {
    Yes,
    Stopping,
    Failed(Arc<io::Error>),
}

pub(super) struct Shared<C> {
    pub(super) inbox: Mutex<Inbox<C>>,
    changed: Condvar,
}

/// A handle to the thread; its drop stops the thread and waits for it. A task it only stops.
pub(super) struct Node<C: Send + 'static> {
    shared: Arc<Shared<C>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why an input was not taken.
pub(super) enum NotTaken {
    /// This many wait.
    Full(usize),
    Failed(Arc<io::Error>),
    /// All handles were dropped.
    Gone,
}

impl<C: Send + 'static> Node<C> {
    pub(super) fn start<R, S>(name: String, role: R, storage: S, outbox: Arc<Outbox>) -> io::Result<Node<C>>
    where
        R: Role<Call = C>,
        S: Storage,
    {
        let inbox = Inbox { inputs: VecDeque::new(), state: Running::Yes, waker: None };
        let shared = Arc::new(Shared { inbox: Mutex::new(inbox), changed: Condvar::new() });
        let engine = Engine { shared: shared.clone(), role, storage, outbox, start: environment::now() };
        if environment::is_simulated() {
            let _detached = dapple_sched::spawn(engine.drive());
            return Ok(Node { shared, thread: Mutex::new(None) });
        }
        let thread = spawn_thread(name, move || engine.run())?;
        Ok(Node { shared, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn packet(&self, packet: Packet) -> Result<(), NotTaken> {
        self.push(Input::Packet(packet))
    }

    pub(super) fn call(&self, call: C) -> Result<(), NotTaken> {
        self.push(Input::Call(call))
    }

    /// The error that stopped it, if one did.
    pub(super) fn error(&self) -> Option<Arc<io::Error>> {
        match &lock(&self.shared.inbox).state {
            Running::Failed(error) => Some(error.clone()),
            _ => None,
        }
    }

    fn push(&self, input: Input<C>) -> Result<(), NotTaken> {
        let waker = {
            let mut inbox = lock(&self.shared.inbox);
            if let Running::Failed(error) = &inbox.state {
                return Err(NotTaken::Failed(error.clone()));
            }
            if inbox.inputs.len() >= INPUTS_MAX {
                return Err(NotTaken::Full(inbox.inputs.len()));
            }
            inbox.inputs.push_back(input);
            self.shared.changed.notify_one();
            inbox.waker.take()
        };
        waker.into_iter().for_each(KeptWaker::wake);
        Ok(())
    }
}

impl<C: Send + 'static> Drop for Node<C> {
    fn drop(&mut self) {
        let waker = {
            let mut inbox = lock(&self.shared.inbox);
            if matches!(inbox.state, Running::Yes) {
                inbox.state = Running::Stopping;
            }
            self.shared.changed.notify_one();
            inbox.waker.take()
        };
        waker.into_iter().for_each(KeptWaker::wake);
        let thread = lock(&self.thread).take();
        // A resource may have the last handle to its own node.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != this_thread()) {
            let _panicked = thread.join();
        }
    }
}

impl<C> Shared<C> {
    /// Takes no more inputs, and drops the waiting ones, which tells their callers.
    pub(super) fn fail(&self, error: &Arc<io::Error>) {
        let dropped = {
            let mut inbox = lock(&self.inbox);
            inbox.state = Running::Failed(error.clone());
            std::mem::take(&mut inbox.inputs)
        };
        drop(dropped);
    }

    pub(super) fn fail_by_panic(&self) {
        tracing::error!("a node of two-phase commit has stopped: its resource panicked");
        self.fail(&Arc::new(io::Error::other("its resource panicked; open it again when that is fixed")));
    }
}

/// Reports a panic of the user's resource that ends the thread.
struct Panics<C>(Arc<Shared<C>>);

impl<C> Drop for Panics<C> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail_by_panic();
        }
    }
}

pub(super) struct Engine<R: Role, S> {
    pub(super) shared: Arc<Shared<R::Call>>,
    pub(super) role: R,
    storage: S,
    pub(super) outbox: Arc<Outbox>,
    pub(super) start: Instant,
}

impl<R: Role, S: Storage> Engine<R, S> {
    fn run(mut self) {
        let end = self.outbox.clone().end_when_dropped();
        let panics = Panics(self.shared.clone());
        let mut next = Some(Inputs::new());
        while let Some(inputs) = next
            && self.step(inputs)
        {
            next = self.wait();
        }
        drop((panics, end));
    }

    /// Handles these inputs and what is due. The first step has no inputs, and does what recovery left to do.
    /// False if the log cannot be written, which stops the node.
    pub(super) fn step(&mut self, inputs: Inputs<R::Call>) -> bool {
        let Err(error) = self.round(inputs) else { return true };
        tracing::error!(%error, "a node of two-phase commit has stopped: its log cannot be written");
        let error = Arc::new(error);
        self.shared.fail(&error);
        self.role.fail(&error);
        false
    }

    fn now(&self) -> Duration {
        environment::now() - self.start
    }

    /// Waits for [`Inbox::next`].
    fn wait(&mut self) -> Option<Inputs<R::Call>> {
        let due = self.role.machine().due();
        let shared = self.shared.clone();
        let mut inbox = lock(&shared.inbox);
        loop {
            let rest = due.map(|due| due.saturating_sub(self.now()));
            if let Poll::Ready(next) = inbox.next(rest == Some(Duration::ZERO)) {
                return next;
            }
            inbox = wait_for(&shared.changed, inbox, rest);
        }
    }

    fn round(&mut self, inputs: Inputs<R::Call>) -> io::Result<()> {
        let now = self.now();
        for input in inputs {
            match input {
                Input::Packet(packet) => self.role.machine().receive(now, packet),
                Input::Call(call) => self.role.call(now, call),
            }
        }
        if self.role.machine().due().is_some_and(|due| due <= now) {
            self.role.machine().tick(now);
        }
        self.outputs()?;
        if self.storage.is_long() {
            let records = self.role.machine().snapshot();
            match self.storage.replace(&records) {
                Ok(()) => {}
                Err(WriteError::Full(error)) => {
                    tracing::warn!(%error, "a log of two-phase commit cannot be compacted now");
                }
                Err(WriteError::Broken(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Performs actions until there are none. The machine wants actions that depend on a durable
    /// record only after `written`, so one `sync` covers everything to write now.
    fn outputs(&mut self) -> io::Result<()> {
        loop {
            let (mut written, mut wants_sync) = (Vec::new(), false);
            while let Some(output) = self.role.machine().next_output() {
                match output {
                    Output::Send(packet) => self.outbox.push(packet),
                    Output::Write { record, sync } => match self.storage.append(&record) {
                        Ok(()) => {
                            written.push(record);
                            wants_sync |= sync;
                        }
                        Err(WriteError::Full(error)) => {
                            let now = self.now();
                            self.role.machine().written(now, &record, Err(error.to_string().into()));
                        }
                        Err(WriteError::Broken(error)) => return Err(error),
                    },
                    other => {
                        let now = self.now();
                        self.role.act(now, other);
                    }
                }
            }
            if written.is_empty() {
                return Ok(());
            }
            if wants_sync {
                self.storage.sync()?;
            }
            let now = self.now();
            written.iter().for_each(|record| self.role.machine().written(now, record, Ok(())));
        }
    }
}

/// The limit of packets and calls that wait for the thread. More are refused; nodes that need a
/// packet send it again.
const INPUTS_MAX: usize = 4096;
