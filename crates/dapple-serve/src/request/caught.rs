//! Turns panics of futures and functions into results.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_sched::foreign::{advice, discard};
use pin_project_lite::pin_project;

/// A panic that was caught, and reported by the panic hook.
#[derive(Debug)]
pub(crate) struct Panicked {
    /// Advice for the user, if there is any.
    pub(crate) advice: Option<&'static str>,
}

/// Returns the result of `run`, unless it panics.
pub(crate) fn caught<R>(run: impl FnOnce() -> R) -> Result<R, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let advice = advice(&*payload);
        // The payload's destructor may panic too.
        discard(payload);
        Panicked { advice }
    })
}

pin_project! {
    /// A future that returns its panic as a result. As cancel safe as the future inside.
    pub(crate) struct Caught<F> {
        // `None` after a panic: it must not be polled again.
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for Caught<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _ = caught(|| this.future.set(None));
        }
    }
}

impl<F: Future> Caught<F> {
    /// Wraps the future that `make` makes, unless `make` panics; `None` counts as an earlier panic.
    pub(crate) fn new(make: impl FnOnce() -> Option<F>) -> Caught<F> {
        Caught { future: caught(make).ok().flatten() }
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            return Poll::Ready(Err(Panicked { advice: None }));
        };
        // No code sees the state that a panic left in the future: it is dropped.
        match caught(|| future.poll(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(panicked) => {
                let _ = caught(|| this.future.set(None));
                Poll::Ready(Err(panicked))
            }
        }
    }
}
