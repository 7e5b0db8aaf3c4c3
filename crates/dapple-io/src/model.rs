//! The parts of the driver for the models in `tests/`: one slot or two, threads that the model
//! steps, and a system that replaces the kernel.
//!
//! Compiled only with `--cfg dapple_loom`. That system orders nothing: at a system call loom tries
//! the other threads, and only the driver makes one thread's changes visible to another.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dapple_sched::{Driver, EnterGuard};
use loom::sync::atomic::AtomicUsize;
use loom::thread::{self, Thread};
use rustix::event::epoll::{Event, EventData, EventFlags};

use crate::Config;
use crate::driver::slot::Slot;
use crate::driver::{self, Direction, EpollDriver, Source, Step, Timer, WORKERS_MAX, clock, uring};

/// One worker of a driver, and the driver itself. The worker is a thread of the model.
#[derive(Clone)]
pub struct Model {
    worker: usize,
    runtime: dapple_sched::model::Model,
    driver: Arc<EpollDriver>,
}

impl Model {
    /// A driver of one worker, with a ring that gives the kernel at most `calls_max` calls at a time. An
    /// execution of a model makes one driver.
    pub fn new(calls_max: usize) -> Model {
        let [model] = Model::with_workers(calls_max);
        model
    }

    /// The workers of a driver, which share a reactor. Only the first may make calls on files.
    /// Sleepers block, as in [`Model::block_sleepers`].
    pub fn with_workers<const WORKERS: usize>(calls_max: usize) -> [Model; WORKERS] {
        CALLS.set(Some(Arc::new(AtomicUsize::new(0))));
        SYSTEM.take();
        TIME.set(START);
        let config = Config { file_calls_max: calls_max, ..Config::default() };
        let driver = EpollDriver::with_config(WORKERS, config).expect("a model has all that a driver needs");
        let runtime = dapple_sched::model::Model::new(WORKERS, driver.clone());
        SYSTEM.with_borrow_mut(|system| system.blocks_sleepers = WORKERS > 1);
        std::array::from_fn(|worker| Model { worker, runtime: runtime.clone(), driver: driver.clone() })
    }

    /// Makes the calling thread the worker.
    pub fn own(&self) {
        self.driver.attach(self.worker);
    }

    /// Enters the runtime on the calling thread, which thus finds the driver.
    pub fn enter(&self) -> EnterGuard {
        self.runtime.handle().enter()
    }

    /// For the worker: waits for events, timers or `unpark`, and dispatches.
    pub fn park(&self) {
        self.driver.park(self.worker, None);
    }

    /// For the worker: it is about to park, and it and all workers from number `active` on rest.
    pub fn rest(&self, active: usize) {
        self.driver.rest(self.worker, active);
    }

    /// Dispatches ready events, as the worker between two turns, as a thief, or as another worker
    /// that helps this one.
    pub fn poll(&self) -> bool {
        self.driver.poll(self.worker)
    }

    /// Makes the current or the next `park` return.
    pub fn unpark(&self) {
        self.driver.unpark(self.worker);
    }

    /// Lets time pass.
    pub fn pass_time(&self, time: Duration) {
        pass_time(time);
    }

    /// Number of timers that were not removed.
    pub fn timers(&self) -> usize {
        self.slot().timers().len()
    }

    /// Number of calls on files that the kernel has, and of those that wait for their turn.
    pub fn calls(&self) -> (usize, usize) {
        self.slot().ring().map_or((0, 0), uring::Ring::load)
    }

    /// The kernel completes the oldest call that it has; false if it has none.
    pub fn complete_call(&self) -> bool {
        system(|system| {
            let oldest = system.begun.pop_front();
            system.completed.extend(oldest.map(|data| (data, 0)));
            system.wake_sleepers();
            oldest.is_some()
        })
    }

    /// The same, once the kernel has a call.
    pub fn complete_next_call(&self) {
        while !self.complete_call() {
            sleep_on();
        }
    }

    /// Ends the driver, as a runtime does after its workers have stopped.
    pub fn shut_down(&self) {
        self.driver.shutdown();
    }

    /// From now on the kernel completes calls when it gets them.
    pub fn complete_at_once(&self) {
        system(|system| system.completes_at_once = true);
    }

    /// From now on a thread that sleeps in the kernel blocks instead of spinning: of three spinning
    /// threads, loom may let only two run, for ever. The kernel then orders the waking thread
    /// before the sleeper, so the model does not see if the driver fails to. So models of orders
    /// have sleepers that spin.
    pub fn block_sleepers(&self) {
        system(|system| system.blocks_sleepers = true);
    }

    /// Ends an execution, after all other threads. Nothing may be left.
    pub fn finish(self) {
        self.finish_with(|| ());
    }

    /// As `finish`, for threads that end only after the model has dropped the driver: `join` waits
    /// for them.
    pub fn finish_with(self, join: impl FnOnce()) {
        let slot = Arc::downgrade(self.slot());
        drop(self);
        join();
        assert_eq!(slot.strong_count(), 0, "the slot is still there");
        driver::end_of_model();
        SYSTEM.take();
        CALLS.take();
    }

    fn slot(&self) -> &Arc<Slot> {
        self.driver.slot(self.worker)
    }
}

/// The reading end of a pipe, registered with the driver. Clones share it.
#[derive(Clone)]
pub struct Pipe(Arc<Source<Descriptor>>);

struct Descriptor(RawFd);

impl Pipe {
    /// Watched from the start, or once a thread has to wait for it. The calling thread has entered
    /// the model.
    pub fn new(watched: bool) -> Pipe {
        let descriptor = Descriptor(system(|system| {
            let fd = FIRST_FD + system.descriptors.len() as RawFd;
            system.descriptors.insert(fd, Default::default());
            fd
        }));
        let source = if watched { Source::new(descriptor) } else { Source::unwatched(descriptor) };
        Pipe(Arc::new(source.expect("the calling thread has entered the model")))
    }

    /// Another process writes a byte.
    pub fn put(&self) {
        let fd = self.0.descriptor().0;
        system(|system| {
            system.of(fd).bytes += 1;
            system.report(fd);
        });
    }

    /// Reads a byte.
    ///
    /// # Cancel safety
    /// If dropped before it resolves, it has read nothing.
    ///
    /// # Errors
    /// The driver was shut down.
    pub async fn read(&self) -> io::Result<()> {
        self.0.io(Direction::Read, Descriptor::take).await
    }

    /// As `read`; the last task that polled is woken.
    ///
    /// # Errors
    /// As `read`.
    pub fn poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_io(cx, Direction::Read, None, Descriptor::take)
    }
}

impl Descriptor {
    fn take(&self) -> io::Result<Step<()>> {
        system(|system| {
            let bytes = &mut system.of(self.0).bytes;
            *bytes = bytes.checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
            Ok(Step::More(()))
        })
    }
}

impl crate::driver::Descriptor for Descriptor {}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: a number that no descriptor of the process has, and that only the model's system
        // sees.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// A timer of the driver.
pub struct ModelTimer(Timer);

impl ModelTimer {
    /// A timer for a deadline this long after now.
    pub fn after(duration: Duration) -> ModelTimer {
        ModelTimer(Timer::after(duration))
    }

    /// Whether the timer has fired; if not, it is armed, to call the waker. The calling thread owns
    /// the slot or has entered the model.
    pub fn poll(&mut self, waker: &Waker) -> bool {
        self.0.poll(waker).expect("the calling thread has entered the model").is_ready()
    }
}

/// A call on a file.
pub struct Call(uring::Operation);

impl Call {
    /// For the worker.
    ///
    /// Cancel safety: dropping it before it resolves revokes the call.
    pub fn new() -> Call {
        let request = uring::Request {
            call: uring::Call::Read,
            file: None,
            memory: uring::Memory::Heap(vec![0]),
            start: 0,
            offset: 0,
        };
        Call(uring::here().expect("the worker makes calls").perform(request))
    }
}

impl Default for Call {
    fn default() -> Self {
        Call::new()
    }
}

impl Future for Call {
    type Output = io::Result<u32>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|(result, memory)| {
            assert_eq!(memory.into_vec().len(), 1, "the memory comes back");
            result
        })
    }
}

/// The kernel's state.
#[derive(Default)]
pub(crate) struct System {
    /// Whether the wake-up descriptor has an edge that was not reported.
    is_woken: bool,
    blocks_sleepers: bool,
    /// Threads that block.
    sleepers: Vec<Thread>,
    descriptors: BTreeMap<RawFd, State>,
    /// Descriptors with an edge that was not reported.
    edges: Vec<RawFd>,
    /// Addresses of the words that a thread sleeps on.
    asleep: Vec<usize>,
    /// Data of calls that are neither completed nor canceled.
    begun: VecDeque<u64>,
    completes_at_once: bool,
    /// Data and results.
    pub(crate) completed: VecDeque<(u64, i32)>,
}

#[derive(Default)]
struct State {
    bytes: usize,
    /// The data of its events, if it is watched.
    data: Option<u64>,
}

impl System {
    fn of(&mut self, fd: RawFd) -> &mut State {
        self.descriptors.get_mut(&fd).expect("descriptors come from `Pipe::new`")
    }

    fn report(&mut self, fd: RawFd) {
        let state = self.of(fd);
        if state.bytes > 0 && state.data.is_some() && !self.edges.contains(&fd) {
            self.edges.push(fd);
            self.wake_sleepers();
        }
    }

    /// False if it is watched already.
    pub(crate) fn watch(&mut self, fd: RawFd, data: u64) -> bool {
        if self.of(fd).data.is_some() {
            return false;
        }
        self.rearm(fd, data);
        true
    }

    pub(crate) fn rearm(&mut self, fd: RawFd, data: u64) {
        self.of(fd).data = Some(data);
        self.report(fd);
    }

    pub(crate) fn unwatch(&mut self, fd: RawFd) {
        self.of(fd).data = None;
        self.edges.retain(|other| *other != fd);
    }

    /// A thread goes to sleep on a word.
    pub(crate) fn fall_asleep(&mut self, word: usize) {
        self.asleep.push(word);
    }

    pub(crate) fn is_asleep(&self, word: usize) -> bool {
        self.asleep.contains(&word)
    }

    /// Ends the sleep on a word, if a thread sleeps there.
    pub(crate) fn end_sleep(&mut self, word: usize) {
        self.asleep.retain(|other| *other != word);
        self.wake_sleepers();
    }

    /// Makes the current or the next wait return.
    pub(crate) fn wake(&mut self) {
        self.is_woken = true;
        self.wake_sleepers();
    }

    /// Makes blocked threads check again.
    fn wake_sleepers(&mut self) {
        self.sleepers.drain(..).for_each(|sleeper| sleeper.unpark());
    }

    pub(crate) fn begin_call(&mut self, data: u64, cancels: Option<u64>) {
        self.wake_sleepers();
        let Some(target) = cancels else {
            return match self.completes_at_once {
                true => self.completed.push_back((data, 0)),
                false => self.begun.push_back(data),
            };
        };
        let before = self.begun.len();
        self.begun.retain(|begun| *begun != target);
        match self.begun.len() < before {
            true => self.completed.extend([(target, -libc::ECANCELED), (data, 0)]),
            false => self.completed.push_back((data, -libc::ENOENT)),
        }
    }

    /// The events that a wait reports.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        let event = |data| Event { flags: EventFlags::IN, data: EventData::new_u64(data) };
        let mut events = Vec::new();
        for fd in mem::take(&mut self.edges) {
            let state = self.of(fd);
            events.extend(state.data.filter(|_| state.bytes > 0).map(event));
        }
        if mem::take(&mut self.is_woken) {
            events.push(event(WAKE_UP));
        }
        // Not edge-triggered.
        if !self.completed.is_empty() {
            events.push(event(COMPLETION));
        }
        events
    }
}

/// A system call.
pub(crate) fn system<R>(f: impl FnOnce(&mut System) -> R) -> R {
    let calls = CALLS.with_borrow(|calls| calls.clone().expect("inside of a model"));
    // loom tries other threads here. Relaxed: the kernel promises no order.
    calls.fetch_add(1, Relaxed);
    SYSTEM.with_borrow_mut(f)
}

/// The point at which a thread that sleeps in the kernel yields after it has found no event.
pub(crate) fn sleep_on() {
    // Not a system call: loom must not try other threads between the check and the sleep.
    let blocks = SYSTEM.with_borrow_mut(|system| {
        system.sleepers.extend(system.blocks_sleepers.then(thread::current));
        system.blocks_sleepers
    });
    if blocks { thread::park() } else { thread::yield_now() }
}

/// Now, in nanoseconds of the driver's clock.
pub(crate) fn time() -> u64 {
    TIME.get()
}

pub(crate) fn pass_time(time: Duration) {
    TIME.set(TIME.get() + time.as_nanos() as u64);
}

/// The model's point in time.
pub(crate) fn now() -> Instant {
    clock::instant(time())
}

thread_local! {
    // All threads of a model are one thread of the process.
    static SYSTEM: RefCell<System> = RefCell::default();
    static CALLS: RefCell<Option<Arc<AtomicUsize>>> = const { RefCell::new(None) };
    static TIME: Cell<u64> = const { Cell::new(START) };
}

/// The data of a wake-up event.
pub(crate) const WAKE_UP: u64 = u64::MAX;
/// The data of the first member's ring. The other workers' rings have nothing to report in a model.
pub(crate) const COMPLETION: u64 = WAKE_UP - WORKERS_MAX as u64;
/// No descriptor of the process has this number or a higher one.
const FIRST_FD: RawFd = 1 << 29;
const START: u64 = 1 << 30;
