//! A description of a poll, in the words of its program, for the report of a slow callback.

use std::fmt::Display;
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::runtime::context;

/// The same future, with a description: if a poll of it takes too long, the report shows it
/// ([`SlowCallback::about`](crate::SlowCallback::about)).
///
/// For code that polls futures of others, as a server polls handlers: the line that spawned the
/// task is in the server, and does not help the user. The text is made only for a report. Cost: two
/// uncontended locks a poll.
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
        // SAFETY: the future is structurally pinned: never moved out, and there is no `Drop`. The
        // rest is only read.
        let (about, future) = unsafe {
            let this = self.get_unchecked_mut();
            (&this.about, Pin::new_unchecked(&mut this.future))
        };
        showing(about, || future.poll(cx))
    }
}

/// Runs `poll` while this worker shows the description.
fn showing<R>(about: &(dyn Display + Sync), poll: impl FnOnce() -> R) -> R {
    struct Restore(Option<Shown>);
    impl Drop for Restore {
        fn drop(&mut self) {
            context::with_worker(|worker| worker.slot().about.replace(self.0.take()));
        }
    }
    // SAFETY: only the lifetime changes. This function takes the reference back before it ends,
    // even by a panic; readers hold the lock that it takes for that.
    let about =
        unsafe { mem::transmute::<*const (dyn Display + Sync + '_), *const (dyn Display + Sync + 'static)>(about) };
    let before = context::with_worker(|worker| worker.slot().about.replace(Some(Shown(about))));
    let _restore = before.map(Restore);
    poll()
}

/// The description of a worker's poll, if it has one.
#[derive(Default)]
pub(crate) struct About(Mutex<Option<Shown>>);

/// Lives as long as it is in an [`About`].
struct Shown(*const (dyn Display + Sync));

// SAFETY: it is a shared reference to a `Sync` value.
unsafe impl Send for Shown {}

impl About {
    /// As a text.
    pub(crate) fn text(&self) -> Option<String> {
        let shown = self.lock();
        let shown = shown.as_ref()?;
        // SAFETY: it lives as long as it is here, and no thread takes it out while this one has the
        // lock.
        let about = unsafe { &*shown.0 };
        catch_unwind(AssertUnwindSafe(|| about.to_string())).ok()
    }

    fn replace(&self, shown: Option<Shown>) -> Option<Shown> {
        mem::replace(&mut *self.lock(), shown)
    }

    /// A panic in foreign code is caught under this lock, so poison means nothing.
    fn lock(&self) -> MutexGuard<'_, Option<Shown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
