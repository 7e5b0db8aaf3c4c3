//! A limit on concurrent queries, first come, first served.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::lock::Mutex;
use crate::oneshot;

/// See the module's text.
pub(super) struct Limit(Mutex<State>);

struct State {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
    /// When this many wait, those that have gone away are removed.
    prune_at: usize,
}

/// The right to be one of the concurrent queries. Dropping it admits the next one.
pub(super) struct Permit(Arc<Limit>);

impl Limit {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Limit(Mutex::new(State { free: max.max(1), waiting: VecDeque::new(), prune_at: PRUNE_FROM })))
    }

    /// Waits for a permit. Cancel safe: a dropped wait gives up its place in the queue.
    pub(super) async fn enter(self: &Arc<Self>) -> Permit {
        let receiver = {
            let mut state = self.0.lock();
            if state.free > 0 {
                state.free -= 1;
                return Permit(self.clone());
            }
            if state.waiting.len() >= state.prune_at {
                state.waiting.retain(|waiting| !waiting.is_forsaken());
                state.prune_at = (state.waiting.len() * 2).max(PRUNE_FROM);
            }
            let (sender, receiver) = oneshot::channel();
            state.waiting.push_back(sender);
            receiver
        };
        receiver.await.expect("a limit that is waited for keeps its row")
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        loop {
            let next = {
                let mut state = self.0.0.lock();
                match state.waiting.pop_front() {
                    Some(next) => next,
                    None => {
                        state.free += 1;
                        return;
                    }
                }
            };
            // A waiter that goes away right now drops the permit, which passes it on.
            if !next.is_forsaken() {
                next.send(Permit(self.0.clone()));
                return;
            }
        }
    }
}

const PRUNE_FROM: usize = 64;

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn the_limit_holds_and_waiters_that_leave_are_skipped() {
        let limit = Limit::new(1);
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = pin!(limit.enter());
        let std::task::Poll::Ready(permit) = first.as_mut().poll(&mut cx) else { panic!("there is room") };
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(limit.enter())).collect();
        for one in &mut waiting {
            assert!(one.as_mut().poll(&mut cx).is_pending());
        }
        let mut last = waiting.pop().unwrap();
        drop(waiting);
        let mut more = Box::pin(limit.enter());
        assert!(more.as_mut().poll(&mut cx).is_pending());
        assert!(limit.0.lock().waiting.len() <= 1001, "waiters that left are removed in time");
        drop(permit);
        let std::task::Poll::Ready(permit) = last.as_mut().poll(&mut cx) else { panic!("it is its turn") };
        assert!(more.as_mut().poll(&mut cx).is_pending());
        drop(more);
        drop(permit);
        assert_eq!(limit.0.lock().free, 1);
    }
}
