//! The rights of code to a task, as types: a value exists for as long as its right.
//!
//! | type | its owner | begins | ends |
//! |---|---|---|---|
//! | [`LiveTask`] | may use the task for as long as it borrows | with any of the others | with the borrow |
//! | [`TaskRef`] | has a count | from a count or a `LiveTask` | when it is dropped |
//! | [`Scheduled`] | has set `SCHEDULED`, and with it the task's node | spawn, wake, abort, or from a `LightTask` | when the task is queued |
//! | [`LightTask`] | has set `SCHEDULED` of a light task: its place in the queues and its next poll | spawn, wake, abort | in a poll, or in its continuation in the color |
//! | [`Unfinished`] | has the future: it holds the color or owns the `LightTask`, and the task is not done | from a turn of the color, or a `LightTask` | when the task pauses, or as an `Ended` |
//! | [`Ended`] | has stored the output, which no other thread knows yet | a poll, or dropping the future | [`Ended::finish`] |
//!
//! A task that is not done has its own count. So the last three types keep it alive; the last one
//! gives up that count.

use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr::NonNull;
use std::task::{Context, Waker};

use super::{
    BACKGROUND, COLORED, DONE, FAILED, HOME_SHIFT, Header, JOINED, JOINER, Outcome, SCHEDULED, Side, TaskRef,
    TaskVTable, WOKEN, memory,
};
use crate::color::Color;
use crate::color::cell::ColorCell;
use crate::color::node::OwnedNode;
use crate::color::rights::Hold;
use crate::hold;
use crate::post;
use crate::runtime::context;
use crate::runtime::shared::Shared;
use crate::sync::atomic::Ordering::*;
use crate::sync::refs;
use crate::task::light;
use crate::task::waker::raw_waker;

/// A task that is alive for `'a`. Like a reference to the whole block of memory, not only to the
/// header.
#[derive(Clone, Copy)]
pub(crate) struct LiveTask<'a>(NonNull<Header>, PhantomData<&'a Header>);

/// The right to queue a task.
#[must_use = "the task would never be polled"]
pub(super) struct Scheduled<'a> {
    task: LiveTask<'a>,
    colored: bool,
}

/// The right to queue a light task, and to poll it when its turn comes.
#[must_use = "the task would never be polled"]
pub(crate) struct LightTask(Unfinished);

/// The right to the future of a task that is not done. Until then the task has its own count.
pub(crate) struct Unfinished(ManuallyDrop<TaskRef>);

/// A task with a stored but unpublished output.
#[must_use = "the task would never end"]
pub(crate) struct Ended {
    /// With the task's own count.
    task: ManuallyDrop<TaskRef>,
    failed: bool,
}

/// A task after a poll: its future, or its output.
#[must_use = "the task may have ended"]
pub(crate) struct Polled {
    task: ManuallyDrop<TaskRef>,
    outcome: Outcome,
}

/// The state of a light task after its poll, by what happened during the poll.
pub(super) enum Paused {
    /// It waits for a wake.
    Waits,
    /// It waits; the caller releases the color that was made meanwhile.
    WaitsInColor(NonNull<ColorCell>),
    /// It was woken, and will be polled again.
    Woken(LightTask),
    /// It was woken, and has a color.
    WokenInColor(LightTask),
}

impl<'a> LiveTask<'a> {
    /// # Safety
    /// The task is alive for `'a`: another value with that lifetime has a count, or the right to
    /// its future.
    #[inline]
    pub(crate) unsafe fn new(task: NonNull<Header>) -> LiveTask<'a> {
        LiveTask(task, PhantomData)
    }

    #[inline]
    pub(crate) fn pointer(self) -> NonNull<Header> {
        self.0
    }

    #[inline]
    pub(crate) fn header(self) -> &'a Header {
        // SAFETY: alive for `'a`; only atomics and cells of the header change.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn vtable(self) -> &'static TaskVTable {
        // SAFETY: a task's node was made with its `TaskVTable`.
        unsafe { &*self.header().node.task_vtable().cast::<TaskVTable>() }
    }

    /// The runtime of the task, which keeps it.
    #[inline]
    pub(crate) fn shared(self) -> &'a Shared {
        memory::shared_of(self)
    }

    pub(crate) fn retain(self) -> TaskRef {
        refs::add(&self.header().refs);
        TaskRef(self.0)
    }

    /// The color of the task, if it was requested.
    pub(crate) fn color(self) -> Option<&'a Color> {
        self.header().side().and_then(Side::color)
    }

    /// Whether this thread, which polls the task, will poll it again, as far as the state says: the
    /// state does not note wakes of a light task by its own worker.
    pub(crate) fn is_woken(self) -> bool {
        // Relaxed: for this thread's own changes.
        let state = self.header().state.load(Relaxed);
        state & if state & COLORED == 0 { WOKEN } else { SCHEDULED } != 0
    }
}

impl<'a> Scheduled<'a> {
    /// # Safety
    /// SCHEDULED belongs to the caller, which set it when the task was not done; the task had its
    /// color then if `colored`, or else was light.
    #[inline]
    pub(super) unsafe fn new(task: LiveTask<'a>, colored: bool) -> Scheduled<'a> {
        Scheduled { task, colored }
    }

    /// Makes the task be polled: queues it with the light tasks, or its node, with a count of its
    /// own, in its color.
    #[inline]
    pub(super) fn enqueue(self) {
        let task = self.task;
        if !self.colored {
            return light::enqueue(LightTask(Unfinished::of(task.0)));
        }
        let color = task.color().expect("COLORED comes after the color").alive();
        mem::forget(task.retain());
        // SAFETY: SCHEDULED, and so the node, is ours; it has a count from here on.
        post::place(color, unsafe { OwnedNode::from_raw(task.pointer().cast()) });
    }
}

impl LightTask {
    /// # Safety
    /// The task is light, and SCHEDULED belongs to the caller: it set it, or has it from
    /// [`LightTask::into_raw`].
    #[inline]
    pub(super) unsafe fn from_raw(task: NonNull<Header>) -> LightTask {
        LightTask(Unfinished::of(task))
    }

    #[inline]
    pub(super) fn into_raw(self) -> NonNull<Header> {
        self.0.0.0
    }

    #[inline]
    pub(super) fn task(&self) -> LiveTask<'_> {
        self.0.task()
    }

    /// For a poll, or for dropping the future.
    #[inline]
    pub(super) fn unfinished(self) -> Unfinished {
        self.0
    }
}

impl Unfinished {
    /// # Safety
    /// This thread is in a turn of the task's color, or holds it, and the task is not done. The
    /// thread gives up the result before it releases the color.
    pub(super) unsafe fn in_color(task: LiveTask<'_>) -> Unfinished {
        Unfinished::of(task.0)
    }

    fn of(task: NonNull<Header>) -> Unfinished {
        Unfinished(ManuallyDrop::new(TaskRef(task)))
    }

    #[inline]
    pub(crate) fn task(&self) -> LiveTask<'_> {
        self.0.task()
    }

    /// Polls.
    #[inline]
    pub(super) fn poll(self) -> Polled {
        // SAFETY: the waker borrows the task's own count, and is not dropped.
        let waker = ManuallyDrop::new(unsafe { Waker::from_raw(raw_waker(self.0.0)) });
        // SAFETY: the future is ours, because the task is not done.
        let outcome = unsafe { (self.task().vtable().poll)(self.task(), Some(&mut Context::from_waker(&waker))) };
        Polled { task: self.0, outcome }
    }

    /// Drops the future.
    pub(super) fn abort(self) -> Ended {
        // SAFETY: as in `poll`.
        let outcome = unsafe { (self.task().vtable().poll)(self.task(), None) };
        Ended { task: self.0, failed: outcome == Outcome::Failed }
    }

    /// Ends a task that will not be polled any more.
    pub(super) fn drop_unpolled(self) {
        // Relaxed: it never changes.
        if self.task().header().state.load(Relaxed) & BACKGROUND == 0 {
            // Relaxed: for statistics.
            self.task().shared().tasks_dropped.fetch_add(1, Relaxed);
        }
        self.abort().finish();
    }

    /// Gives up the future of a light task after a poll on that worker; no thread-local note of the
    /// poll is left.
    ///
    /// # Safety
    /// It comes from a [`LightTask`], and the poll did not continue as a turn of the color.
    pub(super) unsafe fn pause(self, worker: usize) -> Paused {
        let state = &self.task().header().state;
        // Relaxed: the exchange decides.
        let mut old = state.load(Relaxed);
        loop {
            let home = (worker as u32) << HOME_SHIFT;
            let new = match old & (WOKEN | COLORED) {
                0 => old & !SCHEDULED & ((1 << HOME_SHIFT) - 1) | home,
                COLORED => old & !SCHEDULED,
                _ => old & !WOKEN,
            };
            // AcqRel: releases the poll to the next one; acquires what the waker did, and the
            // color.
            match state.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        match old & (WOKEN | COLORED) {
            0 => Paused::Waits,
            // The color is held for this poll, so the task is still ours.
            COLORED => Paused::WaitsInColor(self.task().color().expect("COLORED comes after the color").cell()),
            WOKEN => Paused::Woken(LightTask(self)),
            _ => Paused::WokenInColor(LightTask(self)),
        }
    }
}

impl Polled {
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.outcome == Outcome::Pending
    }

    #[inline]
    pub(super) fn result(self) -> Result<Ended, Unfinished> {
        match self.outcome {
            Outcome::Pending => Err(Unfinished(self.task)),
            outcome => Ok(Ended { task: self.task, failed: outcome == Outcome::Failed }),
        }
    }
}

impl Ended {
    fn task(&self) -> LiveTask<'_> {
        self.task.task()
    }

    /// Publishes the output. A task that may have a grant has a record, made at the latest when its
    /// future was dropped.
    #[inline]
    pub(super) fn finish(self) {
        if self.task().header().side().is_some() { self.finish_granted() } else { self.publish() }
    }

    fn finish_granted(self) {
        // The grants are over, but each has a count on the task, which has one on it.
        let kept = self.task().retain();
        self.publish();
        kept.header().revoke_grants();
    }

    /// Publishes the output, and gives up the task's own count. If the color of a light task was
    /// requested meanwhile, releases it.
    fn publish(self) {
        let task = self.task();
        let header = task.header();
        let mut dropped = false;
        // Acquire, here and below: without JOINED the handle was dropped.
        let mut state = header.state.load(Acquire);
        let was_light = loop {
            if state & JOINED == 0 && !dropped {
                // Before DONE, after which any thread may have the color: this counts as running.
                // SAFETY: no handle is left, nor will be, so the output is ours.
                unsafe { (task.vtable().take)(task, self.failed, None) };
                dropped = true;
                state = header.state.load(Acquire);
            }
            // For a light task SCHEDULED says that it is polled; for a colored one, that the node
            // is queued again.
            let light = context::polls_light(task);
            let over = if light { SCHEDULED | WOKEN } else { 0 };
            let done = DONE | if self.failed { FAILED } else { 0 };
            // AcqRel: releases the output to the joiner; acquires that the handle is gone.
            match header.state.compare_exchange_weak(state, state & !over | done, AcqRel, Acquire) {
                Ok(_) => break light,
                Err(now) => state = now,
            }
        };
        if state & (JOINED | JOINER) == JOINED | JOINER {
            // A joiner stores its waker and changes the state afterwards: either we see the bit, or
            // it sees DONE.
            let joiner = header.side().and_then(|side| side.joiner.lock().take());
            if let Some(joiner) = joiner {
                joiner.wake();
            }
        }
        if state & BACKGROUND == 0 {
            // Relaxed: a count; see `spawn`.
            task.shared().tasks_live.fetch_sub(1, Relaxed);
        }
        if was_light && state & COLORED != 0 {
            let color = task.color().expect("COLORED comes after the color");
            // SAFETY: held since it was made, for the poll that ends here.
            hold::release(unsafe { Hold::new(color.cell(), false) });
        }
        drop(ManuallyDrop::into_inner(self.task));
    }
}
