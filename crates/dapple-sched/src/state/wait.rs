//! The common part of the futures of [`Colored::with`](crate::Colored::with),
//! [`Colored::read`](crate::Colored::read) and [`When::with`](crate::When::with): they run a
//! closure at once, or queue and run it later.

use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use crate::color::Priority;
use crate::color::node::Origin;
use crate::color::rights::ColorRef;
use crate::hold;
use crate::hold::held::Held;
use crate::hold::request::{self, Ask, Member};
use crate::hold::ticket::{Chance, Ticket};
use crate::runtime::context;
use crate::task::budget::poll_budget;

/// A wait that may not have begun.
pub(super) struct Wait {
    ticket: Option<Arc<Ticket>>,
    /// The line that asked.
    origin: Origin,
}

impl Wait {
    #[track_caller]
    pub(super) fn new() -> Wait {
        Wait { ticket: None, origin: Location::caller() }
    }

    pub(super) fn is_queued(&self) -> bool {
        self.ticket.is_some()
    }

    /// Runs `run` while the wanted colors are held. `now` runs it if they are free, and otherwise
    /// gives it back; `queue` queues a wait for them, together with the task's own color if an
    /// earlier wait was outrun.
    pub(super) fn poll<F, R>(
        &mut self,
        cx: &mut Context<'_>,
        run: F,
        now: impl FnOnce(F, Origin) -> Result<R, F>,
        queue: impl FnOnce(bool, Origin, &Waker) -> Arc<Ticket>,
    ) -> Poll<R>
    where
        F: FnOnce(Held<'_>) -> R,
    {
        if self.ticket.is_none() {
            ready!(poll_budget(cx));
        }
        let mut outrun = false;
        if let Some(ticket) = &self.ticket {
            // A waker may panic, which drops the wait.
            let chance = ticket.poll(cx.waker());
            if !matches!(chance, Chance::Wait) {
                self.ticket = None;
            }
            match chance {
                Chance::Wait => return Poll::Pending,
                Chance::InTurn(turn) => return Poll::Ready(turn.with(run)),
                Chance::Granted(grant) => return Poll::Ready(grant.with(run)),
                Chance::Outrun => outrun = true,
                Chance::Missed => {}
            }
        }
        match now(run, self.origin) {
            Ok(result) => Poll::Ready(result),
            Err(_) => {
                self.ticket = Some(queue(outrun, self.origin, cx.waker()));
                Poll::Pending
            }
        }
    }

    /// As [`Wait::poll`], for one color, for reading or not.
    #[inline]
    pub(super) fn poll_one<F, R>(&mut self, color: ColorRef<'_>, reads: bool, cx: &mut Context<'_>, run: F) -> Poll<R>
    where
        F: FnOnce(Held<'_>) -> R,
    {
        self.poll(
            cx,
            run,
            |run, origin| hold_now(color, reads, origin, run),
            |outrun, origin, waker| queue(color, reads, outrun, origin, waker),
        )
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.give_up();
        }
    }
}

/// Runs `run` if this thread holds the color or the color is free; for reading or writing.
#[inline]
pub(super) fn hold_now<F, R>(color: ColorRef<'_>, reads: bool, origin: Origin, run: F) -> Result<R, F>
where
    F: FnOnce(Held<'_>) -> R,
{
    let run = match Held::in_line(color, reads, run) {
        Ok(result) => return Ok(result),
        Err(run) => run,
    };
    match hold::try_hold(color, reads, origin) {
        Some(hold) if reads => Ok(hold::reading(hold, run)),
        Some(hold) => Ok(hold::holding(hold, run)),
        None => Err(run),
    }
}

/// Queues a wait for `color`; `outrun`: together with the waiting task's own color.
fn queue(color: ColorRef<'_>, reads: bool, outrun: bool, origin: Origin, waker: &Waker) -> Arc<Ticket> {
    context::with_task_color(|own| match own.filter(|own| outrun && ptr::eq(own.shared, color.shared)) {
        Some(own) => {
            let ask = Ask { priority: Priority::NORMAL, origin };
            let members = [(color, reads), (own, false)].map(|(color, reads)| Member::new(color, reads, ask));
            // SAFETY: both colors are alive, and of one runtime.
            unsafe { request::wait_for_all(color.shared, members, origin, waker) }
        }
        None => Ticket::queue(color, reads, origin, waker),
    })
}
