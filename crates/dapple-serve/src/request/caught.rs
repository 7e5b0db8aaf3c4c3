//! Futures and functions whose panics are results.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_sched::foreign::{advice, discard};
use pin_project_lite::pin_project;

/// It was caught, and the panic hook has reported it.
#[derive(Debug)]
pub(crate) struct Panicked {
    /// What to do about it, where that is known.
    pub(crate) advice: Option<&'static str>,
}

/// What `run` returns, where it does not panic.
pub(crate) fn caught<R>(run: impl FnOnce() -> R) -> Result<R, Panicked> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let advice = advice(&*payload);
        // Which may panic itself.
        discard(payload);
        Panicked { advice }
    })
}

pin_project! {
    /// See the module. Cancel safe as the future inside.
    pub(crate) struct Caught<F> {
        // `None` once it has panicked: it must not be polled again.
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
    /// The future that `make` makes, where that does not panic itself; `None` counts as a panic that was before.
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
        // Whatever a panic has left in the future, nobody sees: it is dropped.
        match caught(|| future.poll(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(panicked) => {
                let _ = caught(|| this.future.set(None));
                Poll::Ready(Err(panicked))
            }
        }
    }
}
