//! Turns inside turns: a task that waits for the color which has its turn is polled right there; and turns that end before the
//! callback does which they are in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use super::{Cut, Ending, Worker};
use crate::color::cell::{ColorCell, State};
use crate::color::rights::{ColorRef, ColorTurn, HomeGuard};
use crate::post::afterwards::Afterwards;
use crate::runtime::context::{self, Frame};
use crate::runtime::shared::Running;
use crate::sync::atomic::Ordering::*;
use crate::task::TaskRef;

impl Worker {
    /// Ends the turn of a color before the callback that it is in, for a waiter that was polled in it and is through
    /// with the state: what else its task does is not to keep others from the color.
    ///
    /// # Safety
    /// The callback that is in the turn relies on it no more.
    pub(crate) unsafe fn release_turn(&self, color: NonNull<ColorCell>) {
        // It may be a turn inside the worker's own.
        let own = self.frame.color() == Some(color);
        // SAFETY: promised by the caller.
        let Some(turn) = (unsafe { context::release_turn_of(color) }) else { return };
        if own && self.frame.is_released() {
            self.ran.set((turn.color().ran() - self.began.get()) as u32);
            self.interrupt();
        }
        self.end_turn_now(turn, Ending { cut: Cut::Early, ..Ending::SIMPLE });
    }

    /// Polls a task right inside the current turn, which is that of the color it waits for. `begun` is called once the
    /// task's color is ours, and wakes the task. False: the color is not free.
    ///
    /// The task is polled and nothing else, although something may have been posted to its color since we saw that it was
    /// free. Who runs in here has all that this thread holds further out; and a turn that was cut off before the task's
    /// poll would cost it its place in the order of what it waits for.
    pub(crate) fn nested_turn(&self, task: &TaskRef, begun: impl FnOnce()) -> bool {
        let Some(turn) = self.begin_nested_turn(task.color().alive()) else { return false };
        let id = turn.color().id;
        let told = self.slot().replace_running(Running::Color(id), None);
        let left = context::in_turn(turn, |frame| {
            let color = frame.color();
            // It wakes, and a waker may be anybody's code.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(begun)) {
                crate::runtime::panics::report(&self.shared, color, payload);
            }
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.poll_nested(frame, task))) {
                crate::runtime::panics::report(&self.shared, frame.color(), payload);
            }
        });
        self.slot().replace_running(told.0, told.1);
        self.slot().counters.turn(1);
        left.into_iter().for_each(|turn| self.end_nested_turn(turn));
        true
    }

    /// Begins a turn of an idle color that is at home here, or can be brought here.
    fn begin_nested_turn(&self, color: ColorRef<'_>) -> Option<ColorTurn> {
        let mut queue = self.lock_own();
        // Relaxed: our lock is held, and `adopt` checks a home elsewhere.
        let home = usize::from(color.home.load(Relaxed));
        if home != self.index && !self.adopt(&mut queue, color, home) {
            return None;
        }
        let mut home = HomeGuard::of(&mut *queue, color)?;
        let free = home.state() == State::Idle && !color.inbox_waits();
        if free { home.begin_turn(self) } else { None }
    }

    /// Polls the task, in a turn of its color.
    fn poll_nested(&self, frame: &Frame, task: &TaskRef) {
        let color = task.color().alive();
        if frame.color() != Some(color.ptr()) {
            return;
        }
        // SAFETY: the frame has a turn of the task's color, from whose fifo the node comes.
        unsafe {
            match frame.take_if_next(task.node()) {
                Some(node) => self.run_node(color, node),
                None => task.poll_here(),
            }
        }
    }

    /// Ends a turn that is not the worker's own.
    pub(crate) fn end_nested_turn(&self, turn: ColorTurn) {
        self.end_turn_now(turn, Ending::SIMPLE);
    }

    fn end_turn_now(&self, turn: ColorTurn, ending: Ending) {
        let mut afterwards = Afterwards::new();
        let mut queue = self.lock_own();
        self.end_turn(&mut queue, turn, ending, None, &mut afterwards);
        drop(queue);
        afterwards.settle(&self.shared);
    }
}
