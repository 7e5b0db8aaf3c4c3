//! How a [`Shed`](super::Shed) and the limits inside of it understand each other.
//!
//! tower's `LoadShed` sees only that the service is not ready. It cannot tell a limit that is reached from a connection that is being
//! made, and refuses both; and a limit that is asked puts the asker in its line, where he is granted a place that he does not want any more
//! while others are refused. So while a `Shed` asks, limits of ours put nobody in line, and say what they found:
//!
//! | said | means | the `Shed` |
//! |---|---|---|
//! | declined | a limit is reached | refuses, with the limit's own reason |
//! | room | the limit has room, and what is behind it is not ready | waits |
//! | nothing | there is no limit of ours | refuses, as tower's does |
//!
//! It is said through the thread, as what lies between the two may be anybody's.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dapple_sched::unconstrained;

use crate::Refused;

/// What limits said while they were asked.
#[derive(Debug, Default)]
pub enum Said {
    #[default]
    Nothing,
    Room,
    Declined(Refused),
}

/// Asks, by calling `poll`: limits inside put nobody in line.
pub fn ask<R>(poll: impl FnOnce() -> R) -> (R, Said) {
    /// Also when it unwinds.
    struct Restore(Option<Said>);
    impl Drop for Restore {
        fn drop(&mut self) {
            ASKED.replace(self.0.take());
        }
    }
    let _restore = Restore(ASKED.replace(Some(Said::Nothing)));
    let mut result = None;
    let mut poll = Some(poll);
    // One that is pending because the task's budget is used up is no limit that is reached.
    let mut asks = unconstrained(poll_fn(|_| {
        result = poll.take().map(|poll| poll());
        Poll::Ready(())
    }));
    let _ready = Pin::new(&mut asks).poll(&mut Context::from_waker(Waker::noop()));
    let result = result.expect("it was just polled");
    let said = ASKED.take().unwrap_or_default();
    (result, said)
}

/// For limits: whether the asker would wait. If not, they are to decline instead of putting him in line.
pub fn would_wait() -> bool {
    ASKED.with_borrow(|said| said.is_none())
}

/// For limits that are reached.
pub fn decline(refused: Refused) {
    say(Said::Declined(refused));
}

/// For limits that are not reached, before they ask what is behind them.
pub fn has_room() {
    say(Said::Room);
}

fn say(what: Said) {
    ASKED.with_borrow_mut(|said| match said {
        // The first limit that is reached decides.
        None | Some(Said::Declined(_)) => {}
        Some(said) => *said = what,
    });
}

thread_local! {
    /// `Some` while a `Shed` asks on this thread.
    static ASKED: RefCell<Option<Said>> = const { RefCell::new(None) };
}
