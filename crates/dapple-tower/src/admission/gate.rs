//! Admission for futures: callers share an [`Admission`]; an admitted request runs as a [`Gated`]
//! future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use dapple_sched::environment;
use dapple_sched::foreign::KeptWaker;
use pin_project_lite::pin_project;

use super::config::{AdmissionStats, Config, Offer};
use super::controller::{Controller, State};
use crate::Refused;
use crate::switch::{Mutex, MutexGuard, lock};
use crate::time::{self, Alarm, Ring, real_now};

/// Decides which requests are taken, when each begins, and which are refused. Clones decide
/// together.
///
/// It measures the cost of handlers: the time of their polls, so that a handler that never awaits
/// counts as well. From the costs and the waiting work it predicts when a request would be done,
/// and refuses at once if that exceeds [`Config::target_delay`]. It works on any executor; on
/// Dapple it knows the number of workers.
///
/// ```
/// use dapple_tower::admission::{Admission, Config, Offer};
///
/// # let runtime = dapple_sched::Runtime::builder().workers(1).build()?;
/// # runtime.block_on(async {
/// let admission = Admission::new(Config::default());
/// match admission.offer(Offer::now()) {
///     Ok(admitted) => match admitted.run(|| async { 6 * 7 }).await {
///         Ok(answer) => assert_eq!(answer, 42),
///         Err(dropped) => println!("dropped while it waited: {dropped}"),
///     },
///     Err(refused) => println!("{refused}; again in {:?}", refused.retry_after),
/// }
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Admission {
    shared: Arc<Shared>,
}

struct Shared {
    core: Mutex<Core>,
    /// A hint, read without the lock: requests cost so much that their wait in sockets matters.
    is_busy: AtomicBool,
}

struct Core {
    controller: Controller,
    /// The waker of each waiting request.
    wakers: Vec<Option<KeptWaker>>,
    /// The next check for unused grants, while others wait.
    look: Alarm,
    look_after: Duration,
}

/// An admitted request. Dropping it gives its place to another.
#[must_use = "an admitted request occupies a place that others want: run it, or drop it"]
pub struct Admitted {
    shared: Arc<Shared>,
    key: usize,
    is_over: bool,
}

pin_project! {
    /// The handler of an admitted request: waits for its turn, and measures each poll.
    ///
    /// Returns an error if the request is dropped while it waits. Then the handler has not begun,
    /// and the closure that makes it is dropped before the error is returned.
    ///
    /// It must be polled when its task is woken. If it is kept and not polled, as in a loop around
    /// `select!`, while others wait, its turn goes to the next one after one to two times
    /// [`Config::target_delay`]. When it is polled again, it goes before all requests that have not
    /// begun.
    ///
    /// Cancel safety: dropping it drops the handler, and gives its place and its processor to
    /// another request.
    #[must_use = "futures do nothing unless they are polled"]
    pub struct Gated<M, F> {
        admitted: Admitted,
        make: Option<M>,
        #[pin]
        handler: Option<F>,
        phase: Phase,
        // The cost to charge: its polls, or all of its time. In the latter case, the time of its
        // begin.
        whole: Option<Option<Instant>>,
    }
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It waits for a processor, before its first poll or after a wake.
    Waits,
    /// It has a processor, and yields this many more times, so that other tasks read new arrivals.
    Yields(u8),
    Runs,
    /// The handler waits for another event.
    Suspended,
}

impl Admission {
    /// An admission for everything that one set of processors serves. For their number see
    /// [`Config::processors`].
    pub fn new(config: Config) -> Admission {
        let processors = config.processors.unwrap_or_else(processors).max(1);
        let target_delay = config.target_delay.clamp(Duration::from_millis(1), Duration::from_secs(3_600));
        let controller = Controller::new(Config { target_delay, ..config }, processors);
        let core = Core { controller, wakers: Vec::new(), look: Alarm::new(), look_after: target_delay };
        let core = Mutex::new(core);
        Admission { shared: Arc::new(Shared { core, is_busy: AtomicBool::new(false) }) }
    }

    /// Asks for a place. Never waits. Cost: a lock, and some hundred instructions.
    ///
    /// # Errors
    ///
    /// The reason, and when to come back.
    pub fn offer(&self, offer: Offer) -> Result<Admitted, Refused> {
        let mut core = self.shared.lock();
        let outcome = core.controller.offer(offer, real_now());
        core.settle();
        outcome.map(|key| Admitted { shared: self.shared.clone(), key, is_over: false })
    }

    /// Whether requests cost so much that their unread time in sockets matters. A hint.
    pub fn is_busy(&self) -> bool {
        // Relaxed: a hint; no other read depends on it.
        self.shared.is_busy.load(Ordering::Relaxed)
    }

    /// The counters and the state.
    pub fn stats(&self) -> AdmissionStats {
        self.shared.lock().controller.stats(real_now())
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admission").field(&self.stats()).finish()
    }
}

impl Admitted {
    /// Runs a handler when its turn comes. `make` is called then, on the task that polls this, and
    /// counts as part of the handler.
    pub fn run<M, F>(self, make: M) -> Gated<M, F>
    where
        M: FnOnce() -> F,
        F: Future,
    {
        Gated { admitted: self, make: Some(make), handler: None, phase: Phase::Waits, whole: None }
    }

    /// As [`Admitted::run`], for a handler that occupies one of [`Config::processors`] even while
    /// it awaits, such as a job on a device or in a pool of that many threads. Its cost is the
    /// whole time from its begin to its end.
    pub fn run_whole<M, F>(self, make: M) -> Gated<M, F>
    where
        M: FnOnce() -> F,
        F: Future,
    {
        Gated { admitted: self, make: Some(make), handler: None, phase: Phase::Waits, whole: Some(None) }
    }

    /// Whether it may run now; if not, the task is woken when that may have changed.
    fn poll_turn(&self, cx: &mut Context<'_>) -> Poll<Result<Phase, Refused>> {
        // Cloning and dropping a waker is foreign code: this happens without the lock.
        let waker = KeptWaker::from(cx.waker());
        let mut core = self.shared.lock();
        // Suspended: it was not polled after its grant, so the grant was taken back.
        core.controller.resume(self.key, real_now());
        match core.controller.state(self.key) {
            State::Granted if core.controller.is_exempt(self.key) => Poll::Ready(Ok(Phase::Runs)),
            State::Granted => Poll::Ready(Ok(Phase::Yields(YIELDS))),
            State::Dropped(refused) => Poll::Ready(Err(refused.clone())),
            State::Waiting | State::Resuming | State::Suspended => {
                let old = core.keep(self.key, waker);
                drop(core);
                drop(old);
                Poll::Pending
            }
        }
    }

    /// Whether it still has its granted processor; if so, this poll uses it.
    fn claim(&self) -> bool {
        self.shared.lock().controller.claim(self.key)
    }

    fn suspend(&self, began: Instant) {
        let now = real_now();
        dapple_sched::count_time(now - began);
        let mut core = self.shared.lock();
        core.controller.suspend(self.key, now - began, now);
        core.settle();
    }

    fn resume(&self) {
        let mut core = self.shared.lock();
        core.controller.resume(self.key, real_now());
        core.settle();
    }

    /// Charges the time since `began`, the begin of this poll or of the whole handler.
    fn finish(&mut self, began: Instant) {
        let now = real_now();
        dapple_sched::count_time(now - began);
        let mut core = self.shared.lock();
        core.controller.finish(self.key, now - began, now);
        let _waker = core.forget(self.key);
        let is_busy = core.controller.is_dear();
        core.settle();
        self.is_over = true;
        // Relaxed: see `Admission::is_busy`. Written only when it changes, so that all readers keep
        // the cache line.
        if self.shared.is_busy.load(Ordering::Relaxed) != is_busy {
            self.shared.is_busy.store(is_busy, Ordering::Relaxed);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.is_over {
            let mut core = self.shared.lock();
            core.controller.end(self.key, real_now());
            let _waker = core.forget(self.key);
            core.settle();
        }
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<M, F> Future for Gated<M, F>
where
    M: FnOnce() -> F,
    F: Future,
{
    type Output = Result<F::Output, Refused>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match *this.phase {
                Phase::Waits => match ready!(this.admitted.poll_turn(cx)) {
                    Ok(phase) => *this.phase = phase,
                    Err(refused) => {
                        // Frees the request's resources at once, not when the caller drops this
                        // future.
                        *this.make = None;
                        this.handler.set(None);
                        return Poll::Ready(Err(refused));
                    }
                },
                Phase::Yields(0) => *this.phase = if this.admitted.claim() { Phase::Runs } else { Phase::Waits },
                Phase::Yields(left) => {
                    *this.phase = Phase::Yields(left - 1);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Phase::Suspended => {
                    this.admitted.resume();
                    *this.phase = Phase::Waits;
                }
                Phase::Runs => {
                    let now = real_now();
                    let began = this.whole.as_mut().map_or(now, |began| *began.get_or_insert(now));
                    if let Some(make) = this.make.take() {
                        this.handler.set(Some(make()));
                    }
                    let handler = this.handler.as_mut().as_pin_mut().expect("the handler is made before it is polled");
                    let Poll::Ready(output) = handler.poll(cx) else {
                        if this.whole.is_none() {
                            *this.phase = Phase::Suspended;
                            this.admitted.suspend(began);
                        }
                        return Poll::Pending;
                    };
                    this.admitted.finish(began);
                    this.handler.set(None);
                    return Poll::Ready(Ok(output));
                }
            }
        }
    }
}

impl<M, F> fmt::Debug for Gated<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gated").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(self: &Arc<Self>) -> Locked<'_> {
        // No code of the program runs under it; a panic in the controller is a bug that must not
        // spread.
        Locked { core: Some(lock(&self.core)), shared: self }
    }
}

impl Ring for Shared {
    fn ring(self: Arc<Self>) {
        let mut core = self.lock();
        core.look.rang();
        core.controller.revoke_unused(real_now());
        core.settle();
    }
}

/// The lock, and the wakers to invoke after its release.
struct Locked<'a> {
    core: Option<MutexGuard<'a, Core>>,
    shared: &'a Arc<Shared>,
}

impl Locked<'_> {
    /// Releases the lock, and then wakes the affected tasks.
    fn settle(mut self) {
        let Some(mut core) = self.core.take() else { return };
        let Core { controller, look, look_after, .. } = &mut *core;
        if !look.is_set() && controller.waits_for_unused() {
            // Without a timer, an unused grant is kept.
            let _ = look.set(Some(time::after(time::now(), *look_after)), self.shared);
        }
        let mut woken = Vec::new();
        while let Some(key) = core.controller.next_news() {
            woken.extend(core.wakers.get_mut(key).and_then(Option::take));
        }
        drop(core);
        woken.into_iter().for_each(KeptWaker::wake);
    }

    /// Returns the previous waker, to be dropped without the lock.
    fn keep(&mut self, key: usize, waker: KeptWaker) -> Option<KeptWaker> {
        if self.wakers.len() <= key {
            self.wakers.resize_with(key + 1, || None);
        }
        self.wakers[key].replace(waker)
    }

    /// Returns the waker, to be dropped without the lock.
    fn forget(&mut self, key: usize) -> Option<KeptWaker> {
        self.wakers.get_mut(key).and_then(Option::take)
    }
}

impl std::ops::Deref for Locked<'_> {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core.as_ref().expect("the lock is held until `settle`, which takes all of this")
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Core {
        self.core.as_mut().expect("the lock is held until `settle`, which takes all of this")
    }
}

/// Of this thread's runtime: a Dapple runtime elsewhere in the process does not limit work on
/// tokio.
fn processors() -> usize {
    match dapple_sched::Handle::of_thread() {
        Some(handle) => handle.workers(),
        None => environment::parallelism(),
    }
}

/// Between two handlers the executor must poll for events, and then run the tasks with events, so
/// that they read their requests. At the first yield the next handler is before these tasks in the
/// run queue, at the second after them.
const YIELDS: u8 = 2;

#[cfg(test)]
mod tests;
