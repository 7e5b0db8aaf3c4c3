//! What a poll is about, in the words of its program, for the report of a slow callback.

use std::fmt::Display;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::runtime::context;

/// The same future, and what it is about: should a poll of it take too long, the report says that
/// ([`SlowCallback::about`](crate::SlowCallback::about)).
///
/// For code that polls what others wrote, as a server does with handlers: the line that spawned the task is its own, and tells
/// the user nothing. The text is made when it is needed. Cost: two uncontended locks a poll.
///
/// Cancel safety: as the future inside.
///
/// ```
/// use std::sync::{Mutex, mpsc};
/// use std::time::Duration;
/// use dapple_sched::{Runtime, described};
///
/// let (tx, reports) = mpsc::channel();
/// let tx = Mutex::new(tx);
/// let runtime = Runtime::builder()
///     .workers(1)
///     .slow_callback(Duration::from_millis(1), move |slow| drop(tx.lock().unwrap().send(slow.about.clone())))
///     .build()?;
/// let task = runtime.spawn(described("GET /report", async move {
///     reports.recv() // blocks, until that is reported
/// }));
/// assert_eq!(runtime.block_on(task).unwrap().unwrap().as_deref(), Some("GET /report"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn described<D: Display + Sync, F: Future>(about: D, future: F) -> Described<D, F> {
    Described { about, future }
}

/// The future of [`described`].
#[derive(Clone, Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Described<D, F> {
    about: D,
    future: F,
}

impl<D: Display + Sync, F: Future> Future for Described<D, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is structurally pinned: never moved out, and there is no `Drop`. The rest is only read.
        let (about, future) = unsafe {
            let this = self.get_unchecked_mut();
            (&this.about, Pin::new_unchecked(&mut this.future))
        };
        showing(about, || future.poll(cx))
    }
}

/// Runs `poll` while this worker shows what it is about.
fn showing<R>(about: &(dyn Display + Sync), poll: impl FnOnce() -> R) -> R {
    struct Restore(Option<Shown>);
    impl Drop for Restore {
        fn drop(&mut self) {
            context::with_worker(|worker| worker.slot().about.replace(self.0.take()));
        }
    }
    // SAFETY: only the lifetime changes. It is taken back before this function ends, also by a panic, and is read under the
    // lock that this takes.
    let about =
        unsafe { mem::transmute::<*const (dyn Display + Sync + '_), *const (dyn Display + Sync + 'static)>(about) };
    let before = context::with_worker(|worker| worker.slot().about.replace(Some(Shown(about))));
    let _restore = before.map(Restore);
    poll()
}

/// What a worker's poll is about, if it says so.
#[derive(Default)]
pub(crate) struct About(Mutex<Option<Shown>>);

/// Lives as long as it stands in an [`About`].
struct Shown(*const (dyn Display + Sync));

// SAFETY: it is a shared reference to what is `Sync`.
unsafe impl Send for Shown {}

impl About {
    /// As a text.
    pub(crate) fn text(&self) -> Option<String> {
        let shown = self.lock();
        let shown = shown.as_ref()?;
        // SAFETY: it lives as long as it stands here, and no thread takes it out while we have the lock.
        let about = unsafe { &*shown.0 };
        catch_unwind(AssertUnwindSafe(|| about.to_string())).ok()
    }

    fn replace(&self, shown: Option<Shown>) -> Option<Shown> {
        mem::replace(&mut *self.lock(), shown)
    }

    /// A panic in code of others is caught under it: poison means nothing.
    fn lock(&self) -> MutexGuard<'_, Option<Shown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
