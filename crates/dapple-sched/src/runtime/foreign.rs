//! Foreign code in the middle of the runtime's own work: wakers, their clones and drops, handlers,
//! payloads of panics.
//!
//! Such code may panic. A panic must not end a loop over other wakers, and must not leave a state,
//! a count or a thread-local half changed. So every waker that a Dapple crate stores is a
//! [`KeptWaker`], and every other foreign call in such a place goes through [`contain`]. A
//! contained panic is counted and goes to the panic handler of the thread's runtime, or to stderr
//! on a thread without a runtime.
//!
//! Do not call these functions under a lock: take the waker out first. Cloning a waker is foreign
//! code, too, but it runs in a poll of its own future, and a panic goes to that poll. Clone before
//! taking the lock.
//!
//! | foreign code | where its panic goes |
//! |---|---|
//! | a waker that is called or dropped | here; other wakers are still called |
//! | a waker that is cloned | to the code that polls the future |
//! | a closure, a future, state that is dropped in a color | the end of that callback or task (C8) |
//! | the payload of a panic that is dropped | [`discard`] |
//! | the panic handler | nowhere: it is dropped |
//! | the handler of slow callbacks, a driver | here |
//! | an observer | dropped silently, and the observer stays in use |
//! | a policy | the panic handler; the default policy replaces it |

use std::any::Any;
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, RawWakerVTable, Wake, Waker};

use crate::runtime::Handle;
use crate::runtime::panics;
use crate::runtime::shared::Shared;
use crate::task;

/// A stored waker. Neither calling it nor dropping it panics.
pub struct KeptWaker(Option<Waker>);

impl KeptWaker {
    /// Calls the waker.
    #[inline]
    pub fn wake(mut self) {
        if let Some(waker) = self.0.take() {
            contain(|| waker.wake());
        }
    }

    /// Calls the waker, and keeps it.
    #[inline]
    pub fn wake_by_ref(&self) {
        if let Some(waker) = &self.0 {
            contain(|| waker.wake_by_ref());
        }
    }

    /// As [`Waker::will_wake`]: may return false by mistake. No foreign code runs.
    #[inline]
    pub fn will_wake(&self, waker: &Waker) -> bool {
        self.0.as_ref().is_some_and(|kept| kept.will_wake(waker))
    }

    /// The functions of the waker, which identify its kind.
    pub fn vtable(&self) -> &'static RawWakerVTable {
        self.0.as_ref().unwrap_or(Waker::noop()).vtable()
    }

    /// The data that those functions get.
    pub fn data(&self) -> *const () {
        self.0.as_ref().unwrap_or(Waker::noop()).data()
    }

    /// The waker itself, for code that contains its panics.
    #[inline]
    pub fn into_waker(mut self) -> Waker {
        self.0.take().expect("only `wake`, `into_waker` and the drop take it, and each is the last use")
    }
}

impl From<Waker> for KeptWaker {
    #[inline]
    fn from(waker: Waker) -> KeptWaker {
        KeptWaker(Some(waker))
    }
}

/// Clones it: foreign code, so do this before taking a lock.
impl From<&Waker> for KeptWaker {
    #[inline]
    fn from(waker: &Waker) -> KeptWaker {
        KeptWaker(Some(waker.clone()))
    }
}

impl Drop for KeptWaker {
    #[inline]
    fn drop(&mut self) {
        if let Some(waker) = self.0.take() {
            contain(|| drop(waker));
        }
    }
}

impl fmt::Debug for KeptWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptWaker")
    }
}

/// Polls with the waker, or with one that calls it and contains its panics: for code outside of
/// Dapple that keeps wakers, such as the lists of tokio's locks. Cost: nothing for the waker of a
/// task, an allocation for any other.
#[inline]
pub fn with_contained<R>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> R) -> R {
    match task::is_waker_of_task(cx.waker()) {
        true => poll(cx),
        false => poll(&mut Context::from_waker(&contained(cx.waker()))),
    }
}

#[cold]
fn contained(waker: &Waker) -> Waker {
    struct Contained(KeptWaker);
    impl Wake for Contained {
        fn wake(self: Arc<Self>) {
            self.0.wake_by_ref();
        }
        fn wake_by_ref(self: &Arc<Self>) {
            self.0.wake_by_ref();
        }
    }
    Waker::from(Arc::new(Contained(waker.into())))
}

/// Runs foreign code. `None` if it panicked, and the panic is reported.
#[inline]
pub fn contain<R>(run: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(payload) => {
            report(payload);
            None
        }
    }
}

/// As [`contain`], for a thread outside of this runtime.
#[inline]
pub(crate) fn contain_for<R>(shared: &Shared, run: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => Some(result),
        Err(payload) => {
            panics::report_foreign(shared, payload);
            None
        }
    }
}

/// Drops the payload of a panic; its destructor may panic, too.
pub fn discard(payload: Box<dyn Any + Send>) {
    panics::discard(payload);
}

/// The text of a panic; drops the payload as [`discard`] does.
pub fn message(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    discard(payload);
    text.unwrap_or_else(|| "a payload that is no text".to_owned())
}

/// Advice on a panic with that payload, if there is any; see
/// [`PanicInfo::advice`](crate::PanicInfo::advice).
pub fn advice(payload: &(dyn Any + Send)) -> Option<&'static str> {
    panics::advice(panics::message(payload))
}

#[cold]
fn report(payload: Box<dyn Any + Send>) {
    match Handle::of_thread() {
        Some(runtime) => panics::report_foreign(runtime.shared(), payload),
        None => {
            // `eprintln` would panic if stderr is closed.
            let _ = writeln!(
                std::io::stderr(),
                "dapple: foreign code panicked: {}",
                panics::advised(panics::message(&*payload))
            );
            panics::discard(payload);
        }
    }
}
