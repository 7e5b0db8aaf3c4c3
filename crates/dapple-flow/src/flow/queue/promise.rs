//! A reserved place in a queue for an item to come.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::state::Shared;
use super::{PopError, Queue, WhenFull};

/// Reserves a place until its item comes, or this is dropped. So a completion is neither lost nor
/// delayed, and the queue stays bounded: a request without a reserved place does not begin.
///
/// A queue that drops its oldest needs no reservation: it always has room.
pub(crate) struct Promise<T> {
    shared: Arc<Shared<T>>,
    kept: usize,
}

impl<T> Promise<T> {
    /// Reserves a place now.
    pub(crate) fn try_new(queue: &Queue<T>) -> Result<Promise<T>, PopError> {
        let shared = queue.shared.clone();
        let keeps = shared.when_full != WhenFull::DropOldest;
        let mut state = shared.state.lock();
        if state.is_closed {
            return Err(PopError::Closed);
        }
        if keeps {
            if !state.gate.try_take() {
                return Err(PopError::Empty);
            }
            state.promised += 1;
        }
        drop(state);
        Ok(Promise { shared, kept: usize::from(keeps) })
    }

    /// Reserves a place when there is one. `queue` is a handle that no other code polls.
    pub(crate) fn poll_new(queue: &mut Queue<T>, cx: &Context<'_>) -> Poll<Result<Promise<T>, PopError>> {
        if queue.shared.when_full == WhenFull::DropOldest {
            return Poll::Ready(Promise::try_new(queue));
        }
        queue.poll_one_room(cx).map(|room| {
            room?;
            queue.room -= 1;
            queue.shared.state.lock().promised += 1;
            Ok(Promise { shared: queue.shared.clone(), kept: 1 })
        })
    }

    /// Delivers the promised item.
    pub(crate) fn keep(mut self, item: T) {
        if self.kept == 0 {
            // If it was closed meanwhile, it takes nothing.
            let _ = self.shared.push_now(item);
            return;
        }
        self.kept = 0;
        // A closed queue still takes a promised item.
        let _ = self.shared.push_taken(item, true);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.shared.return_room(self.kept, self.kept);
    }
}
