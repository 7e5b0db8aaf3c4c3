//! The news that a runtime is about to shut down, for tasks that want to finish.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::shared::Shared;

/// Whether the runtime is closing, and who waits for that.
pub(crate) struct Closing {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closing: bool,
    waiting: BTreeMap<u64, Waker>,
    next_key: u64,
}

impl Closing {
    pub(crate) fn new() -> Closing {
        Closing { state: Mutex::new(State::default()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Wakes everybody who waits.
    pub(crate) fn announce(&self) {
        let waiting = {
            let mut state = self.state();
            state.closing = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}

/// The future of [`crate::Handle::closing`].
///
/// Cancel safety: it can be dropped and made again at any time.
pub struct Closed {
    shared: Arc<Shared>,
    key: Option<u64>,
}

impl Closed {
    pub(crate) fn new(shared: Arc<Shared>) -> Closed {
        Closed { shared, key: None }
    }
}

impl Future for Closed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let this = &mut *self;
        let old = {
            let mut state = this.shared.closing.state();
            if state.closing {
                return Poll::Ready(());
            }
            let key = *this.key.get_or_insert_with(|| {
                state.next_key += 1;
                state.next_key
            });
            state.waiting.insert(key, waker)
        };
        drop(old);
        Poll::Pending
    }
}

impl fmt::Debug for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").field("waiting", &self.key.is_some()).finish()
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.shared.closing.state().waiting.remove(&key);
            drop(waker);
        }
    }
}
