//! Light tasks on a worker: batches of polls, wakes, and the switch to a color when it is
//! requested. `task` defines light tasks.
//!
//! # Stretches
//!
//! A worker takes up to [`STRETCH_MAX`] light tasks from its queue at once, a *stretch*, under its
//! lock, and polls them one after the other without the lock. A task that yields stays in the
//! stretch; afterwards those tasks go to the end of the queue under the same acquisition of the
//! lock that takes the next ones. So a yield costs no locked instruction.
//!
//! The tasks of a stretch would wait if one of them took long, and C6 demands that a sleeping
//! worker polls them meanwhile. So they are in an array that thieves can see, and may take from an
//! overdue worker:
//!
//! | word | written by | says |
//! |---|---|---|
//! | `len` | the worker, under its lock | how many entries there are; 0 between stretches |
//! | `at` | the worker, before each poll | the entry that is polled, which no other thread takes |
//! | `tasks[i]` | the worker; a thief that has taken it, under the worker's lock | a task to poll (after `at`), or to poll once more (before it); or null |
//! | `thief` | a thief, under the worker's lock; cleared by the worker, under it | the worker checks before it continues |
//!
//! Before a poll the worker writes `at`, then reads `thief`; the thief writes `thief`, then reads
//! `at`. One of them must see the other, so both sides need a full barrier between the write and
//! the read. The worker would pay that cost with each poll. So the thief makes all threads pass one
//! ([`crate::Barrier`], `membarrier`), and the worker's own barrier is for the compiler only. If
//! the thief saw `at`, all other entries belong to it. The worker finds `thief` set before its next
//! poll, ends the batch, and takes its lock to find the remaining entries. If the driver has no
//! such barrier, a stretch is one task.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::thread_local;

use crate::color::cell::ColorCell;
use crate::color::rights::{ColorTurn, Hold};
use crate::hold;
use crate::observe::trace;
use crate::runtime::context;
use crate::runtime::driver::Barrier;
use crate::runtime::shared::{Running, Shared, Slot};
use crate::runtime::switches;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};
use crate::sync::barrier::light_barrier;
use crate::task::queue::Chunk;
use crate::task::rights::{LightTask, LiveTask, Paused, Polled, Scheduled, Unfinished};
use crate::task::{ABORTED, COLORED, HOME_SHIFT, Header, LightQueue, SCHEDULED, WOKEN};
use crate::worker::Worker;
use crate::worker::clock::{self, Slice};
use crate::worker::run_queue::RunQueue;

/// The tasks that a worker polls one after the other; see the module's table.
#[repr(align(128))]
pub(crate) struct Stretch {
    at: AtomicUsize,
    thief: AtomicBool,
    len: AtomicUsize,
    tasks: [AtomicPtr<Header>; STRETCH_MAX],
}

/// The current entry of a stretch: no thief takes it.
struct Entry<'a>(&'a AtomicPtr<Header>);

impl Entry<'_> {
    /// Leaves the entry: its task waits, has ended, or continues elsewhere.
    #[inline]
    fn leave(&self) {
        // Relaxed, here and below: the next store of `at` releases it.
        self.0.store(ptr::null_mut(), Relaxed);
    }

    fn put(&self, task: LightTask) {
        self.0.store(task.into_raw().as_ptr(), Relaxed);
    }
}

impl Stretch {
    /// The address of the task that is polled, as far as other threads can see.
    pub(crate) fn polled(&self) -> usize {
        // Relaxed: for reports on long polls.
        self.tasks[self.at.load(Relaxed).min(STRETCH_MAX - 1)].load(Relaxed).addr()
    }

    /// Moves to the next entry, which no other thread takes from here on. False if there was a
    /// thief, and the stretch ends.
    #[inline(always)]
    fn go_to(&self, at: usize) -> bool {
        // Release: a thief that sees it sees the outcome of earlier entries.
        self.at.store(at, Release);
        light_barrier();
        // Relaxed: the lock makes the thief's changes visible. No thief takes the first entry.
        at == 0 || !self.thief.load(Relaxed)
    }

    pub(crate) fn new() -> Stretch {
        Stretch {
            at: AtomicUsize::new(0),
            thief: AtomicBool::new(false),
            len: AtomicUsize::new(0),
            tasks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }
}

/// Whether a runtime's tasks without a named color may be light: there is no observer, and no
/// policy that has to know all colors.
pub(crate) fn allowed(shared: &Shared) -> bool {
    !shared.policed && !trace::is_on() && !switches::shared_queue()
}

/// Queues a light task for a poll: on this thread's worker, if it belongs to the runtime, otherwise
/// on the worker that polled it last.
pub(super) fn enqueue(task: LightTask) {
    if trace::is_on() {
        // The observer must see its polls.
        return join_color(task);
    }
    if let Some(task) = context::offer_worker(task, Worker::enqueue_light) {
        enqueue_from_outside(task);
    }
}

#[cold]
fn enqueue_from_outside(task: LightTask) {
    // A count of our own: the task may end as soon as it is queued.
    let shared = task.task().shared().counted();
    shared.check_process();
    // Relaxed: for statistics.
    shared.posts_outside.fetch_add(1, Relaxed);
    // Relaxed: a hint.
    let home = (task.task().header().state().load(Relaxed) >> HOME_SHIFT) as usize;
    let active = shared.active();
    let mut target = home % active;
    if !shared.slots[target].is_asleep() && shared.sleepers() > 0 {
        target = (0..active).find(|&worker| shared.slots[worker].is_asleep()).unwrap_or(target);
    }
    let mut queue = shared.slots[target].lock();
    if queue.closed {
        drop(queue);
        return drop_light(task);
    }
    queue.light.push(task, true);
    drop(queue);
    shared.kick(target);
}

thread_local! {
    /// Whether this thread is dropping a light task, and the tasks that must follow it.
    static DROPPING: (Cell<bool>, Cell<Chunk>) = const { (Cell::new(false), Cell::new(Chunk::EMPTY)) };
}

/// Ends a light task that will not be polled any more. Its end may wake others that end as well:
/// this drops them one after the other, not one inside the other.
fn drop_light(task: LightTask) {
    DROPPING.with(|(active, waiting)| {
        let mut chunk = waiting.replace(Chunk::EMPTY);
        chunk.push(Chunk::of(task));
        if active.replace(true) {
            return waiting.set(chunk);
        }
        while let Some(task) = chunk.pop() {
            waiting.set(chunk);
            // A count on the runtime, because the task may be the last reference to it.
            let shared = task.task().shared().counted();
            let end = || {
                // The end of the runtime must not do so either: its driver may be foreign code.
                if task.task().header().state().load(Acquire) & COLORED != 0 {
                    join_color(task);
                } else {
                    context::in_light_frame(task.unfinished(), Unfinished::drop_unpolled);
                }
            };
            // A panic, such as one in a foreign waker's destructor, must not keep the others from
            // their end.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(end)) {
                crate::runtime::panics::report(&shared, None, payload);
            }
            // The end of the runtime must not either: its driver may be foreign code.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(shared))) {
                crate::runtime::panics::discard(payload);
            }
            chunk = waiting.replace(Chunk::EMPTY);
        }
        active.set(false);
    });
}

/// Moves a light task to its color, which was requested meanwhile, or is made here. This thread
/// does not poll the task, so the color is `Held` for the task.
fn join_color(task: LightTask) {
    // Retained, because the task may end meanwhile.
    let task = task.task().retain();
    let color = task.color().clone();
    // The thread that made the color may be about to set COLORED. From here on a wake must post to
    // the color, and that thread must see that the color is held. AcqRel: as in `make_color`.
    task.header().state.fetch_or(COLORED, AcqRel);
    // SAFETY: the node belonged to the light task, and so does the hold.
    unsafe {
        Scheduled::new(task.task(), true).enqueue();
        hold::release(Hold::new(color.cell(), false));
    }
}

/// Continues the current poll of a light task as a turn of its color, which this very poll has
/// requested.
///
/// # Safety
/// The color is new, `Running` here, and set in the task's record.
pub(super) unsafe fn go_on_as_turn(task: LiveTask<'_>, color: NonNull<ColorCell>) {
    let state = task.header().state();
    context::with_worker(|worker| {
        let mut woken = worker.woken.replace(false);
        // Relaxed: the exchange decides.
        let mut old = state.load(Relaxed);
        loop {
            let again = woken || old & WOKEN != 0;
            let new = old & !(SCHEDULED | WOKEN) | COLORED | if again { SCHEDULED } else { 0 };
            // AcqRel: from here on a wake posts the node, to a color that it sees.
            match state.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => {
                    woken = again;
                    break;
                }
                Err(now) => old = now,
            }
        }
        // SAFETY: promised by the caller.
        worker.frame.go_on_as_turn(unsafe { ColorTurn::new(color) });
        if woken {
            // SAFETY: SCHEDULED is ours.
            unsafe { Scheduled::new(task, true) }.enqueue();
        }
    });
}

impl Worker {
    /// Queues a light task here. Returns it if it belongs to another runtime, or this worker has
    /// stopped.
    fn enqueue_light(&self, task: LightTask) -> Option<LightTask> {
        if !ptr::eq(&*self.shared, task.task().shared()) {
            return Some(task);
        }
        let mut queue = self.slot().lock();
        if queue.closed {
            return Some(task);
        }
        queue.light.push(task, self.dispatches.get());
        if !self.dispatches.get() && context::in_callback() {
            queue.light.note_wake();
        }
        None
    }

    /// Takes tasks for a stretch; false if a color is next, or there are none. The queue is this
    /// worker's.
    #[inline]
    pub(crate) fn begin_stretch(&self, queue: &mut RunQueue) -> bool {
        if queue.light.is_empty() {
            return false;
        }
        let max = self.stretch_len(queue.tasks_next(), queue.light.mean_ns);
        if max == 0 {
            return false;
        }
        let stretch = &self.slot().stretch;
        // Relaxed, all: under the lock, which every thief takes.
        let to = |at: usize, task: LightTask| stretch.tasks[at].store(task.into_raw().as_ptr(), Relaxed);
        let len = queue.light.take(max, self.tuning.event_share, to);
        queue.note_taken(len);
        stretch.at.store(0, Relaxed);
        stretch.len.store(len, Relaxed);
        self.stretch.set(len);
        true
    }

    /// The length of the next stretch, with `wanted` tasks to poll: at most the number that takes
    /// [`STRETCH_NS`].
    #[inline]
    fn stretch_len(&self, wanted: usize, mean_ns: u32) -> usize {
        let by_time = STRETCH_NS / (mean_ns as usize).max(1);
        wanted.min(by_time.max(1)).min(self.shared.stretch_max)
    }

    /// Puts the rest of the last stretch at the end of the queue, which is this worker's.
    #[inline]
    pub(crate) fn end_stretch(&self, queue: &mut RunQueue) {
        let len = self.stretch.replace(0);
        if len == 0 {
            return;
        }
        let stretch = &self.slot().stretch;
        // Relaxed, all: under the lock, which every thief has had.
        let left = stretch.tasks[..len].iter().filter_map(|entry| NonNull::new(entry.load(Relaxed)));
        // SAFETY: they were put into the stretch, and its end forgets them there.
        queue.light.append(left.map(|task| unsafe { LightTask::from_raw(task) }));
        stretch.len.store(0, Relaxed);
        if stretch.thief.load(Relaxed) {
            stretch.thief.store(false, Relaxed);
        }
        queue.light.note_polls(len as u32);
        if let Some(mean_ns) = self.poll_ns.take() {
            queue.light.mean_ns = clock::smooth(queue.light.mean_ns, mean_ns);
        }
    }

    /// Polls the tasks of a stretch.
    pub(crate) fn run_stretch(&self) {
        let len = self.stretch.get();
        if trace::is_on() {
            return self.color_stretch(len);
        }
        let to_look = self.stretches_to_look.get();
        let mean_ns = self.light_ns.get();
        let timed = to_look == 0 || mean_ns >= LONG_POLL_NS;
        self.stretches_to_look.set(if timed { LOOK_EVERY } else { to_look - 1 });
        let slice = Slice::start(timed);
        let slot = self.slot();
        slot.running.set(Running::LightTasks);
        self.frame.begin_light();
        let polled = self.poll_stretch(len);
        self.frame.end_light();
        slot.budget.end();
        slot.running.set(Running::Nothing);
        slot.counters.turn(polled as u32);
        let mut passed_ns = polled as u64 * u64::from(mean_ns);
        if timed {
            passed_ns = slice.elapsed_ns();
            let each_ns = (passed_ns / polled.max(1) as u64).clamp(1, u64::from(u32::MAX / 8)) as u32;
            self.poll_ns.set(Some(each_ns));
            self.light_ns.set(clock::smooth(mean_ns, each_ns));
        }
        self.pass_time(passed_ns);
    }

    /// Goes through the tasks of a stretch. The task that `each` gets is still in the entry: `each`
    /// leaves it there, or takes it out. Returns the number of tasks before a thief came.
    #[inline]
    fn walk_stretch(&self, len: usize, mut each: impl FnMut(Entry<'_>, LightTask)) -> usize {
        let stretch = &self.slot().stretch;
        for at in 0..len {
            if !stretch.go_to(at) {
                return at;
            }
            let entry = Entry(&stretch.tasks[at]);
            // Relaxed: this worker wrote it; a thief takes it only if this worker will see the
            // thief.
            if let Some(task) = NonNull::new(entry.0.load(Relaxed)) {
                // SAFETY: the task was put into the stretch, and this worker is at its entry.
                each(entry, unsafe { LightTask::from_raw(task) });
            }
        }
        len
    }

    /// Returns the number of tasks polled.
    #[inline]
    fn poll_stretch(&self, len: usize) -> usize {
        let slot = self.slot();
        self.walk_stretch(len, |entry, task| self.poll_light(slot, entry, task))
    }

    #[inline]
    fn poll_light(&self, slot: &Slot, entry: Entry<'_>, task: LightTask) {
        let header = task.task().header();
        // Acquire: pairs with the waker, even one that found the task queued.
        let state = header.state().load(Acquire);
        let task = if state & (WOKEN | ABORTED | COLORED) == 0 {
            task
        } else {
            match self.prepare(&entry, task, state) {
                Some(task) => task,
                None => return,
            }
        };
        slot.set_origin(task.task().header().spawned_from());
        slot.budget.begin();
        self.woken.set(false);
        // SAFETY: the task ends in `settle_light`, or stays in the stretch until the frame has
        // another one.
        unsafe { self.frame.set_task(task.task()) };
        let polled = task.unfinished().poll();
        // The usual end of a poll that yields: the task stays in the stretch.
        if !polled.is_pending() || !self.woken.get() || !self.frame.is_light() {
            self.settle_light(entry, polled);
        }
    }

    /// The work before a poll; `None` if the task is not to be polled.
    #[inline(never)]
    fn prepare(&self, entry: &Entry<'_>, task: LightTask, state: u32) -> Option<LightTask> {
        if state & COLORED != 0 {
            entry.leave();
            // The previous task may have been freed by now.
            self.frame.clear_task();
            join_color(task);
            return None;
        }
        if state & ABORTED != 0 {
            entry.leave();
            self.slot().budget.end();
            self.slot().set_origin(task.task().header().spawned_from());
            // SAFETY: it ends here, and the frame forgets it afterwards.
            unsafe { self.frame.set_task(task.task()) };
            task.unfinished().abort().finish();
            self.end_turn_of_light();
            return None;
        }
        // AcqRel: acquires what the waker did; a later wake asks for one more poll.
        task.task().header().state().fetch_and(!WOKEN, AcqRel);
        Some(task)
    }

    /// The work after a poll, unless the task has only yielded.
    #[inline(never)]
    fn settle_light(&self, entry: Entry<'_>, polled: Polled) {
        self.slot().budget.end();
        match polled.result() {
            Ok(ended) => {
                entry.leave();
                ended.finish();
                self.end_turn_of_light();
            }
            // The task has got a color in its poll; the color's first turn ends here.
            Err(_) if !self.frame.is_light() => {
                entry.leave();
                self.end_turn_of_light();
            }
            Err(task) => {
                // Before other threads may have the task.
                entry.leave();
                self.frame.clear_task();
                // SAFETY: from the batch; the frame says that the task is still light.
                match unsafe { task.pause(self.index) } {
                    Paused::Waits => {}
                    // SAFETY: held for this poll.
                    Paused::WaitsInColor(color) => hold::release(unsafe { Hold::new(color, false) }),
                    Paused::Woken(task) => entry.put(task),
                    Paused::WokenInColor(task) => join_color(task),
                }
            }
        }
    }

    /// Moves tasks that were queued before to their colors, because an observer must see their
    /// polls.
    #[cold]
    fn color_stretch(&self, len: usize) {
        // No thread polls them, so a color that is made here is held for its task.
        self.walk_stretch(len, |entry, task| {
            entry.leave();
            join_color(task);
        });
    }

    /// Ends the poll; if it has become a turn, ends that.
    fn end_turn_of_light(&self) {
        // The task may have been freed, or belong to another thread.
        self.frame.clear_task();
        if self.frame.is_light() {
            return;
        }
        if let Some(turn) = self.frame.leave() {
            self.end_nested_turn(turn);
        }
        self.frame.begin_light();
    }

    /// Takes the other tasks of an overdue worker's stretch. The locks of both are held; returns
    /// their number.
    pub(crate) fn steal_stretch(&self, own: &mut RunQueue, slot: &Slot) -> usize {
        let stretch = &slot.stretch;
        // Relaxed: under the lock.
        let len = stretch.len.load(Relaxed);
        if len <= 1 {
            return 0;
        }
        stretch.thief.store(true, Relaxed);
        if !self.shared.driver.barrier().is_some_and(Barrier::pass) {
            return 0;
        }
        // Acquire pairs with the store in `poll_stretch`: the outcome of earlier entries.
        let at = stretch.at.load(Acquire);
        let mut taken = 0;
        for (_, entry) in stretch.tasks[..len].iter().enumerate().filter(|(entry, _)| *entry != at) {
            // Relaxed: the worker reads the entry again only under its lock. An exchange, because
            // models see only the last access to a word.
            if let Some(task) = NonNull::new(entry.swap(ptr::null_mut(), Relaxed)) {
                // SAFETY: the worker has not reached the entry, or has finished with it, and sees
                // the thief before it continues.
                own.light.push(unsafe { LightTask::from_raw(task) }, false);
                taken += 1;
            }
        }
        taken
    }

    /// Drops the light tasks of a worker that stops.
    pub(crate) fn drop_light_tasks(mut tasks: LightQueue) {
        while let Some(task) = tasks.pop() {
            drop_light(task);
        }
    }
}

/// Enough tasks in a stretch that the lock costs each of them less than half a nanosecond.
pub(crate) const STRETCH_MAX: usize = if cfg!(any(dapple_loom, dapple_shuttle)) { 3 } else { 32 };

/// The time limit of a stretch.
const STRETCH_NS: usize = 20_000;

/// For short polls: the number of stretches between two timed ones.
const LOOK_EVERY: u32 = 63;

/// Longer polls are timed in every stretch.
const LONG_POLL_NS: u32 = 1_000;
