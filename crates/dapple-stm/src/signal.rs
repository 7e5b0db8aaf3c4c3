//! Wakes a waiting transaction: a task through its waker, a plain thread through a condition
//! variable.

use std::task::{Context, Poll};

use dapple_sched::foreign::KeptWaker;

use crate::sync::{Condvar, Mutex, lock};

/// Set once. Shared by the waiter and the lists that it is in.
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    set: bool,
    waker: Option<KeptWaker>,
}

impl Signal {
    pub(crate) fn new() -> Signal {
        Signal { state: Mutex::new(State { set: false, waker: None }), changed: Condvar::new() }
    }

    pub(crate) fn set(&self) {
        let waker = {
            let mut state = lock(&self.state);
            state.set = true;
            state.waker.take()
        };
        self.changed.notify_one();
        // Outside of the lock: a waker is foreign code.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Cloning and dropping wakers is foreign code, too.
        let waker = KeptWaker::from(cx.waker());
        let _old = {
            let mut state = lock(&self.state);
            if state.set {
                return Poll::Ready(());
            }
            state.waker.replace(waker)
        };
        Poll::Pending
    }

    pub(crate) fn is_set(&self) -> bool {
        lock(&self.state).set
    }

    pub(crate) fn wait(&self) {
        let mut state = lock(&self.state);
        while !state.set {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}
