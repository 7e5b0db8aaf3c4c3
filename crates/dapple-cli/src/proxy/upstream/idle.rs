//! Connections to origins that wait for their next request.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dapple::time::{Instant, sleep};
use dapple::{Colored, Handle};

use super::{Origin, Sender};

/// All of them.
#[derive(Default)]
pub(super) struct Pool {
    by_origin: HashMap<Arc<Origin>, Vec<Idle>>,
    len: usize,
    is_swept: bool,
}

/// One of them.
pub(super) struct Idle {
    sender: Sender,
    since: Instant,
}

/// What became of a connection that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    /// It is kept.
    Kept,
    /// It is kept, and somebody has to start [`sweep`].
    First,
    /// There are enough.
    Dropped,
}

impl Idle {
    pub(super) fn new(sender: Sender) -> Idle {
        Idle { sender, since: Instant::now() }
    }
}

impl Pool {
    /// The connection to this origin that was used last: the others may get too old.
    pub(super) fn take(&mut self, origin: &Origin) -> Option<Sender> {
        let list = self.by_origin.get_mut(origin)?;
        let mut taken = None;
        while let Some(idle) = list.pop() {
            self.len -= 1;
            if !idle.sender.is_closed() {
                taken = Some(idle.sender);
                break;
            }
        }
        if list.is_empty() {
            self.by_origin.remove(origin);
        }
        taken
    }

    pub(super) fn put(&mut self, origin: Arc<Origin>, idle: Idle) -> Put {
        if self.len >= LEN_MAX || self.by_origin.get(&origin).is_some_and(|list| list.len() >= OF_ONE_ORIGIN_MAX) {
            return Put::Dropped;
        }
        self.by_origin.entry(origin).or_default().push(idle);
        self.len += 1;
        if std::mem::replace(&mut self.is_swept, true) { Put::Kept } else { Put::First }
    }

    /// Closes one, so that there is room for another. False where there is none.
    pub(super) fn drop_one(&mut self) -> bool {
        let Some(origin) = self.by_origin.keys().next().cloned() else { return false };
        if let Some(list) = self.by_origin.get_mut(&origin) {
            // The oldest of its origin.
            list.remove(0);
            self.len -= 1;
            if list.is_empty() {
                self.by_origin.remove(&origin);
            }
        }
        true
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Drops what is closed or has waited for too long. Whether anything is left.
    fn drop_old(&mut self, age_max: Duration) -> bool {
        let mut len = 0;
        self.by_origin.retain(|_, list| {
            list.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < age_max);
            len += list.len();
            !list.is_empty()
        });
        self.len = len;
        self.is_swept = len > 0;
        self.is_swept
    }
}

/// Looks after the pool for as long as there is something in it, so that an idle proxy has no timer. When the runtime closes, so
/// do the connections.
pub(super) async fn sweep(pool: Colored<Pool>, handle: Handle) {
    let mut closing = pin!(handle.closing());
    loop {
        let mut pause = pin!(sleep(SWEEP_PAUSE));
        let is_closing = poll_fn(|cx| match closing.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => pause.as_mut().poll(cx).map(|()| false),
        });
        let age_max = if is_closing.await { Duration::ZERO } else { AGE_MAX };
        if !pool.with(|pool| pool.drop_old(age_max)).await {
            return;
        }
    }
}

/// How many connections wait in all, and for one origin; more are closed.
const LEN_MAX: usize = 1_024;
const OF_ONE_ORIGIN_MAX: usize = 64;

/// How long a connection waits. Most servers close them after a minute, some after five seconds.
const AGE_MAX: Duration = Duration::from_secs(30);
const SWEEP_PAUSE: Duration = Duration::from_secs(5);
