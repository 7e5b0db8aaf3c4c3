//! The time limits of a connection, and the end of the server.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_io::time::{Instant, Sleep, sleep_until};
use dapple_sched::{Closed, Handle};

use crate::http::clock::left_out_ms;

/// One timer for all deadlines of a connection. The connection sets it for a wait and leaves it
/// alone when the wait ends. A timer that fires early is set again; for a busy connection that
/// happens once in many thousand requests.
pub(super) struct Watch {
    closing: Option<Closed>,
    timer: Sleep,
    /// When the timer fires by the coarse clock, the time left out at that moment, and the waker.
    armed: Option<(u64, u64, Waker)>,
}

impl Watch {
    pub(super) fn new(handle: Option<&Handle>) -> Watch {
        Watch { closing: handle.map(Handle::closing), timer: sleep_until(Instant::now()), armed: None }
    }

    /// Ready when the server is closing; otherwise registers the task.
    pub(super) fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.closing.as_mut().map_or(Poll::Pending, |closing| Pin::new(closing).poll(cx))
    }

    /// Whether the server is closing.
    pub(super) async fn is_closing(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.poll_closing(cx).is_ready())).await
    }

    /// Ready when the deadline has passed; otherwise wakes the task then, or earlier. `now_ms` is
    /// the coarse clock's time.
    pub(super) fn poll_deadline(&mut self, deadline_ms: u64, now_ms: u64, cx: &mut Context<'_>) -> Poll<()> {
        if now_ms >= deadline_ms {
            return Poll::Ready(());
        }
        let left_out_ms = left_out_ms();
        if let Some((armed_ms, left_out_then_ms, waker)) = &self.armed
            && now_ms < *armed_ms
            && *left_out_then_ms == left_out_ms
            && *armed_ms <= deadline_ms
            && waker.will_wake(cx.waker())
        {
            return Poll::Pending;
        }
        // The coarse clock is late. Without slack it could still be before `armed_ms` when the
        // timer has fired, and the timer would seem to be pending.
        self.timer.reset(Instant::now() + Duration::from_millis(deadline_ms - now_ms) + SLACK);
        self.armed = Some((deadline_ms, left_out_ms, cx.waker().clone()));
        Pin::new(&mut self.timer).poll(cx)
    }
}

/// Twice the delay of the coarse clock.
const SLACK: Duration = Duration::from_millis(20);
