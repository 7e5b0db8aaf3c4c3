//! Running a future on a plain thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::context;

/// Runs a future on the calling thread until it is ready. The tasks that it spawns run on the workers of the current
/// runtime.
///
/// # Panics
/// On a worker, which must not block (C9), and while the thread holds a color, which could wait for itself.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// use dapple_sched::{block_on, spawn};
///
/// let task = spawn(async { "from a worker" });
/// assert_eq!(block_on(task).unwrap(), "from a worker");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    assert!(
        !context::on_worker(),
        "block_on would block a worker: inside a task use .await, inside a callback spawn a task"
    );
    assert!(
        context::depth() == 0,
        "block_on inside a closure that holds a state can deadlock: return first, then wait"
    );
    let parker = Arc::new(Parker { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(parker.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        // Acquire pairs with the store in `wake_by_ref`.
        // `park` may return for no reason, and the future may unpark this thread for reasons of its own.
        while !parker.woken.swap(false, Acquire) {
            thread::park();
        }
    }
}

struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Release pairs with the swap in `block_on`.
        self.woken.store(true, Release);
        self.thread.unpark();
    }
}
