//! Nested turns: polls a task in the turn of the color that it waits for. It also ends turns before
//! their callbacks do.

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
    /// Ends the turn of a color before its callback, for a waiter that was polled in it and no
    /// longer needs the state: the rest of the waiter's poll must not keep others from the color.
    ///
    /// # Safety
    /// The callback in the turn no longer relies on it.
    pub(crate) unsafe fn release_turn(&self, color: NonNull<ColorCell>) {
        // It may be a nested turn.
        let own = self.frame.color() == Some(color);
        // SAFETY: promised by the caller.
        let Some(turn) = (unsafe { context::release_turn_of(color) }) else { return };
        if own && self.frame.is_released() {
            self.ran.set((turn.color().ran() - self.began.get()) as u32);
            self.interrupt();
        }
        let waiting = self.end_turn_now(turn, Ending { cut: Cut::Early, ..Ending::SIMPLE });
        self.offer_released(waiting);
    }

    /// Polls a task inside the current turn, which is of the color that the task waits for.
    /// `begun`, which wakes the task, is called once this thread has the task's own color. False if
    /// that color is not free.
    ///
    /// Polls only the task, even if posts have come to its color since the color was seen to be
    /// free. Other callbacks here would run while the outer frames of this thread hold their
    /// colors. And if the turn was cut off before the task's poll, the task would lose its place in
    /// the order of the color that it waits for.
    pub(crate) fn nested_turn(&self, task: &TaskRef, begun: impl FnOnce()) -> bool {
        let Some(turn) = self.begin_nested_turn(task.color().alive()) else { return false };
        let id = turn.color().id;
        let told = self.slot().replace_running(Running::Color(id), None);
        let left = context::in_turn(turn, |frame| {
            let color = frame.color();
            // It wakes the task, and a waker may be foreign code.
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

    /// Begins a turn of an idle color that is at home here, or can move here.
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
        // SAFETY: the frame has a turn of the task's color, and the node comes from that color's
        // fifo.
        unsafe {
            match frame.take_if_next(task.node()) {
                Some(node) => self.run_node(color, node),
                None => task.poll_here(),
            }
        }
    }

    /// Ends a turn other than the worker's own.
    pub(crate) fn end_nested_turn(&self, turn: ColorTurn) {
        self.end_turn_now(turn, Ending::SIMPLE);
    }

    /// Returns the number of turns that wait here now.
    fn end_turn_now(&self, turn: ColorTurn, ending: Ending) -> usize {
        let mut afterwards = Afterwards::new();
        let mut queue = self.lock_own();
        self.end_turn(&mut queue, turn, ending, None, &mut afterwards);
        let waiting = queue.turns_waiting();
        drop(queue);
        afterwards.settle(&self.shared);
        waiting
    }
}
