//! The shortage of descriptors, and its effect on accepting.
//!
//! A server can do nothing about an `accept` that fails for lack of a descriptor. If the error is
//! returned, it ends a naive accept loop; if the call is retried at once, it uses a whole core,
//! because the connection stays in the backlog and the listener stays readable. So accepting pauses
//! until the program closes a descriptor, and for 100 ms at most, because other processes may close
//! some. The log reports the begin and the end of each shortage.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::foreign::KeptWaker;
use rustix::io::Errno;

use crate::driver::Timer;
use crate::lock::Mutex;
use crate::time::Instant;

/// Whether descriptors are short, and the waiters for one. One per runtime.
#[derive(Default)]
pub(crate) struct Descriptors {
    /// Read without the lock at every close and every accept.
    is_short: AtomicBool,
    /// Descriptors closed while they were short.
    closed_count: AtomicU64,
    episode: Mutex<Episode>,
}

#[derive(Default)]
struct Episode {
    began: Option<Instant>,
    /// The last refusal.
    refused: Option<Instant>,
    waiters: Vec<KeptWaker>,
}

impl Descriptors {
    /// Called when the kernel had no descriptor; resolves when another try makes sense. Cancel
    /// safe.
    pub(crate) fn refused(&self, error: &io::Error) -> impl Future<Output = ()> + '_ {
        let now = Instant::now();
        let mut episode = self.episode.lock();
        episode.refused = Some(now);
        if episode.began.is_none() {
            episode.began = Some(now);
            // Relaxed, here and elsewhere: a hint. The rest is under the lock, and a close that
            // misses the hint costs a pause of at most [`PAUSE_MAX`].
            self.is_short.store(true, Ordering::Relaxed);
            tracing::warn!(
                %error,
                "out of file descriptors or kernel memory: accepting pauses, connections wait in the backlog; \
                 raise the limit (ulimit -n) if this happens under normal load"
            );
        }
        OneClosed {
            descriptors: self,
            // Relaxed, here and elsewhere: under the lock.
            seen: self.closed_count.load(Ordering::Relaxed),
            pause: Timer::after(PAUSE_MAX),
        }
    }

    /// Notes that a descriptor of the program was closed.
    pub(crate) fn one_closed(&self) {
        // Relaxed: see `refused`.
        if !self.is_short.load(Ordering::Relaxed) {
            return;
        }
        let waiters = {
            let mut episode = self.episode.lock();
            // Relaxed: see `refused`.
            self.closed_count.fetch_add(1, Ordering::Relaxed);
            std::mem::take(&mut episode.waiters)
        };
        waiters.into_iter().for_each(KeptWaker::wake);
    }

    /// Notes an accepted connection: after a while without refusals, the shortage is over.
    pub(crate) fn accepted(&self) {
        // Relaxed: see `refused`.
        if !self.is_short.load(Ordering::Relaxed) {
            return;
        }
        let mut episode = self.episode.lock();
        let is_calm = |refused: Instant| refused.elapsed() >= CALM;
        if !episode.refused.is_some_and(is_calm) {
            return;
        }
        // Relaxed: see `refused`.
        self.is_short.store(false, Ordering::Relaxed);
        episode.refused = None;
        if let Some(began) = episode.began.take() {
            let lasted_ms = began.elapsed().as_millis() as u64;
            tracing::info!(lasted_ms, "descriptors are available again: accepting goes on");
        }
    }
}

/// Whether the error means that the process or the system has no descriptor, or no memory for one.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC)
    )
}

struct OneClosed<'a> {
    descriptors: &'a Descriptors,
    seen: u64,
    pause: Timer,
}

impl Future for OneClosed<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Without a runtime nothing would end the pause.
        if self.pause.poll(cx.waker()).map_or(true, |pause| pause.is_ready()) {
            return Poll::Ready(());
        }
        let waker = KeptWaker::from(cx.waker());
        // Under the lock, so that a close in between is seen here or finds the waker.
        let mut episode = self.descriptors.episode.lock();
        // Relaxed: see `refused`.
        if self.descriptors.closed_count.load(Ordering::Relaxed) != self.seen {
            return Poll::Ready(());
        }
        if !episode.waiters.iter().any(|kept| kept.will_wake(cx.waker())) {
            episode.waiters.push(waker);
        }
        Poll::Pending
    }
}

impl Drop for OneClosed<'_> {
    /// The next pause reuses the slot of this one's waker: otherwise wakers would pile up during a
    /// shortage in which the program closes nothing.
    fn drop(&mut self) {
        let mut episode = self.descriptors.episode.lock();
        let stale = std::mem::take(&mut episode.waiters);
        drop(episode);
        stale.into_iter().for_each(KeptWaker::wake);
    }
}

/// How long accepting pauses if the program closes nothing.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// How long accepting must succeed before the shortage counts as over. At the limit every close
/// lets one connection in, and would otherwise start another shortage.
const CALM: Duration = Duration::from_secs(1);
