//! tokio's context on all threads of a runtime: libraries made for tokio run inside Dapple's tasks as they are.
//!
//! ```
//! use dapple_io::tokio_compat::BuilderExt;
//!
//! let runtime = dapple_io::runtime_builder().tokio().build()?;
//! let task = runtime.spawn(async {
//!     // A timer of tokio's and a task of tokio's, inside a task of Dapple's.
//!     tokio::time::sleep(std::time::Duration::from_millis(1)).await;
//!     tokio::spawn(async { 6 * 7 }).await
//! });
//! assert_eq!(runtime.block_on(task)??, 42);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The thread of each kind of work:
//!
//! | what | runs on |
//! |---|---|
//! | a task of [`dapple::spawn`](dapple_sched::spawn), and every future that it awaits | Dapple's workers, in its color |
//! | the wait for `tokio::net` sockets and `tokio::time` timers | tokio's driver, which wakes Dapple's task |
//! | a task of `tokio::spawn`, also if a library calls it | tokio's threads, outside of all colors |
//! | `tokio::fs`, `tokio::task::spawn_blocking` | tokio's blocking pool |
//!
//! Cost: each worker, and each thread of the blocking pool, enters tokio's context once and keeps
//! it until it ends; a thread in [`Runtime::block_on`](dapple_sched::Runtime::block_on) keeps it
//! until its future has resolved. No poll and no callback costs more. A wake-up by tokio's driver
//! comes from another thread, and costs more than one by Dapple's own sockets and timers.
//!
//! Without the context, `async_compat::CompatExt::compat` around one future does the same for that future.
//!
//! Three things to know:
//!
//! - The clock of `#[dapple::test]` stands still without regard to tokio's timers and sockets.
//!   Write `clock = "real"` if a test waits for these.
//! - [`Runtime::shutdown`](dapple_sched::Runtime::shutdown) waits for Dapple's tasks, and not for
//!   tokio's.
//! - A thread of the program's own gets the context only in
//!   [`Runtime::block_on`](dapple_sched::Runtime::block_on) and [`wait`](dapple_sched::block_on);
//!   the guard of [`Runtime::enter`](dapple_sched::Runtime::enter) does not set it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use dapple_sched::{Builder, ThreadContext};
use tokio::runtime;

/// The settings of [`Builder`] that bring tokio's context; see the [module](self).
pub trait BuilderExt: Sized + sealed::Sealed {
    /// Puts the context of a tokio runtime of Dapple's own around every poll and callback.
    ///
    /// That runtime has one thread, `dapple-tokio`, for its sockets, its timers and the tasks of `tokio::spawn`, and a blocking
    /// pool with threads that start when they are needed. It ends with Dapple's runtime, which drops the tasks that are left in it and
    /// does not wait for them.
    fn tokio(self) -> Self;

    /// As [`BuilderExt::tokio`], with the tokio runtime of that handle, which the program keeps running.
    ///
    /// A current-thread runtime drives its sockets and timers only while a thread is in its `block_on`.
    ///
    /// ```
    /// use dapple_io::tokio_compat::BuilderExt;
    ///
    /// let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    /// let runtime = dapple_io::runtime_builder().tokio_handle(tokio.handle().clone()).build()?;
    /// let there = runtime.block_on(async { tokio::runtime::Handle::current().id() });
    /// assert_eq!(there, tokio.handle().id());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn tokio_handle(self, handle: runtime::Handle) -> Self;
}

impl BuilderExt for Builder {
    fn tokio(self) -> Builder {
        self.thread_context(|| Ok(Arc::new(Context::start()?)))
    }

    fn tokio_handle(self, handle: runtime::Handle) -> Builder {
        self.thread_context(|| Ok(Arc::new(Context::of(handle))))
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for dapple_sched::Builder {}
}

/// The context of a tokio runtime: the program's, or one of Dapple's own, which ends with this value. For Dapple's crates, and no
/// stable interface.
#[doc(hidden)]
pub struct Context {
    handle: runtime::Handle,
    /// `None` for a runtime of the program's, and once Dapple's own has ended.
    own: Mutex<Option<runtime::Runtime>>,
}

impl Context {
    /// A tokio runtime of Dapple's own, with one thread.
    pub fn start() -> io::Result<Context> {
        let mut builder = runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("dapple-tokio").enable_all().build()?;
        Ok(Context { handle: runtime.handle().clone(), own: Mutex::new(Some(runtime)) })
    }

    /// A runtime of the program's.
    pub fn of(handle: runtime::Handle) -> Context {
        Context { handle, own: Mutex::new(None) }
    }

    /// The calling thread has this context until the guard is dropped.
    pub fn enter(&self) -> runtime::EnterGuard<'_> {
        self.handle.enter()
    }
}

impl ThreadContext for Context {
    fn around(&self, run: &mut dyn FnMut()) {
        let _entered = self.enter();
        run();
    }

    fn shutdown(&self) {
        let runtime = self.own.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            // Its drop would wait for its threads, and would panic on a thread of tokio's.
            runtime.shutdown_background();
        }
    }
}

/// Needed if no end of a runtime calls `shutdown`: the Dapple runtime could not be built, its
/// workers do not end, or a server has ended.
impl Drop for Context {
    fn drop(&mut self) {
        self.shutdown();
    }
}
