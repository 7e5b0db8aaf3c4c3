//! Control over a standing clock.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Instant, far_from_now};
use crate::driver::standing::{Rank, Standing};
use crate::driver::{Shared, current};

/// Keeps a standing clock from jumping until the guard is dropped: only [`advance`] moves it.
///
/// For tests that check that something has not happened yet, and for answers of the program's own
/// threads, which the runtime cannot foresee: take a pause before the thread starts, and drop it
/// when the thread has answered. Several pauses add up.
///
/// # Panics
///
/// If the clock of the runtime is the real one, or there is no runtime.
///
/// ```
/// use std::time::Duration;
/// use dapple_io::time::{advance, pause, sleep};
///
/// let mut config = dapple_io::Config::default();
/// config.standing_clock = true;
/// let runtime = dapple_io::runtime_builder_with(config).workers(1).build()?;
/// runtime.block_on(async {
///     let _paused = pause();
///     let alarm = dapple_sched::spawn(sleep(Duration::from_secs(60)));
///     advance(Duration::from_secs(59)).await;
///     assert!(!alarm.is_finished());
///     advance(Duration::from_secs(1)).await;
///     assert!(alarm.is_finished());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn pause() -> Pause {
    let shared = shared_or_panic("pause");
    standing(&shared).pause();
    Pause { shared }
}

/// See [`pause`].
#[must_use = "the clock is paused until this is dropped"]
pub struct Pause {
    shared: Arc<Shared>,
}

impl Drop for Pause {
    fn drop(&mut self) {
        standing(&self.shared).resume();
    }
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pause")
    }
}

/// Moves a standing clock on by `duration`, even while it is paused; the duration counts from this
/// call, not from the first poll.
///
/// The clock stops at each deadline on the way, in order, until everything waits again. When this
/// resolves, all work due by then has run, unless it had to wait for something else. Without a
/// [pause](pause()), [`sleep`](super::sleep()) does the same, except for work that is due at the
/// same time.
///
/// Cancel safe: if dropped, it leaves the clock as it is.
///
/// # Panics
///
/// If the clock of the runtime is the real one, or there is no runtime.
pub fn advance(duration: Duration) -> Advance {
    let shared = shared_or_panic("advance");
    Advance { deadline: far_from_now(duration), number: None, shared }
}

/// See [`advance`].
#[must_use = "futures do nothing unless awaited"]
pub struct Advance {
    deadline: Instant,
    /// Its place among the timers.
    number: Option<u64>,
    shared: Arc<Shared>,
}

impl Future for Advance {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let standing = standing(&this.shared);
        match this.number {
            Some(number) if standing.rewire(number, cx.waker().into()) => Poll::Pending,
            Some(_) => Poll::Ready(()),
            None => {
                // Even if the deadline has passed: work that is due now runs first.
                this.number = standing.arm(this.deadline.into(), Rank::Advance, cx.waker().into());
                Poll::Pending
            }
        }
    }
}

impl Drop for Advance {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            standing(&self.shared).disarm(number);
        }
    }
}

impl fmt::Debug for Advance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Advance").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

fn shared_or_panic(what: &str) -> Arc<Shared> {
    match current::shared() {
        Ok(shared) if shared.standing.is_some() => shared,
        Ok(_) => panic!(
            "time::{what} needs a clock that stands still, and this runtime has the real one: use it in a \
             #[dapple::test] without `clock = \"real\"`, or set Config::standing_clock"
        ),
        Err(error) => panic!("time::{what} needs a runtime: {error}"),
    }
}

fn standing(shared: &Shared) -> &Standing {
    shared.standing.as_ref().expect("looked at when this was made")
}
