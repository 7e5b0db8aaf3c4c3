//! What a connection looks out for beside its stream: the time, and the end of the server.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_io::time::{Instant, Sleep, sleep_until};
use dapple_sched::{Closed, Handle};

use crate::http::clock::left_out_ms;

/// One timer for all deadlines of a connection. It is set when something is waited for, and left alone when that comes: a timer that is
/// too early is set again when it goes off, which for a busy connection is once in many thousand requests.
pub(super) struct Watch {
    closing: Option<Closed>,
    timer: Sleep,
    /// When the timer wakes this waker, by the coarse clock, and what that had left out then.
    armed: Option<(u64, u64, Waker)>,
}

impl Watch {
    pub(super) fn new(handle: Option<&Handle>) -> Watch {
        Watch { closing: handle.map(Handle::closing), timer: sleep_until(Instant::now()), armed: None }
    }

    /// Ready when the server is closing; else the task is woken when it is.
    pub(super) fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.closing.as_mut().map_or(Poll::Pending, |closing| Pin::new(closing).poll(cx))
    }

    /// Whether the server is closing.
    pub(super) async fn is_closing(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.poll_closing(cx).is_ready())).await
    }

    /// Ready when the deadline has passed; else the task is woken then, or before. `now_ms` is what the coarse clock says.
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
        // The coarse clock is behind: without the slack, it could be before `armed_ms` still when the timer has gone off, and then
        // the timer would be taken for one that is still to go off.
        self.timer.reset(Instant::now() + Duration::from_millis(deadline_ms - now_ms) + SLACK);
        self.armed = Some((deadline_ms, left_out_ms, cx.waker().clone()));
        Pin::new(&mut self.timer).poll(cx)
    }
}

/// Twice what the coarse clock can be behind.
const SLACK: Duration = Duration::from_millis(20);
