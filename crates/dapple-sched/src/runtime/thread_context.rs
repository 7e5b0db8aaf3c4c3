//! Code of a program around everything that runs on a runtime's threads, such as the context of
//! another library.

use std::io;
use std::sync::Arc;

use crate::runtime::context::WorkerScope;
use crate::runtime::foreign;
use crate::runtime::shared::Shared;
use crate::runtime::{Builder, Handle, MakePolicy};
use crate::worker::Worker;

/// Code that surrounds each thread of a runtime, so that its thread-local settings hold in every
/// poll and callback; see [`Builder::thread_context`]. The crate `dapple` has one for tokio.
pub trait ThreadContext: Send + Sync + 'static {
    /// Calls `run` once, on the calling thread, and returns after it.
    ///
    /// A worker's `run` lasts as long as the worker; that of a thread in
    /// [`block_on`](crate::block_on) as long as its future.
    fn around(&self, run: &mut dyn FnMut());

    /// The workers have stopped and the driver is shut down. The last worker calls this, inside its
    /// own `around`. Other threads may still be inside theirs, and more may still come.
    fn shutdown(&self) {}
}

impl Builder {
    /// The context around everything that the runtime runs: on each worker for the worker's whole
    /// life, on each thread that runs a future by [`block_on`](crate::block_on) while this runtime
    /// is current, and on the threads of the blocking pool. [`Builder::build`] calls `make` once.
    /// Default: none. Cost: two calls for each thread, none for a poll.
    ///
    /// A panic of [`ThreadContext::around`] on a worker goes to the panic handler; the worker runs
    /// in any case.
    ///
    /// ```
    /// use dapple_sched::{Runtime, ThreadContext};
    /// use std::cell::Cell;
    /// use std::sync::Arc;
    ///
    /// thread_local!(static DEPTH: Cell<u32> = const { Cell::new(0) });
    ///
    /// struct Counted;
    /// impl ThreadContext for Counted {
    ///     fn around(&self, run: &mut dyn FnMut()) {
    ///         DEPTH.set(DEPTH.get() + 1);
    ///         run();
    ///         DEPTH.set(DEPTH.get() - 1);
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().thread_context(|| Ok(Arc::new(Counted))).build()?;
    /// assert_eq!(runtime.block_on(runtime.spawn(async { DEPTH.get() })).unwrap(), 1);
    /// assert_eq!(runtime.block_on(async { DEPTH.get() }), 1);
    /// assert_eq!(DEPTH.get(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn thread_context(mut self, make: impl FnOnce() -> io::Result<Arc<dyn ThreadContext>> + 'static) -> Builder {
        self.thread_context = Some(Box::new(make));
        self
    }
}

impl Handle {
    /// Runs a part of this runtime on the calling thread, with the runtime's [`ThreadContext`]
    /// around it: for the threads of a driver.
    ///
    /// # Panics
    /// As `run` and the context do.
    #[doc(hidden)]
    pub fn in_thread_context<R>(&self, run: impl FnOnce() -> R) -> R {
        let Some(context) = &self.shared().thread_context else { return run() };
        let (mut run, mut result) = (Some(run), None);
        context.around(&mut || {
            if let Some(run) = run.take() {
                result = Some(run());
            }
        });
        result.expect("ThreadContext::around must call its argument")
    }
}

/// A worker's thread.
pub(super) fn work(shared: Arc<Shared>, index: usize, policy: Option<MakePolicy>) {
    let mut body = Some(|| {
        foreign::contain_for(&shared, || shared.driver.attach(index));
        let worker = Worker::new(shared.clone(), index);
        let _scope = WorkerScope::enter(&worker);
        if let Some(make) = policy {
            worker.adopt_policy(|| make(index));
        }
        worker.run();
    });
    let mut run = || {
        if let Some(body) = body.take() {
            body();
        }
    };
    if let Some(context) = &shared.thread_context {
        foreign::contain_for(&shared, || context.around(&mut run));
    }
    // Without a context, or if the context has not called it.
    run();
}
