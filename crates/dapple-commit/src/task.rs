//! The driver of a machine in a simulation, which has no threads of a program's own: a task. Its steps run in the blocking pool.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::{Duration, Instant};

use dapple_io::blocking::spawn_blocking;
use dapple_io::time::sleep_until;
use dapple_sched::foreign::KeptWaker;
use dapple_tower::switch::lock;

use super::log::Storage;
use super::machine::Machine;
use super::node::{Engine, Inputs, Role, Shared};

impl<R: Role, S: Storage> Engine<R, S> {
    /// As `run`, without a thread.
    pub(super) async fn drive(mut self) {
        let (shared, start) = (self.shared.clone(), self.start);
        let end = self.outbox.clone().end_when_dropped();
        let mut next = Some(Inputs::new());
        while let Some(inputs) = next {
            let step = spawn_blocking(move || (self.step(inputs), self));
            let Ok((goes_on, engine)) = step.await else {
                shared.fail_by_panic();
                break;
            };
            self = engine;
            if !goes_on {
                break;
            }
            let due = self.role.machine().due();
            next = wait(&shared, start, due).await;
        }
        drop(end);
    }
}

/// Waits for [`Inbox::next`](super::node::Inbox::next).
async fn wait<C>(shared: &Shared<C>, start: Instant, due: Option<Duration>) -> Option<Inputs<C>> {
    let mut timer = pin!(due.map(|due| sleep_until(start + due)));
    poll_fn(|cx| {
        let is_due = timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
        let waker = KeptWaker::from(cx.waker());
        let mut inbox = lock(&shared.inbox);
        let next = inbox.next(is_due);
        let old = if next.is_pending() { inbox.waker.replace(waker) } else { None };
        drop(inbox);
        drop(old);
        next
    })
    .await
}
