//! The streams of a connection, one task each.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use dapple_io::time::{Sleep, sleep};
use dapple_sched::Color;
use hyper::rt::Executor;
use tracing::debug;

use super::progress::{Progress, watch};
use crate::connections::{Holder as _, Order};
use crate::host::Link;
use crate::http::Limits;
use crate::http::clock::now_ms;
use crate::http::pace::{Pace, send_pace};

/// Runs the futures that hyper starts: one for each stream.
#[derive(Clone)]
pub(super) struct Streams(Arc<Shared>);

struct Shared {
    /// The color of all streams; `None` gives each its own.
    color: Option<Color>,
    limits: Arc<Limits>,
    link: Arc<Link>,
    open: AtomicUsize,
    begun: AtomicU64,
    slow: AtomicU32,
}

impl Streams {
    pub(super) fn new(color: Option<Color>, limits: Arc<Limits>, link: Arc<Link>) -> Streams {
        let (open, begun, slow) = Default::default();
        Streams(Arc::new(Shared { color, limits, link, open, begun, slow }))
    }

    /// The number of open streams.
    pub(super) fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    /// The number of streams so far.
    pub(super) fn begun(&self) -> u64 {
        self.0.begun.load(Ordering::Relaxed)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.link.begin();
        let open = Open(self.0.clone());
        let task = async move {
            in_time(stream, &open.0).await;
        };
        drop(match &self.0.color {
            Some(color) => color.spawn(task),
            None => dapple_sched::spawn(task),
        });
    }
}

/// Counts a stream as open until it is dropped.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.link.rest(now_ms());
        }
    }
}

/// Runs a stream until it ends, or the peer is too slow; dropping the stream resets it.
async fn in_time(stream: impl Future, shared: &Shared) {
    let mut stream = pin!(stream);
    let mut progress = Progress::default();
    // Most streams end in their first poll, and need no timer.
    let mut pace: Option<(Pace, Pin<Box<Sleep>>)> = None;
    let is_done = poll_fn(|cx| {
        let (polled, now) = watch(progress, || stream.as_mut().poll(cx));
        if polled.is_ready() {
            return Poll::Ready(true);
        }
        let taken = now.taken - progress.taken;
        progress = now;
        let (pace, timer) = pace.get_or_insert_with(|| (send_pace(&shared.limits), Box::pin(sleep(Duration::ZERO))));
        match progress.waits_for_peer {
            true => pace.go_on(now_ms()),
            false => {
                pace.rest(now_ms());
                return Poll::Pending;
            }
        }
        if taken > 0 {
            pace.moved(taken, now_ms());
        }
        loop {
            let left_ms = pace.deadline_ms().saturating_sub(now_ms());
            if left_ms == 0 {
                return Poll::Ready(false);
            }
            timer.set(sleep(Duration::from_millis(left_ms + CLOCK_BEHIND_MS)));
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    });
    if !is_done.await {
        debug!("reset a stream, because its client was too slow");
        let count = 1 + shared.slow.fetch_add(1, Ordering::Relaxed);
        shared.link.order(if count < SLOW_MAX { Order::Finish } else { Order::Cut });
    }
}

/// The number of slow streams that ends the connection.
const SLOW_MAX: u32 = 16;

/// How far the coarse clock may be behind the timers' clock.
const CLOCK_BEHIND_MS: u64 = 20;
