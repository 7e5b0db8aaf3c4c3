//! Waits on a plain thread, with a limit.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use dapple_sched::environment;

/// Drives a future on the calling thread, at most for `limit`. Needs no runtime, and so no timer of
/// one.
///
/// Panics where `block_on` does: on a worker, and while the thread holds a color.
pub(super) fn block_on_for<F: Future>(limit: Option<Duration>, future: F) -> Option<F::Output> {
    let Some(limit) = limit else { return Some(dapple_sched::block_on(future)) };
    // For its panics on a misuse.
    dapple_sched::block_on(std::future::ready(()));
    let start = environment::now();
    let parker = Arc::new(Parker { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(parker.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Some(output);
        }
        // Acquire pairs with the store in `wake_by_ref`.
        while !parker.is_woken.swap(false, Ordering::Acquire) {
            let left = limit.saturating_sub(environment::now() - start);
            if left.is_zero() {
                return None;
            }
            thread::park_timeout(left);
        }
    }
}

struct Parker {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release pairs with the swap in `block_on_for`.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
