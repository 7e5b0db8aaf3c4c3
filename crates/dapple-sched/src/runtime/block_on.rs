//! Running a future on a plain thread.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use crate::runtime::context;
use crate::runtime::driver::Outside;
use crate::runtime::foreign;
use crate::runtime::shared::Shared;
use crate::runtime::{self, Handle};
use crate::sync::atomic::{AtomicU8, Ordering::*};
use crate::sync::{self, Thread};
use crate::task::budget;

/// Runs a future on the calling thread until it is ready. Tasks that it spawns run on the workers
/// of the current runtime.
///
/// # Panics
/// On a worker, because it must not block (C9); and while the thread holds a color, because the
/// thread could wait for itself.
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
    let presence = Presence::begin();
    if presence.0.is_none() {
        runtime::check_process();
    }
    match &presence.0 {
        Some(runtime) => runtime.in_thread_context(|| drive(future, &presence)),
        None => drive(future, &presence),
    }
}

impl Handle {
    /// Runs a future on the calling thread until it is ready, with this as the current runtime: for
    /// plain threads without a [`Runtime`](crate::Runtime) at hand. If the runtime shuts down
    /// meanwhile it drops its tasks, and the future learns of it from the tasks that it awaits.
    ///
    /// # Panics
    /// As [`block_on`](crate::block_on).
    ///
    /// ```
    /// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
    /// let handle = runtime.handle().clone();
    /// let thread = std::thread::spawn(move || handle.block_on(async { dapple_sched::spawn(async { 6 * 7 }).await }));
    /// assert_eq!(thread.join().unwrap().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.shared().check_process();
        let _entered = self.enter();
        block_on(future)
    }
}

fn drive<F: Future>(future: F, presence: &Presence) -> F::Output {
    let parker = Arc::new(Parker { thread: sync::current(), state: AtomicU8::new(RUNS), runtime: presence.weak() });
    let waker = Waker::from(parker.clone());
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    budget::with_own(&parker, |budget| {
        loop {
            budget.begin();
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            parker.wait();
        }
    })
}

/// Tells the driver that this thread takes part in the current runtime, until dropped.
struct Presence(Option<Handle>);

impl Presence {
    fn begin() -> Presence {
        let presence = Presence(Handle::try_current());
        presence.tell(Outside::Begins);
        presence
    }

    /// For wakers: the runtime may own them, so they must not keep it alive.
    fn weak(&self) -> Weak<Shared> {
        self.0.as_ref().map_or(Weak::new(), |runtime| Arc::downgrade(runtime.shared()))
    }

    fn tell(&self, news: Outside) {
        if let Some(runtime) = &self.0 {
            let shared = runtime.shared();
            foreign::contain_for(shared, || shared.driver.outside(news));
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.tell(Outside::Ends);
    }
}

/// The waker of a waiting thread. All changes of its `state` are read-modify-writes:
///
/// | from | to | by |
/// |---|---|---|
/// | `RUNS` | `WAITS` | the thread, with a pending future |
/// | any | `WOKEN` | the waker; if the thread waits (`WAITS`), it tells the driver before, and unparks the thread afterwards |
/// | `WOKEN` | `RUNS` | the thread, which polls again |
pub(crate) struct Parker {
    thread: Thread,
    state: AtomicU8,
    runtime: Weak<Shared>,
}

impl Parker {
    /// Whether the future will be polled again without waiting.
    pub(crate) fn is_woken(&self) -> bool {
        // Relaxed: for this thread's own wakes. `wait` acquires those of others.
        self.state.load(Relaxed) == WOKEN
    }

    /// Waits until the waker has been called since the poll began.
    fn wait(&self) {
        // AcqRel, all three: everything before the wake is visible to the next poll.
        if self.state.compare_exchange(RUNS, WAITS, AcqRel, Acquire).is_ok() {
            self.tell(Outside::Waits);
            // `park` may return for no reason, and the future may unpark this thread for reasons of
            // its own.
            while self.state.load(Acquire) == WAITS {
                sync::park();
            }
        }
        self.state.swap(RUNS, AcqRel);
    }

    fn tell(&self, news: Outside) {
        if let Some(runtime) = self.runtime.upgrade() {
            foreign::contain_for(&runtime, || runtime.driver.outside(news));
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Acquire, and AcqRel below, which pairs with `wait`.
        let mut state = self.state.load(Acquire);
        loop {
            if state == WAITS {
                // Before the change: after it the thread may run at once, and must be counted by
                // then.
                self.tell(Outside::Woken);
            }
            match self.state.compare_exchange(state, WOKEN, AcqRel, Acquire) {
                Ok(WAITS) => return self.thread.unpark(),
                Ok(_) => return,
                Err(now) => {
                    if state == WAITS {
                        // Another thread was faster.
                        self.tell(Outside::Waits);
                    }
                    state = now;
                }
            }
        }
    }
}

const RUNS: u8 = 0;
const WAITS: u8 = 1;
const WOKEN: u8 = 2;
