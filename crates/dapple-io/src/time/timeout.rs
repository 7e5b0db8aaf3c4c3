//! A time limit for a future.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::unconstrained;

use super::Instant;
use super::sleep::{Sleep, sleep, sleep_until};

/// Awaits `future`, but no longer than `limit`; after that drops it and resolves to [`Elapsed`].
///
/// The future is polled first, so a ready one wins against a limit that has passed. As cancel safe
/// as the future itself.
///
/// ```
/// use std::time::Duration;
/// use dapple_io::time::{sleep, timeout};
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     assert_eq!(timeout(Duration::from_secs(5), async { 1 }).await, Ok(1));
///     let slow = sleep(Duration::from_secs(3600));
///     assert!(timeout(Duration::from_millis(1), slow).await.is_err());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// [`Elapsed`] if the limit passed first; it converts into an [`io::Error`] of kind `TimedOut`.
pub fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(limit) }
}

/// Like [`timeout`], with a deadline.
///
/// # Cancel safety
///
/// As safe as the future itself.
///
/// # Errors
///
/// As [`timeout`].
pub fn timeout_at<F: Future>(deadline: impl Into<Instant>, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep_until(deadline) }
}

/// See [`timeout`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Timeout<F> {
    future: F,
    sleep: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is structurally pinned: it is never moved out of a pinned `Timeout`,
        // which has no `Drop` and is `Unpin` only if the future is, by the automatic rule. `sleep`
        // is `Unpin`.
        let (future, sleep) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), &mut this.sleep)
        };
        if let Poll::Ready(output) = future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        // The future may have used up the budget, and may do so in each poll.
        Pin::new(&mut unconstrained(sleep)).poll(cx).map(|()| Err(Elapsed(())))
    }
}

/// The limit passed before the future resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit has passed")
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}
