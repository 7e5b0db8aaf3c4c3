//! One upstream: its connections, how it is, and what was counted of it.

mod attempt;
mod check;
mod connect;
mod download;
mod pool;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple::sync::{OwnedSemaphorePermit, Semaphore};
use dapple::time::timeout;
use http::uri::Authority;

use super::common::Common;
use super::failure::Failure;
use super::target::{Scheme, Target};

pub(crate) use self::attempt::{Answer, Missed, Outgoing, attempt};
pub(crate) use self::check::{Checks, check_health};
pub(crate) use self::connect::Encryption;

use self::pool::Pool;

/// See the module.
pub(crate) struct Upstream {
    pub(crate) target: Target,
    /// The address, for logs and metrics.
    pub(crate) name: Arc<str>,
    /// What it is called in `Host`, where it is not called as the client does.
    authority: Authority,
    common: Arc<Common>,
    /// As the log has said last.
    pub(super) is_in: AtomicBool,
    pool: Mutex<Pool>,
    /// Requests that may be in flight.
    turns: Arc<Semaphore>,
    /// Requests that wait for their turn.
    waiting: AtomicUsize,
    /// Connections, idle ones too.
    open: AtomicUsize,
    /// Only one at a time finds out what is spoken, or opens another connection for many.
    opening: dapple::sync::Mutex<()>,
    /// What was agreed on last: [`UNKNOWN`] or a version.
    spoken: AtomicU8,
    /// It is no longer in the list.
    is_retired: AtomicBool,
    /// Why it did not answer the last time that it did not.
    last_failure: Mutex<String>,
    pub(crate) counts: Counts,
}

/// What was counted since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    /// Requests that came to no response.
    pub(crate) failures: AtomicU64,
    /// Tries here after one failed, here or elsewhere.
    pub(crate) retries: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) reused: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) checks: AtomicU64,
    pub(crate) checks_failed: AtomicU64,
    /// How often it was put out.
    pub(crate) outs: AtomicU64,
    /// Responses, and what their heads took in all.
    pub(crate) answers: AtomicU64,
    pub(crate) answers_us: AtomicU64,
}

/// A connection is counted as open until this is dropped.
pub(crate) struct OpenPlace(Arc<Upstream>);

impl Drop for OpenPlace {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request has its turn until this is dropped.
pub(crate) struct Turn {
    pub(crate) upstream: Arc<Upstream>,
    _permit: OwnedSemaphorePermit,
}

impl Upstream {
    pub(crate) fn new(target: Target, common: Arc<Common>) -> Arc<Upstream> {
        let authority = target.authority().unwrap_or_else(|_| Authority::from_static("upstream"));
        let each = if target.scheme == Scheme::Http { 1 } else { pool::STREAMS_MAX };
        let turns = (common.connections_max * each).min(Semaphore::MAX_PERMITS);
        Arc::new(Upstream {
            name: target.to_string().into(),
            target,
            authority,
            common,
            is_in: AtomicBool::new(true),
            pool: Mutex::default(),
            turns: Arc::new(Semaphore::new(turns)),
            waiting: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            opening: dapple::sync::Mutex::new(()),
            spoken: AtomicU8::new(UNKNOWN),
            is_retired: AtomicBool::new(false),
            last_failure: Mutex::default(),
            counts: Counts::default(),
        })
    }

    /// It answered, after so long.
    fn answered(&self, after: Duration) {
        let us = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        self.counts.answers.fetch_add(1, Ordering::Relaxed);
        self.counts.answers_us.fetch_add(us, Ordering::Relaxed);
    }

    /// It did not answer, and this is why.
    pub(crate) fn failed(&self, why: String) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Why it did not answer the last time that it did not.
    pub(crate) fn last_failure(&self) -> String {
        self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections in all; of HTTP/1.1 those that wait.
    pub(crate) fn connections(&self) -> (usize, usize) {
        (self.open.load(Ordering::Relaxed), self.pool().len().0)
    }

    /// It is no longer in the list: what is in flight goes on, and nothing is kept.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.pool().clear();
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// How long a connection may wait.
    fn idle_max(&self) -> Duration {
        if self.is_retired() { Duration::ZERO } else { self.common.idle_max }
    }

    /// A turn, as soon as there is one. Who waits is bounded, in number and in time.
    async fn turn(self: &Arc<Upstream>) -> Result<Turn, Failure> {
        let permit = match self.turns.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_turn().await?,
        };
        Ok(Turn { upstream: self.clone(), _permit: permit })
    }

    async fn wait_for_turn(self: &Arc<Upstream>) -> Result<OwnedSemaphorePermit, Failure> {
        let waiting = Waiting::new(&self.waiting);
        if waiting.before >= self.common.connections_max.max(WAITING_MIN) {
            return Err(Failure::Busy);
        }
        match timeout(self.common.waits.connect, self.turns.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::Busy),
        }
    }

    /// A place among the connections. An idle one gives way.
    fn place(self: &Arc<Upstream>) -> Result<OpenPlace, Failure> {
        let is_full = self.open.load(Ordering::Relaxed) >= self.common.connections_max;
        // It takes the one that gives way a moment to end; for as long there is one more.
        if is_full && !self.pool().drop_oldest() {
            return Err(Failure::Busy);
        }
        Ok(self.extra_place())
    }

    /// A place beyond the limit.
    fn extra_place(self: &Arc<Upstream>) -> OpenPlace {
        self.open.fetch_add(1, Ordering::Relaxed);
        OpenPlace(self.clone())
    }

    /// Keeps a connection for the next request.
    fn keep(self: &Arc<Upstream>, sender: pool::Sender1) {
        if self.is_retired() {
            return;
        }
        let is_first = self.pool().put(sender, self.common.connections_max);
        self.sweep_if(is_first);
    }

    fn sweep_if(self: &Arc<Upstream>, is_first: bool) {
        if is_first {
            self.common.spawn(pool::sweep(Arc::downgrade(self), self.common.handle.clone()));
        }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // Nothing that can panic half-way happens under the lock.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody waits for a turn until this is dropped.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        Waiting { before: count.fetch_add(1, Ordering::Relaxed), count }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// So many requests may wait for their turn at least.
const WAITING_MIN: usize = 100;

/// What [`Upstream::spoken`] says.
const UNKNOWN: u8 = 0;
const HTTP_1: u8 = 1;
const HTTP_2: u8 = 2;
