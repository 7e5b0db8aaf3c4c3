//! The agreement between a [`Shed`](super::Shed) and the limits inside it.
//!
//! tower's `LoadShed` sees only that the service is not ready. It cannot tell a reached limit from
//! a connection in progress, and refuses both. And a polled limit queues the caller, which then
//! gets a permit that it no longer wants while others are refused. So while a `Shed` polls, limits
//! of this crate queue no caller, and report their state:
//!
//! | report | meaning | the `Shed` |
//! |---|---|---|
//! | declined | a limit is reached | refuses, with the limit's own reason |
//! | room | the limit has room, and the service behind it is not ready | waits |
//! | nothing | there is no limit of this crate | refuses, as tower's does |
//!
//! The report is a thread-local value, because any service may lie between the two.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dapple_sched::unconstrained;

use crate::Refused;

/// The report of the limits during a poll.
#[derive(Debug, Default)]
pub enum Said {
    #[default]
    Nothing,
    Room,
    Declined(Refused),
}

/// Calls `poll` as a `Shed`: inner limits add no caller to a line.
pub fn ask<R>(poll: impl FnOnce() -> R) -> (R, Said) {
    /// Restores the value even when it unwinds.
    struct Restore(Option<Said>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ASKED.replace(self.0.take());
        }
    }
    let _restore = Restore(ASKED.replace(Some(Said::Nothing)));
    let mut result = None;
    let mut poll = Some(poll);
    // If a poll is pending because the task's budget is used up, that is not a reached limit.
    let mut asks = unconstrained(poll_fn(|_| {
        result = poll.take().map(|poll| poll());
        Poll::Ready(())
    }));
    let _ready = Pin::new(&mut asks).poll(&mut Context::from_waker(Waker::noop()));
    let result = result.expect("the future was just polled");
    let said = ASKED.take().unwrap_or_default();
    (result, said)
}

/// For limits: whether the caller would wait. If not, they must decline instead of adding it to the
/// line.
pub fn would_wait() -> bool {
    ASKED.with_borrow(|said| said.is_none())
}

/// For limits that are reached.
pub fn decline(refused: Refused) {
    say(Said::Declined(refused));
}

/// For limits with room, before they poll the service behind them.
pub fn has_room() {
    say(Said::Room);
}

fn say(what: Said) {
    ASKED.with_borrow_mut(|said| match said {
        // The first reached limit decides.
        None | Some(Said::Declined(_)) => {}
        Some(said) => *said = what,
    });
}

thread_local! {
    /// `Some` while a `Shed` polls on this thread.
    static ASKED: RefCell<Option<Said>> = const { RefCell::new(None) };
}
