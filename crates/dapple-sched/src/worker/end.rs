//! The end of a worker, which drops everything that can no longer run.

use std::mem;

use super::Worker;
use crate::color::holder::Holder;
use crate::hold;
use crate::post::afterwards::{Afterwards, pass_on};
use crate::runtime::foreign;
use crate::runtime::switches;
use crate::sync::atomic::Ordering::*;

impl Worker {
    /// The worker's last act: drops everything that can no longer run, each thing while its color
    /// is held.
    pub(crate) fn exit(&self) {
        // Acquire pairs with the subtraction by workers that have ended.
        if switches::shared_queue() && self.shared.workers_alive.load(Acquire) > 1 {
            return self.leave_shared_queue();
        }
        let mut afterwards = Afterwards::new();
        self.drop_policy();
        let mut queue = self.lock_own();
        self.end_last_turn(&mut queue, &mut afterwards);
        self.end_stretch(&mut queue);
        queue.closed = true;
        let light = mem::take(&mut queue.light);
        let mut colors = Vec::new();
        while let Some(turn) = queue.pop() {
            colors.push(turn.at_home(&mut queue, |mut home, turn| home.hold_after(turn, Holder::Dropping, None)));
        }
        drop(queue);
        afterwards.settle(&self.shared);
        let mut news = self.slot().close_remote();
        while let Some(notified) = news.pop() {
            pass_on(notified);
        }
        colors.into_iter().for_each(hold::release);
        Worker::drop_light_tasks(light);
        self.locals.drop_all(&self.shared);
        // AcqRel: the last one sees everything that the others did.
        if self.shared.workers_alive.fetch_sub(1, AcqRel) == 1 {
            crate::task::drop_all(&self.shared);
            foreign::contain(|| self.shared.driver.shutdown());
            // Values that their destructors have made.
            self.locals.drop_all(&self.shared);
            if let Some(context) = &self.shared.thread_context {
                foreign::contain(|| context.shutdown());
            }
        }
    }

    /// Leaves; the last worker drops the rest of the one queue.
    fn leave_shared_queue(&self) {
        let mut afterwards = Afterwards::new();
        let mut queue = self.lock_own();
        if !queue.closed {
            self.end_last_turn(&mut queue, &mut afterwards);
        }
        drop(queue);
        afterwards.settle(&self.shared);
        // AcqRel: as in `exit`.
        if self.shared.workers_alive.fetch_sub(1, AcqRel) == 1 {
            self.shared.workers_alive.fetch_add(1, AcqRel);
            self.exit();
        }
    }
}
