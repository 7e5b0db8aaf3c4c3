//! A worker's queue of light tasks to be polled. Part of its run queue, under the home lock.
//!
//! Tasks are linked through their nodes, in chunks of up to [`CHUNK`], so that a thief takes half
//! of ten million by moving some thousand chunks. As in the run queue there are two lists. Tasks
//! woken from outside (other threads, I/O events, timers) are in the express one, which has a share
//! of the polls, half by default, so that they start soon even if millions of tasks always have
//! more to do.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};

use super::Header;
use super::rights::LightTask;
use crate::worker::TINY_CALLBACK_NS;
use crate::worker::tuning::{Credit, Share};

/// Light tasks to be polled.
#[derive(Default)]
pub(crate) struct LightQueue {
    ordinary: List,
    express: List,
    /// Polls, and tasks that callbacks of this worker have woken or started; halved together, so
    /// that they describe the recent past.
    polls: u32,
    wakes: u32,
    /// Mean time of a poll, sampled; 0 if unknown.
    pub(crate) mean_ns: u32,
    /// Whether tasks go before colors next, if one of the two kinds is from outside.
    pub(crate) turn: Credit,
    /// Whether the next task is one from outside, if both kinds wait.
    express_turn: Credit,
    /// The number of polls that tasks get before the next color, times the number of colors.
    pub(crate) credit: usize,
}

#[derive(Default)]
struct List {
    chunks: VecDeque<Chunk>,
    len: usize,
}

/// Light tasks in order, linked through their nodes.
pub(super) struct Chunk {
    /// Null, like `tail`, if there are none.
    head: *mut Header,
    tail: *mut Header,
    len: u32,
}

// SAFETY: its tasks are queued, and so belong to the chunk; tasks are `Send`.
unsafe impl Send for Chunk {}

impl LightQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.ordinary.len + self.express.len
    }

    /// Whether a task waits that was woken from outside.
    pub(crate) fn has_express(&self) -> bool {
        self.express.len > 0
    }

    /// Queues a task at the end.
    #[inline]
    pub(super) fn push(&mut self, task: LightTask, express: bool) {
        let list = if express { &mut self.express } else { &mut self.ordinary };
        list.append(Chunk::of(task));
    }

    /// Takes up to `max` tasks, and calls `to` with each and its index. Takes from both lists, by
    /// the share of the express one. Returns their number.
    #[inline]
    pub(super) fn take(&mut self, max: usize, event_share: Share, mut to: impl FnMut(usize, LightTask)) -> usize {
        let mut taken = 0;
        while self.express.len > 0 && taken < max {
            let takes_express = self.ordinary.len == 0 || self.express_turn.goes(event_share);
            let list = if takes_express { &mut self.express } else { &mut self.ordinary };
            let Some(task) = list.pop() else { break };
            to(taken, task);
            taken += 1;
        }
        if taken < max {
            // The next task from outside does not wait.
            self.express_turn.alone(false);
        }
        while taken < max && self.ordinary.len > 0 {
            taken += self.ordinary.take_run(max - taken, |at, task| to(taken + at, task));
        }
        taken
    }

    /// Takes the next task.
    pub(super) fn pop(&mut self) -> Option<LightTask> {
        self.express.pop().or_else(|| self.ordinary.pop())
    }

    /// Queues tasks at the end, in order.
    #[inline]
    pub(super) fn append(&mut self, tasks: impl Iterator<Item = LightTask>) {
        let mut chunk = Chunk::EMPTY;
        tasks.for_each(|task| chunk.push(Chunk::of(task)));
        if chunk.len > 0 {
            self.ordinary.append(chunk);
        }
    }

    /// Counts polls of tasks.
    pub(super) fn note_polls(&mut self, polls: u32) {
        self.polls += polls;
        if self.polls >= HISTORY_POLLS {
            self.polls /= 2;
            self.wakes /= 2;
        }
    }

    /// Counts a task that a callback of this worker has woken or started.
    pub(super) fn note_wake(&mut self) {
        self.wakes = self.wakes.saturating_add(1);
    }

    /// Whether moving tasks to another core gains more than its traffic between cores costs. A task
    /// that another one wakes would then be woken from the other core, so its own work must
    /// outweigh that.
    fn pays(&self) -> bool {
        self.mean_ns == 0
            || u64::from(self.mean_ns) * u64::from(self.polls) >= u64::from(TINY_CALLBACK_NS) * u64::from(self.wakes)
    }

    /// Moves half of the victim's tasks here, or `all`; `any` tasks, or only if stealing them pays.
    /// Returns their number.
    pub(crate) fn steal(&mut self, theirs: &mut LightQueue, all: bool, any: bool) -> usize {
        if !any && !theirs.pays() {
            return 0;
        }
        if self.mean_ns == 0 {
            self.mean_ns = theirs.mean_ns;
        }
        self.express.steal(&mut theirs.express, all) + self.ordinary.steal(&mut theirs.ordinary, all)
    }
}

impl List {
    /// Adds tasks to the last chunk, or as a chunk of their own if that one is full.
    #[inline]
    fn append(&mut self, more: Chunk) {
        self.len += more.len as usize;
        match self.chunks.back_mut() {
            Some(last) if last.len < CHUNK => last.push(more),
            _ => self.chunks.push_back(more),
        }
    }

    /// Takes up to `max` tasks of the first chunk.
    #[inline]
    fn take_run(&mut self, max: usize, to: impl FnMut(usize, LightTask)) -> usize {
        let Some(first) = self.chunks.front_mut() else { return 0 };
        let taken = first.take(max, to);
        self.len -= taken;
        if first.len == 0 {
            self.chunks.pop_front();
        }
        taken
    }

    #[inline]
    fn pop(&mut self) -> Option<LightTask> {
        let mut popped = None;
        self.take_run(1, |_, task| popped = Some(task));
        popped
    }

    /// Moves the older half, in whole chunks if there are several.
    fn steal(&mut self, theirs: &mut List, all: bool) -> usize {
        let before = self.len;
        if all {
            self.len += theirs.len;
            theirs.len = 0;
            self.chunks.append(&mut theirs.chunks);
        } else if theirs.chunks.len() > 1 {
            for chunk in theirs.chunks.drain(..theirs.chunks.len() / 2) {
                theirs.len -= chunk.len as usize;
                self.len += chunk.len as usize;
                self.chunks.push_back(chunk);
            }
        } else {
            for _ in 0..theirs.len.div_ceil(2).min(STEAL_SINGLY) {
                let Some(task) = theirs.pop() else { break };
                self.append(Chunk::of(task));
            }
        }
        self.len - before
    }
}

impl Chunk {
    pub(super) const EMPTY: Chunk = Chunk { head: ptr::null_mut(), tail: ptr::null_mut(), len: 0 };

    #[inline]
    pub(super) fn of(task: LightTask) -> Chunk {
        let task = task.into_raw().as_ptr();
        Chunk { head: task, tail: task, len: 1 }
    }

    /// Adds tasks at the end.
    #[inline]
    pub(super) fn push(&mut self, more: Chunk) {
        // SAFETY: tasks in a chunk are alive.
        match unsafe { self.tail.as_ref() } {
            Some(last) => last.node().next.set(more.head.cast()),
            None => self.head = more.head,
        }
        self.tail = more.tail;
        self.len += more.len;
    }

    /// Takes up to `max` tasks off the front. Returns their number.
    #[inline]
    fn take(&mut self, max: usize, mut to: impl FnMut(usize, LightTask)) -> usize {
        let run = max.min(self.len as usize);
        let mut next = self.head;
        for at in 0..run {
            // SAFETY: the chunk has at least `run` tasks. Each came from `of`, and leaves the
            // chunk here. The link of the last one is not followed.
            let task = unsafe { LightTask::from_raw(NonNull::new_unchecked(next)) };
            next = task.task().header().node().next.get().cast();
            to(at, task);
        }
        self.head = next;
        self.len -= run as u32;
        if self.len == 0 {
            *self = Chunk::EMPTY;
        }
        run
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<LightTask> {
        let mut popped = None;
        self.take(1, |_, task| popped = Some(task));
        popped
    }
}

/// The number of tasks in a chunk, after which a new one begins.
const CHUNK: u32 = if cfg!(any(dapple_loom, dapple_shuttle)) { 2 } else { 1_024 };

/// If there is only one chunk, a thief takes its tasks one by one, at most this many.
const STEAL_SINGLY: usize = 64;

/// After this many polls the counters of the recent past are halved.
const HISTORY_POLLS: u32 = 4_096;

#[cfg(all(test, not(any(dapple_loom, dapple_shuttle))))]
mod tests {
    use std::ptr;

    use super::*;
    use crate::color::node::Node;
    use crate::sync::atomic::AtomicU32;

    /// Takes `places` stretches of `max` tasks, and queues each task again in its list; returns the
    /// number of tasks from outside.
    fn from_outside(share: Share, max: usize, places: usize) -> usize {
        let task = || Header {
            node: Node::of_task(ptr::null(), ptr::null_mut()),
            state: AtomicU32::new(0),
            refs: AtomicU32::new(0),
        };
        let tasks: Vec<Header> = (0..2 * max).map(|_| task()).collect();
        let mut queue = LightQueue::default();
        // SAFETY: this thread alone has the tasks, and each is in no queue when it is queued.
        let light = |at: usize| unsafe { LightTask::from_raw(NonNull::from(&tasks[at])) };
        let push = |queue: &mut LightQueue, at: usize| queue.push(light(at), at < max);
        (0..tasks.len()).for_each(|at| push(&mut queue, at));
        let mut outside = 0;
        for _ in 0..places / max {
            let mut taken = Vec::new();
            queue.take(max, share, |_, task| taken.push(task.into_raw()));
            assert_eq!(taken.len(), max);
            for task in taken {
                let at = tasks.iter().position(|known| ptr::eq(known, task.as_ptr())).expect("it is one of them");
                outside += usize::from(at < max);
                push(&mut queue, at);
            }
        }
        outside
    }

    #[test]
    fn tasks_from_outside_have_their_share_of_stretches_of_any_length() {
        for max in [1, 2, 3, 32] {
            for (share, one_of) in [(Share::HALF, 2), (Share::one_of(8), 8)] {
                let outside = from_outside(share, max, 960);
                assert!(outside.abs_diff(960 / one_of) <= 1, "stretches of {max}, one of {one_of}: {outside} of 960");
            }
        }
    }
}
