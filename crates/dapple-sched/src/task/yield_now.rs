//! Yielding to other work.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::task::wake_if_polled;

/// Lets all other runnable work go first: the task goes to the end of its color's queue.
///
/// Cancel safety: dropping it loses nothing.
///
/// ```
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # let _entered = runtime.enter();
/// use dapple_sched::yield_now;
///
/// let count = runtime.spawn(async {
///     for _ in 0..1_000 {
///         // … a part of a long computation …
///         yield_now().await;
///     }
/// });
/// runtime.block_on(count).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[inline]
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
#[derive(Debug)]
#[must_use = "a yield does nothing until it is awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        // The usual waker, the task's own, without a call through its table.
        if !wake_if_polled(cx.waker()) {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
