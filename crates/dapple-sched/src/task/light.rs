//! Light tasks on a worker: stretches of polls, wakes, and what becomes of a task whose color is asked for. What a light
//! task is stands in `task`.
//!
//! # Stretches
//!
//! A worker takes up to [`STRETCH_MAX`] light tasks from its queue at once, under its lock, and polls them one after the
//! other without any. A task that yields stays where it is; when the stretch is over, those go to the end of the queue under
//! the same acquisition of the lock that takes the next ones. So a yield costs no locked instruction.
//!
//! The tasks of a stretch would wait if one of them took long, and C6 wants them polled by who sleeps meanwhile. So they
//! stand in an array that thieves can see, and may take from a worker that is overdue:
//!
//! | word | written by | says |
//! |---|---|---|
//! | `len` | the worker, under its lock | how many entries there are; 0 between stretches |
//! | `at` | the worker, before each poll | the entry that is polled, which is nobody else's |
//! | `tasks[i]` | the worker; a thief who has taken it, under the worker's lock | a task that is to be polled (after `at`), or once more (before it); or null |
//! | `thief` | a thief, under the worker's lock; cleared by the worker, under it | look before you go on |
//!
//! Before a poll the worker writes `at`, then reads `thief`; the thief writes `thief`, then reads `at`. One of them must
//! see the other, which takes a full barrier between the write and the read on both sides. The worker would pay for that with
//! each poll. So the thief makes all threads pass one ([`crate::Barrier`], `membarrier`), and the worker's own is
//! for the compiler only. Where `at` was seen, all other entries are the thief's; the worker finds `thief` set before its next
//! poll, ends the stretch, and looks under its lock at what is left. Where the driver has no such barrier, a stretch is one
//! task.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::Context;
use std::thread_local;

use crate::color::cell::ColorCell;
use crate::color::node::Node;
use crate::color::rights::Hold;
use crate::hold;
use crate::observe::trace;
use crate::runtime::context;
use crate::runtime::driver::Barrier;
use crate::runtime::shared::{Running, Shared, Slot};
use crate::runtime::switches;
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};
use crate::sync::barrier::light_barrier;
use crate::sync::lock::Guard;
use crate::task::{self, ABORTED, COLORED, HOME_SHIFT, Header, LightQueue, Polled, SCHEDULED, WOKEN};
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

impl Stretch {
    /// The address of the task that is polled, as far as can be seen from elsewhere.
    pub(crate) fn polled(&self) -> usize {
        // Relaxed: for reports, of polls that have been there for long.
        self.tasks[self.at.load(Relaxed).min(STRETCH_MAX - 1)].load(Relaxed).addr()
    }

    /// The worker goes on to an entry, which nobody else takes from here on. False: there was a thief, and the stretch ends.
    #[inline(always)]
    fn go_to(&self, at: usize) -> bool {
        // Release: a thief who sees it sees what became of the entries before.
        self.at.store(at, Release);
        light_barrier();
        // Relaxed: what the thief did is seen under the lock. The first entry nobody takes.
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

/// Whether tasks of a runtime that name no color may be light: nobody watches callbacks, and no policy is to be told of all
/// colors.
pub(crate) fn allowed(shared: &Shared) -> bool {
    !shared.policed && !trace::is_on() && !switches::shared_queue()
}

/// Queues a light task to be polled: here, if this is a worker of its runtime, otherwise where it was polled last.
///
/// # Safety
/// The task is light and the caller's: he has set SCHEDULED.
pub(crate) unsafe fn enqueue(task: NonNull<Header>) {
    // SAFETY: promised by the caller; what is queued is alive.
    unsafe {
        if trace::is_on() {
            // Whoever watches is to see its polls.
            return join_color(task);
        }
        let placed = context::with_worker(|worker| worker.enqueue_light(task));
        if placed != Some(true) {
            enqueue_from_outside(task);
        }
    }
}

/// # Safety
/// As [`enqueue`].
#[cold]
unsafe fn enqueue_from_outside(task: NonNull<Header>) {
    // SAFETY: promised by the caller. A count of our own: the task may be over as soon as it is queued.
    let (shared, home) = unsafe {
        let shared = task::shared_of(task);
        Arc::increment_strong_count(shared);
        // Relaxed: a hint.
        (Arc::from_raw(shared), (task.as_ref().state().load(Relaxed) >> HOME_SHIFT) as usize)
    };
    shared.check_process();
    // Relaxed: a number to show.
    shared.posts_outside.fetch_add(1, Relaxed);
    let active = shared.active();
    let mut target = home % active;
    if !shared.slots[target].is_asleep() && shared.sleepers() > 0 {
        target = (0..active).find(|&worker| shared.slots[worker].is_asleep()).unwrap_or(target);
    }
    let mut queue = shared.slots[target].lock();
    if queue.closed {
        drop(queue);
        // SAFETY: promised by the caller; nobody will poll it.
        return unsafe { drop_light(task) };
    }
    // SAFETY: promised by the caller.
    unsafe { queue.light.push(task, true) };
    drop(queue);
    shared.kick(target);
}

thread_local! {
    /// Whether this thread is dropping a light task, and those that are to follow it, linked through their nodes.
    static DROPPING: (Cell<bool>, Cell<*mut Node>) = const { (Cell::new(false), Cell::new(ptr::null_mut())) };
}

/// Ends a light task that will not be polled any more. Its end may wake others that end as well: one after the other, not
/// one inside the other.
///
/// # Safety
/// As [`enqueue`].
unsafe fn drop_light(task: NonNull<Header>) {
    DROPPING.with(|(active, waiting)| {
        // SAFETY: promised by the caller; who is in the list is ours.
        unsafe { task.as_ref() }.node().next.set(waiting.replace(task.as_ptr().cast()));
        if active.replace(true) {
            return;
        }
        while let Some(node) = NonNull::new(waiting.get()) {
            let task = node.cast::<Header>();
            // SAFETY: as above. A count, as the task may be the last of its runtime.
            let shared = unsafe {
                waiting.set(node.as_ref().next.get());
                let shared = task::shared_of(task);
                Arc::increment_strong_count(shared);
                Arc::from_raw(shared)
            };
            // SAFETY: as above; with COLORED its color is held for it.
            let end = || unsafe {
                // Acquire: what the wakers did.
                if task.as_ref().state().load(Acquire) & COLORED != 0 {
                    join_color(task);
                } else {
                    context::in_light_frame(task, || task::drop_unfinished(task));
                }
            };
            // A panic, such as that of a foreign waker's destructor, must not keep the others from their end.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(end)) {
                crate::runtime::panics::report(&shared, None, payload);
            }
            // As must not the end of the runtime: its driver may be anybody's code.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(shared))) {
                crate::runtime::panics::discard(payload);
            }
        }
        active.set(false);
    });
}

/// A light task goes on in its color, that was asked for meanwhile, or is made here.
///
/// # Safety
/// The task is the caller's as in [`enqueue`], so that its color, once there is one, is `Held` for it; this thread does not
/// poll it.
unsafe fn join_color(task: NonNull<Header>) {
    // SAFETY: promised by the caller; the node is his, and so is the hold. A handle, as the task may end meanwhile.
    unsafe {
        let color = task::ensure_color(task).clone();
        // Whoever made the color may be about to say so. From here on a wake must post to it, and he must see that it is held.
        // AcqRel: as where it is made.
        task.as_ref().state().fetch_or(COLORED, AcqRel);
        // What stood there was the next light task.
        task.as_ref().node().next.set(ptr::null_mut());
        task::place_in_color(task);
        hold::release(Hold::new(color.cell(), false));
    }
}

/// The color of the light task that this thread polls was asked for, in this poll: which goes on as a turn of it.
///
/// # Safety
/// The color is new, `Running` here, and set in the task's record.
pub(crate) unsafe fn go_on_as_turn(task: NonNull<Header>, color: NonNull<ColorCell>) {
    // SAFETY: it is being polled, hence alive.
    let (node, state) = unsafe { (task.as_ref().node(), task.as_ref().state()) };
    // What stood there was the next light task.
    node.next.set(ptr::null_mut());
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
        worker.frame.go_on_as_turn(color);
        if woken {
            // SAFETY: SCHEDULED is ours.
            unsafe { task::place_in_color(task) };
        }
    });
}

impl Worker {
    /// Queues a light task here; false if it is of another runtime, or this worker has stopped.
    ///
    /// # Safety
    /// As [`enqueue`].
    unsafe fn enqueue_light(&self, task: NonNull<Header>) -> bool {
        // SAFETY: promised by the caller.
        if !ptr::eq(&*self.shared, unsafe { task::shared_of(task) }) {
            return false;
        }
        let mut queue = self.slot().lock();
        if queue.closed {
            return false;
        }
        // SAFETY: promised by the caller.
        unsafe { queue.light.push(task, self.dispatches.get()) };
        if !self.dispatches.get() && context::in_callback() {
            queue.light.note_wake();
        }
        true
    }

    /// Takes tasks for a stretch; false if it is the turn of a color, or there are none. The queue is this worker's.
    #[inline]
    pub(crate) fn begin_stretch(&self, queue: &mut Guard<'_, RunQueue>) -> bool {
        if queue.light.is_empty() {
            return false;
        }
        let max = self.stretch_len(queue.tasks_next(), queue.light.mean_ns);
        if max == 0 {
            return false;
        }
        let stretch = &self.slot().stretch;
        // Relaxed, all of them: under the lock, which every thief takes.
        let len =
            queue.light.take(max, self.tuning.event_share, |at, task| stretch.tasks[at].store(task.as_ptr(), Relaxed));
        queue.note_taken(len);
        stretch.at.store(0, Relaxed);
        stretch.len.store(len, Relaxed);
        self.stretch.set(len);
        true
    }

    /// How many tasks the next stretch has, where `wanted` are to be polled: no more than take [`STRETCH_NS`].
    #[inline]
    fn stretch_len(&self, wanted: usize, mean_ns: u32) -> usize {
        let by_time = STRETCH_NS / (mean_ns as usize).max(1);
        wanted.min(by_time.max(1)).min(self.shared.stretch_max)
    }

    /// Puts what is left of the last stretch to the end of the queue, which is this worker's.
    #[inline]
    pub(crate) fn end_stretch(&self, queue: &mut Guard<'_, RunQueue>) {
        let len = self.stretch.replace(0);
        if len == 0 {
            return;
        }
        let stretch = &self.slot().stretch;
        // Relaxed, all of them: under the lock, which every thief has had.
        let left = stretch.tasks[..len].iter().filter_map(|entry| NonNull::new(entry.load(Relaxed)));
        // SAFETY: they were in the stretch, and are to be polled.
        unsafe { queue.light.append(left) };
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

    /// Returns how many were polled.
    #[inline]
    fn poll_stretch(&self, len: usize) -> usize {
        let slot = self.slot();
        let stretch = &slot.stretch;
        for at in 0..len {
            if !stretch.go_to(at) {
                return at;
            }
            // Relaxed: this worker wrote it; a thief takes it only where we have seen him.
            let Some(task) = NonNull::new(stretch.tasks[at].load(Relaxed)) else { continue };
            // SAFETY: what is in the stretch is this worker's, and to be polled.
            unsafe { self.poll_light(slot, at, task) };
        }
        len
    }

    /// # Safety
    /// The task is the entry `at` of the stretch, and this worker's.
    #[inline]
    unsafe fn poll_light(&self, slot: &Slot, at: usize, task: NonNull<Header>) {
        // SAFETY: promised by the caller; what is queued is alive.
        let header = unsafe { task.as_ref() };
        // Acquire: what the waker did, also one who found it queued.
        let state = header.state().load(Acquire);
        // SAFETY: promised by the caller.
        if state & (WOKEN | ABORTED | COLORED) != 0 && !unsafe { self.prepare(at, task, state) } {
            return;
        }
        slot.set_origin(header.spawned_from());
        slot.budget.begin();
        self.frame.set_task(task.as_ptr());
        self.woken.set(false);
        // SAFETY: the task's own count is there until it is done; it is not done, and this thread alone polls it.
        let polled = unsafe {
            let waker = task::borrowed_waker(task);
            task::poll(task, &mut Context::from_waker(&waker))
        };
        // The usual end of a poll that yields: it stays in the stretch.
        if polled != Polled::Pending || !self.woken.get() || !self.frame.is_light() {
            // SAFETY: promised by the caller.
            unsafe { self.settle_light(at, task, polled) };
        }
    }

    /// What is to be done before a poll; false if there is none.
    ///
    /// # Safety
    /// As [`Worker::poll_light`].
    #[inline(never)]
    unsafe fn prepare(&self, at: usize, task: NonNull<Header>, state: u32) -> bool {
        // SAFETY: promised by the caller.
        unsafe {
            if state & COLORED != 0 {
                self.leave_stretch(at);
                // The one before may be gone by now.
                self.frame.set_task(ptr::null());
                join_color(task);
                return false;
            }
            if state & ABORTED != 0 {
                self.leave_stretch(at);
                self.slot().budget.end();
                self.slot().set_origin(task.as_ref().spawned_from());
                self.frame.set_task(task.as_ptr());
                task::end_aborted(task);
                self.end_turn_of_light();
                return false;
            }
            // AcqRel: what the waker did; what he does from here on asks for one more poll.
            task.as_ref().state().fetch_and(!WOKEN, AcqRel);
            true
        }
    }

    /// What follows from a poll, but where the task has only yielded.
    ///
    /// # Safety
    /// As [`Worker::poll_light`]; it was polled.
    #[inline(never)]
    unsafe fn settle_light(&self, at: usize, task: NonNull<Header>, polled: Polled) {
        self.slot().budget.end();
        // SAFETY: promised by the caller.
        unsafe {
            if !self.frame.is_light() {
                // It has a color now, and the color a turn that ends here.
                self.leave_stretch(at);
                if polled != Polled::Pending {
                    task::finish_colored(task, polled);
                }
                self.end_turn_of_light();
            } else if polled != Polled::Pending {
                self.leave_stretch(at);
                task::finish_light(task, polled);
                self.end_turn_of_light();
            } else {
                self.end_poll(at, task);
            }
        }
    }

    /// The task waits, unless it was woken meanwhile.
    ///
    /// # Safety
    /// As [`Worker::settle_light`].
    unsafe fn end_poll(&self, at: usize, task: NonNull<Header>) {
        // SAFETY: promised by the caller; alive until SCHEDULED is given up.
        let state = unsafe { task.as_ref() }.state();
        // Before the task may be anybody's.
        self.leave_stretch(at);
        self.frame.set_task(ptr::null());
        // Relaxed: the exchange decides.
        let mut old = state.load(Relaxed);
        loop {
            let home = (self.index as u32) << HOME_SHIFT;
            let new = match old & (WOKEN | COLORED) {
                0 => old & !SCHEDULED & ((1 << HOME_SHIFT) - 1) | home,
                COLORED => old & !SCHEDULED,
                _ => old & !WOKEN,
            };
            // AcqRel: releases the poll to the next one; acquires what the waker did, and the color.
            match state.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        // SAFETY: with COLORED its color is held for this poll, and keeps itself alive; with WOKEN the task is still ours.
        unsafe {
            match old & (WOKEN | COLORED) {
                0 => {}
                COLORED => {
                    let color = task::color_of(task).expect("COLORED comes after the color");
                    hold::release(Hold::new(color, false));
                }
                // Relaxed: as where it was taken.
                WOKEN => self.slot().stretch.tasks[at].store(task.as_ptr(), Relaxed),
                _ => join_color(task),
            }
        }
    }

    /// Whoever watches callbacks is to see the polls of tasks that were queued before.
    #[cold]
    fn color_stretch(&self, len: usize) {
        let stretch = &self.slot().stretch;
        for at in (0..len).take_while(|at| stretch.go_to(*at)) {
            // Relaxed: as in `poll_stretch`.
            if let Some(task) = NonNull::new(stretch.tasks[at].load(Relaxed)) {
                self.leave_stretch(at);
                // SAFETY: as in `poll_stretch`; nobody polls it, so a color that is made is held for it.
                unsafe { join_color(task) };
            }
        }
    }

    /// The entry is over: its task waits, has ended, or goes on elsewhere.
    #[inline]
    fn leave_stretch(&self, at: usize) {
        // Relaxed: the next store of `at` releases it.
        self.slot().stretch.tasks[at].store(ptr::null_mut(), Relaxed);
    }

    /// If the poll has become a turn, that ends.
    ///
    /// # Safety
    /// The poll is over.
    unsafe fn end_turn_of_light(&self) {
        // It may be gone, or another thread's.
        self.frame.set_task(ptr::null());
        if self.frame.is_light() {
            return;
        }
        if let Some(color) = self.frame.leave_with() {
            // SAFETY: promised by the caller; the color is `Running` here.
            unsafe { self.end_nested_turn(color) };
        }
        self.frame.begin_light();
    }

    /// Takes the other tasks of a stretch over, of a worker that is overdue. The locks of both are held; returns how many.
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
        // Acquire pairs with the store in `poll_stretch`: what became of the entries before.
        let at = stretch.at.load(Acquire);
        let mut taken = 0;
        for (_, entry) in stretch.tasks[..len].iter().enumerate().filter(|(entry, _)| *entry != at) {
            // Relaxed: the worker looks at the entry again under its lock only. An exchange, as models see only the last
            // access to a word.
            if let Some(task) = NonNull::new(entry.swap(ptr::null_mut(), Relaxed)) {
                // SAFETY: the worker has not come to the entry, or is through with it, and sees us before it goes on.
                unsafe { own.light.push(task, false) };
                taken += 1;
            }
        }
        taken
    }

    /// Drops the light tasks that a worker which stops leaves behind.
    pub(crate) fn drop_light_tasks(mut tasks: LightQueue) {
        while let Some(task) = tasks.pop() {
            // SAFETY: it was queued, and is now ours.
            unsafe { drop_light(task) };
        }
    }
}

/// Tasks of a stretch: enough for the lock to cost each of them less than half a nanosecond.
pub(crate) const STRETCH_MAX: usize = if cfg!(any(dapple_loom, dapple_shuttle)) { 3 } else { 32 };

/// A stretch is to take no longer than this.
const STRETCH_NS: usize = 20_000;

/// Stretches between two that are timed, where polls are short.
const LOOK_EVERY: u32 = 63;

/// Polls that are longer are timed in every stretch.
const LONG_POLL_NS: u32 = 1_000;
