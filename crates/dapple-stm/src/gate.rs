//! The serial path: one transaction at a time, in the order of arrival.
//!
//! The holder of the pass locks each variable at its first touch and keeps it until the end, so
//! none of its reads can change and its attempt cannot fail. It may wait for locks while it holds
//! some, because all other transactions release their locks instead of waiting, and none of them
//! has the pass.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::shared;
use crate::signal::Signal;
use crate::sync::{Mutex, lock};

/// Admits one transaction at a time.
pub(crate) struct Gate(Mutex<State>);

struct State {
    taken: bool,
    queue: VecDeque<(u64, Arc<Signal>)>,
}

/// A place in the queue, or the pass that was handed to it. Its drop leaves the queue or passes the
/// pass on.
pub(crate) struct QueuePass {
    id: u64,
    signal: Arc<Signal>,
    over: bool,
}

/// The right to run alone on the serial path.
pub(crate) struct Pass(());

impl Gate {
    // Not `const` in the models: their locks are not.
    #[cfg(not(any(dapple_loom, dapple_shuttle)))]
    pub(crate) const fn new() -> Gate {
        Gate(Mutex::new(State { taken: false, queue: VecDeque::new() }))
    }

    #[cfg(any(dapple_loom, dapple_shuttle))]
    pub(crate) fn new() -> Gate {
        Gate(Mutex::new(State { taken: false, queue: VecDeque::new() }))
    }

    /// Takes a place at the end of the queue.
    pub(crate) fn queue(&self) -> QueuePass {
        let place = QueuePass { id: shared::next_id(), signal: Arc::new(Signal::new()), over: false };
        let mut state = lock(&self.0);
        if state.taken {
            state.queue.push_back((place.id, place.signal.clone()));
        } else {
            state.taken = true;
            drop(state);
            place.signal.set();
        }
        place
    }

    fn hand_over(&self) {
        let next = {
            let mut state = lock(&self.0);
            let next = state.queue.pop_front();
            state.taken = next.is_some();
            next
        };
        if let Some((_, signal)) = next {
            signal.set();
        }
    }
}

impl QueuePass {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Pass> {
        self.signal.poll(cx).map(|()| self.pass())
    }

    /// The pass, if this place got it at once.
    pub(crate) fn take(mut self) -> Option<Pass> {
        self.signal.is_set().then(|| self.pass())
    }

    pub(crate) fn wait(mut self) -> Pass {
        self.signal.wait();
        self.pass()
    }

    fn pass(&mut self) -> Pass {
        self.over = true;
        Pass(())
    }
}

impl Drop for QueuePass {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = lock(&shared::gate().0);
        let queued = state.queue.iter().position(|(id, _)| *id == self.id);
        if let Some(index) = queued {
            state.queue.remove(index);
            return;
        }
        drop(state);
        // Not in the queue and not used, so it has the pass.
        shared::gate().hand_over();
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        shared::gate().hand_over();
    }
}
