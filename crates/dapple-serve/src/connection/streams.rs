//! The streams of connections of HTTP/2: a task each, so that the requests of one connection are answered on all cores.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use dapple_io::time::{Instant, Sleep, sleep_until};
use hyper::rt::Executor;
use tracing::debug;

use super::link::Link;
use super::pace::Pace;
use super::progress::{Progress, watch};
use crate::connections::{Holder as _, Order};
use crate::options::Options;

/// Runs what hyper gives it: the futures of a connection's streams.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    options: Arc<Options>,
    link: Arc<Link>,
}

impl Streams {
    pub(super) fn new(options: Arc<Options>, link: Arc<Link>) -> Streams {
        Streams { options, link }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let (options, link) = (self.options.clone(), self.link.clone());
        // Also a tunnel (CONNECT), whose reply has ended: its connection does not rest.
        let busy = Busy::new(link.clone());
        // hyper does not wait for it.
        drop(dapple_sched::spawn(async move {
            in_time(stream, options, link).await;
            drop(busy);
        }));
    }
}

/// A stream that goes on, until this is dropped.
struct Busy(Arc<Link>);

impl Busy {
    fn new(link: Arc<Link>) -> Busy {
        link.state().begin(Instant::now());
        Busy(link)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.state().end(false, Instant::now());
    }
}

/// Runs a stream until its end, or until the peer is too slow; dropping it resets it, and the connection takes no new ones. One on which
/// that happens over and over ends at once.
async fn in_time(stream: impl Future, options: Arc<Options>, link: Arc<Link>) {
    let mut stream = pin!(stream);
    let mut progress = Progress::default();
    let mut pace = Pace::new(options.send_timeout, options.rate_min);
    // Most streams end in their first poll, and need no timer.
    let mut timer: Option<std::pin::Pin<Box<Sleep>>> = None;
    let is_done = poll_fn(|cx| {
        let (polled, now) = watch(progress, || stream.as_mut().poll(cx));
        if polled.is_ready() {
            return Poll::Ready(true);
        }
        let taken = usize::try_from(now.taken - progress.taken).unwrap_or(usize::MAX);
        progress = now;
        let clock = Instant::now();
        if taken > 0 {
            pace.moved(taken, clock);
        }
        if !progress.waits_for_peer {
            pace.rest(clock);
            return Poll::Pending;
        }
        let deadline = pace.wait(clock);
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().get_mut().reset(deadline);
        }
        timer.as_mut().poll(cx).map(|()| false)
    });
    if !is_done.await {
        debug!("a stream was reset, because its client takes too little of it");
        let count = link.state().slow_stream();
        link.order(if count < SLOW_MAX { Order::Finish } else { Order::Cut });
    }
}

/// Streams of a connection that were too slow, before all of it ends.
const SLOW_MAX: u32 = 16;
