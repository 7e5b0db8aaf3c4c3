//! The driver of a machine in a simulation, which has no threads of a program's own: a task. Its rounds run in the blocking pool.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use dapple_io::blocking::spawn_blocking;
use dapple_io::time::sleep_until;
use dapple_sched::foreign::KeptWaker;
use dapple_tower::switch::lock;

use super::log::Storage;
use super::machine::Machine;
use super::node::{Engine, Input, Role, Running, Shared};

impl<R: Role, S: Storage> Engine<R, S> {
    /// As `run`, without a thread.
    pub(super) async fn drive(mut self) {
        let (shared, start) = (self.shared.clone(), self.start);
        let end = self.outbox.clone().end_when_dropped();
        // The first round does what recovery left to do.
        let mut inputs = VecDeque::new();
        loop {
            let round = spawn_blocking(move || {
                let is_over = match self.round(inputs) {
                    Ok(()) => false,
                    Err(error) => {
                        self.stop(error);
                        true
                    }
                };
                (self, is_over)
            });
            let Ok((engine, is_over)) = round.await else {
                shared.fail_by_panic();
                break;
            };
            self = engine;
            if is_over {
                break;
            }
            let due = self.role.machine().due();
            let Some(next) = wait(&shared, start, due).await else { break };
            inputs = next;
        }
        drop(end);
    }
}

/// The new inputs, empty if a timer is due; `None` when the node should stop.
async fn wait<C>(shared: &Arc<Shared<C>>, start: Instant, due: Option<Duration>) -> Option<VecDeque<Input<C>>> {
    let mut timer = pin!(due.map(|due| sleep_until(start + due)));
    poll_fn(|cx| {
        let is_due = timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
        let waker = KeptWaker::from(cx.waker());
        let mut inbox = lock(&shared.inbox);
        if !inbox.inputs.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut inbox.inputs)));
        }
        if matches!(inbox.state, Running::Stopping) {
            return Poll::Ready(None);
        }
        if is_due {
            return Poll::Ready(Some(VecDeque::new()));
        }
        let old = inbox.waker.replace(waker);
        drop(inbox);
        drop(old);
        Poll::Pending
    })
    .await
}
