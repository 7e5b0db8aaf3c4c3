//! The signal that a runtime is about to shut down, for tasks that want to finish.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use crate::runtime::foreign::KeptWaker;
use crate::runtime::shared::Shared;
use crate::sync::atomic::{AtomicBool, Ordering::*};

/// Whether the runtime is closing, and the waiters for that.
pub(crate) struct Closing {
    /// Set before the waiters are woken. A separate flag, without the lock, because tasks may check
    /// it in every poll.
    closing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, KeptWaker>,
    next_key: u64,
}

impl Closing {
    pub(crate) fn new() -> Closing {
        Closing { closing: AtomicBool::new(false), state: Mutex::new(State::default()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Wakes all waiters.
    pub(super) fn announce(&self) {
        // Release pairs with the acquire in `Closed::poll`.
        self.closing.store(true, Release);
        let waiting = std::mem::take(&mut self.state().waiting);
        waiting.into_values().for_each(KeptWaker::wake);
    }
}

/// The future of [`crate::Handle::closing`].
///
/// Cancel safety: it can be dropped and made again at any time.
pub struct Closed {
    shared: Arc<Shared>,
    /// The key of its stored waker, and a copy to compare with.
    waiting: Option<(u64, KeptWaker)>,
}

impl Closed {
    pub(crate) fn new(shared: Arc<Shared>) -> Closed {
        Closed { shared, waiting: None }
    }
}

impl Future for Closed {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let closing = &this.shared.closing;
        let waker = cx.waker();
        if !this.waiting.as_ref().is_some_and(|(_, kept)| kept.will_wake(waker)) {
            // Before the lock: a clone is foreign code.
            let (copy, stored) = (KeptWaker::from(waker), KeptWaker::from(waker));
            let old = {
                let mut state = closing.state();
                let key = this.waiting.as_ref().map_or(state.next_key, |(key, _)| *key);
                state.next_key = state.next_key.max(key + 1);
                (this.waiting.replace((key, copy)), state.waiting.insert(key, stored))
            };
            drop(old);
        }
        // Acquire pairs with the release in `announce`. After the waker is stored: `announce` takes
        // the wakers after it has set the flag.
        if closing.closing.load(Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl fmt::Debug for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").field("waiting", &self.waiting.is_some()).finish()
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        if let Some((key, _)) = &self.waiting {
            let waker = self.shared.closing.state().waiting.remove(key);
            drop(waker);
        }
    }
}
