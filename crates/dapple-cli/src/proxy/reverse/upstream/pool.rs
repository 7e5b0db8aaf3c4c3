//! Connections to one upstream: those of HTTP/1.1 that wait for a request, and those of HTTP/2, which carry many.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use dapple::Handle;
use dapple::time::{Instant, sleep};
use hyper::client::conn::{http1, http2};

use super::Upstream;
use crate::proxy::upstream::upload::Upload;

pub(super) type Sender1 = http1::SendRequest<Upload>;
pub(super) type Sender2 = http2::SendRequest<Upload>;

/// All of them.
#[derive(Default)]
pub(super) struct Pool {
    idle: Vec<Idle>,
    shared: Vec<Shared>,
    is_swept: bool,
}

struct Idle {
    sender: Sender1,
    since: Instant,
}

/// A connection of HTTP/2.
struct Shared {
    sender: Sender2,
    streams: Arc<AtomicUsize>,
    /// What the upstream allows, as it said last.
    streams_max: Arc<AtomicUsize>,
    opened: Instant,
    used: Instant,
}

/// One request on a connection of HTTP/2.
pub(super) struct Stream {
    pub(super) sender: Sender2,
    streams: Arc<AtomicUsize>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// The connection of HTTP/1.1 that was used last: the others may get too old.
    pub(super) fn take(&mut self) -> Option<Sender1> {
        while let Some(idle) = self.idle.pop() {
            if !idle.sender.is_closed() {
                return Some(idle.sender);
            }
        }
        None
    }

    /// Room on a connection of HTTP/2; where one failed, on one that was made after that was in use.
    pub(super) fn share(&mut self, newer_than: Option<Instant>) -> Option<Stream> {
        self.drop_closed();
        let has_room = |shared: &&mut Shared| {
            if newer_than.is_some_and(|time| shared.opened <= time) {
                return false;
            }
            let streams_max = shared.streams_max.load(Ordering::Relaxed).clamp(1, STREAMS_MAX);
            shared.streams.load(Ordering::Relaxed) < streams_max
        };
        self.shared.iter_mut().find(has_room).map(Shared::begin)
    }

    /// Keeps a connection for its next request, unless there are enough. Whether somebody has to start [`sweep`].
    pub(super) fn put(&mut self, sender: Sender1, idle_max: usize) -> bool {
        if self.idle.len() >= idle_max {
            return false;
        }
        self.idle.push(Idle { sender, since: Instant::now() });
        !std::mem::replace(&mut self.is_swept, true)
    }

    /// Adds a connection of HTTP/2, and begins a request on it; the second says whether somebody has to start [`sweep`].
    pub(super) fn add(&mut self, sender: Sender2, streams_max: Arc<AtomicUsize>) -> (Stream, bool) {
        let mut shared =
            Shared { sender, streams: Arc::default(), streams_max, opened: Instant::now(), used: Instant::now() };
        let stream = shared.begin();
        self.shared.push(shared);
        (stream, !std::mem::replace(&mut self.is_swept, true))
    }

    /// Closes the oldest that waits. False where none does.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let is_any = !self.idle.is_empty();
        if is_any {
            self.idle.remove(0);
        }
        is_any
    }

    /// Lets those of HTTP/2 go that have ended.
    pub(super) fn drop_closed(&mut self) {
        self.shared.retain(|shared| !shared.sender.is_closed());
    }

    /// Connections of HTTP/1.1 that wait, and those of HTTP/2.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.idle.len(), self.shared.len())
    }

    /// Lets all go, once what is in flight has ended.
    pub(super) fn clear(&mut self) {
        self.idle.clear();
        self.shared.clear();
    }

    /// Drops what is closed or has waited for too long. Whether anything is left.
    fn drop_old(&mut self, age_max: Duration) -> bool {
        self.idle.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < age_max);
        self.shared.retain_mut(|shared| {
            if shared.streams.load(Ordering::Relaxed) > 0 {
                shared.used = Instant::now();
            }
            !shared.sender.is_closed() && shared.used.elapsed() < age_max
        });
        self.is_swept = !self.idle.is_empty() || !self.shared.is_empty();
        self.is_swept
    }
}

impl Shared {
    fn begin(&mut self) -> Stream {
        self.used = Instant::now();
        self.streams.fetch_add(1, Ordering::Relaxed);
        Stream { sender: self.sender.clone(), streams: self.streams.clone() }
    }
}

/// Looks after a pool for as long as there is something in it, so that an idle proxy has no timer. When the runtime closes, so do the
/// connections.
pub(super) async fn sweep(upstream: Weak<Upstream>, handle: Handle) {
    let mut closing = pin!(handle.closing());
    let mut is_closing = false;
    loop {
        let Some(age_max) = upstream.upgrade().map(|upstream| upstream.idle_max()) else { return };
        let mut pause = pin!(sleep((age_max / 4).clamp(SWEEP_PAUSE_MIN, SWEEP_PAUSE_MAX)));
        is_closing = is_closing
            || poll_fn(|cx| match closing.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => pause.as_mut().poll(cx).map(|()| false),
            })
            .await;
        let Some(upstream) = upstream.upgrade() else { return };
        let mut pool = upstream.pool();
        if is_closing {
            // What is in flight has the connection to its end.
            pool.clear();
        }
        if !pool.drop_old(age_max) {
            return;
        }
    }
}

/// Requests at a time on one connection of HTTP/2, where the server allows as many.
pub(super) const STREAMS_MAX: usize = 100;

const SWEEP_PAUSE_MIN: Duration = Duration::from_millis(50);
const SWEEP_PAUSE_MAX: Duration = Duration::from_secs(5);
