//! Turns inside turns: a task that waits for the color which has its turn is polled right there; and turns that end before the
//! callback does which they are in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::{Cut, Ending, Worker, begin_turn};
use crate::color::cell::{ColorCell, State};
use crate::color::rights::ColorRef;
use crate::post::afterwards::Afterwards;
use crate::runtime::context;
use crate::runtime::shared::Running;
use crate::sync::atomic::Ordering::*;
use crate::task::TaskRef;

impl Worker {
    /// Ends the turn of a color before the callback that it is in, for a waiter that was polled in it and is through
    /// with the state: what else its task does is not to keep others from the color.
    ///
    /// # Safety
    /// The color is alive and `Running` here.
    pub(crate) unsafe fn release_turn(&self, color: NonNull<ColorCell>) {
        // It may be a turn inside the worker's own.
        let own = self.frame.color() == Some(color);
        if !context::release_turn_of(color) {
            return;
        }
        if own && self.frame.is_released() {
            // SAFETY: promised by the caller; its turn ends below.
            self.ran.set((unsafe { color.as_ref() }.ran() - self.began.get()) as u32);
            self.interrupt();
        }
        let mut afterwards = Afterwards::new();
        let mut queue = self.lock_own();
        // SAFETY: promised by the caller; the turn's own code no longer touches the color, as its frame says.
        unsafe {
            let ending = Ending { cut: Cut::Early, ..Ending::SIMPLE };
            self.end_turn(&mut queue, color, ending, None, &mut afterwards);
        };
        drop(queue);
        afterwards.settle(&self.shared);
    }

    /// Polls a task right inside the current turn, which is that of the color it waits for. `begun` is called once the
    /// task's color is ours, and wakes the task. False: the color is not free.
    ///
    /// The task is polled and nothing else, although something may have been posted to its color since we saw that it was
    /// free. Who runs in here has all that this thread holds further out; and a turn that was cut off before the task's
    /// poll would cost it its place in the order of what it waits for.
    ///
    /// # Safety
    /// The task is of this runtime.
    pub(crate) unsafe fn nested_turn(&self, task: &TaskRef, begun: impl FnOnce()) -> bool {
        let color = task.color_cell();
        // SAFETY: a task has a handle to its color.
        let cell = unsafe { color.as_ref() };
        let mut queue = self.lock_own();
        // SAFETY: the state is read under the home lock, ours from here on.
        unsafe {
            // Relaxed: our lock is held, and `adopt` checks a home elsewhere.
            let home = usize::from(cell.home.load(Relaxed));
            let here = if home == self.index {
                cell.state() == State::Idle && !cell.inbox_waits()
            } else {
                self.adopt(&mut queue, ColorRef::new(color), home)
            };
            if !here {
                return false;
            }
            begin_turn(cell);
            // It was not queued, so there is nothing that a cut could leave as it was.
            cell.links(|links| links.queued_rank = 0);
        }
        drop(queue);
        let told = self.slot().replace_running(Running::Color(cell.id), None);
        let released = context::in_frame(color, true, |frame| {
            // It wakes, and a waker may be anybody's code.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(begun)) {
                crate::runtime::panics::report(&self.shared, frame.color(), payload);
            }
            // SAFETY: the color is `Running` here, so its fifo is ours, and what is popped is.
            let run = || unsafe {
                cell.fifo().drain_inbox();
                if cell.fifo().is_next(task.node())
                    && let Some(node) = cell.fifo().take_next()
                {
                    self.run_node(ColorRef::new(color), node);
                } else {
                    task.poll_here();
                }
            };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
                crate::runtime::panics::report(&self.shared, frame.color(), payload);
            }
            frame.is_released()
        });
        self.slot().replace_running(told.0, told.1);
        self.slot().counters.turn(1);
        if !released {
            // SAFETY: the turn is over, and the color is `Running` here.
            unsafe { self.end_nested_turn(color) };
        }
        true
    }

    /// Ends a turn that is not the worker's own.
    ///
    /// # Safety
    /// The turn is over, and the color is `Running` here.
    pub(crate) unsafe fn end_nested_turn(&self, color: NonNull<ColorCell>) {
        let mut afterwards = Afterwards::new();
        let mut queue = self.lock_own();
        // SAFETY: promised by the caller; its home is this worker.
        unsafe {
            self.end_turn(&mut queue, color, Ending::SIMPLE, None, &mut afterwards);
        }
        drop(queue);
        afterwards.settle(&self.shared);
    }
}
