//! Callbacks for descriptors that can be read or written.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::Callback;

use super::{Cancel, Registration};
use crate::driver::{Descriptor, Direction, Entry, Source, Waiter};
use crate::lock::Mutex;

/// Calls the callback when the descriptor is readable, and again after each run while it still is
/// (level semantics, the papers' `fdcb`). An end of the stream and an error count as readable: the
/// read tells which.
///
/// For descriptors of other code; the streams of this crate have `on_readable` methods, which cost
/// fewer system calls. The descriptor is duplicated. So the registration keeps working, and keeps
/// the file open, even when the original is closed, and a later descriptor with the same number
/// does not affect it. It should be non-blocking.
///
/// Costs three system calls, and one more per event.
///
/// # Errors
///
/// There is no runtime here, no descriptor is left for the duplicate, or this kind of file cannot
/// be awaited (regular files are always ready).
pub fn on_readable(fd: impl AsFd, callback: Callback<()>) -> io::Result<Registration> {
    watch_foreign(fd, Direction::Read, callback)
}

/// Calls the callback when the descriptor is writable, and again after each run while it still is:
/// cancel it when the program has no more to write. Otherwise as [`on_readable`].
///
/// # Errors
///
/// As [`on_readable`].
pub fn on_writable(fd: impl AsFd, callback: Callback<()>) -> io::Result<Registration> {
    watch_foreign(fd, Direction::Write, callback)
}

/// Watches a source of this crate for as long as it lives.
pub(crate) fn watch<T: Descriptor>(source: &Source<T>, direction: Direction, callback: Callback<()>) -> Registration {
    if let Err(error) = source.watch() {
        tracing::error!(%error, "a descriptor cannot be watched");
        // The user of the source learns of it, too.
        source.entry().close();
    }
    Watch::start(source.entry().clone(), None, direction, callback)
}

fn watch_foreign(fd: impl AsFd, direction: Direction, callback: Callback<()>) -> io::Result<Registration> {
    let duplicate = fd.as_fd().try_clone_to_owned()?;
    // Unlike our own streams, other code does not report that a read found nothing, so wait for the
    // kernel's report.
    let source = Source::connecting(duplicate)?;
    let entry = source.entry().clone();
    Ok(Watch::start(entry, Some(source), direction, callback))
}

/// One callback and the direction that it waits for. When the driver wakes it, it posts the
/// callback, and after it, in the same color, a callback that waits again.
struct Watch {
    entry: Arc<Entry>,
    /// The duplicate of another code's descriptor, which must be asked again after each run.
    foreign: Mutex<Option<Source<OwnedFd>>>,
    direction: Direction,
    /// Checked when a posted run starts.
    canceled: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    /// `None` after a cancel.
    callback: Option<Callback<()>>,
    /// The place among the waiters of the entry.
    place: Option<u64>,
}

impl Watch {
    fn start(
        entry: Arc<Entry>,
        foreign: Option<Source<OwnedFd>>,
        direction: Direction,
        callback: Callback<()>,
    ) -> Registration {
        let watch = Arc::new(Watch {
            entry,
            foreign: Mutex::new(foreign),
            direction,
            canceled: Arc::default(),
            state: Mutex::new(State { callback: Some(callback), place: None }),
        });
        watch.wait();
        Registration::new(watch)
    }

    /// Waits for readiness, or continues at once if the source is ready.
    fn wait(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut cx = Context::from_waker(&waker);
        let outcome = {
            let mut state = self.state.lock();
            if state.callback.is_none() {
                return;
            }
            let waiter = Waiter::Listed(&mut state.place);
            self.entry.poll_ready(&mut cx, self.direction, waiter)
        };
        match outcome {
            Poll::Pending => {}
            Poll::Ready(Ok(_)) => self.call(),
            Poll::Ready(Err(_)) => self.cancel(),
        }
    }

    fn call(self: &Arc<Self>) {
        let Some(callback) = self.state.lock().callback.clone() else {
            return;
        };
        let watch = self.clone();
        callback.call_unless(&self.canceled, ());
        // A color keeps its order, so this runs after the callback.
        callback.color().post(move || watch.call_done());
    }

    fn call_done(self: &Arc<Self>) {
        let asked = match &*self.foreign.lock() {
            Some(source) => source.rearm(self.direction),
            None => Ok(()),
        };
        match asked {
            Ok(()) => self.wait(),
            Err(error) => {
                tracing::error!(%error, "a descriptor can no longer be watched");
                self.cancel();
            }
        }
    }
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.wait();
    }
}

impl Cancel for Watch {
    fn cancel(&self) {
        // Release pairs with the look in `Callback::call_unless`.
        self.canceled.store(true, Ordering::Release);
        let (callback, place) = {
            let mut state = self.state.lock();
            (state.callback.take(), state.place.take())
        };
        if let Some(place) = place {
            self.entry.forget(self.direction, place);
        }
        let foreign = self.foreign.lock().take();
        drop((callback, foreign));
    }
}
