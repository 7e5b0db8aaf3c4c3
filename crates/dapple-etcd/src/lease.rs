//! Leases: keys that go where their owner does not renew them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dapple_io::time::{Instant, sleep_until};
use dapple_sched::JoinHandle;
use dapple_sync::task::{CancellationToken, First, race};
use dapple_tower::Backoff;
use dapple_tower::random::Random;
use serde::{Serialize, Serializer};

use crate::client::Etcd;

/// The number of a lease; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(i64);

impl LeaseId {
    pub(crate) fn of(number: i64) -> Option<LeaseId> {
        (number != 0).then_some(LeaseId(number))
    }

    /// Chosen here and not by etcd, so that granting it twice is noticed.
    pub(crate) fn fresh() -> LeaseId {
        // Above 0 and below 2^62, because the gateway of some versions reads larger numbers as
        // floating point.
        LeaseId(((Random::fresh().next() >> 2) as i64).max(1))
    }

    /// The number.
    pub fn number(self) -> i64 {
        self.0
    }
}

impl Serialize for LeaseId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A lease that a task renews until it is revoked or dropped; see [`Etcd::lease`]. Dropped, it is revoked in the background, and its keys go.
///
/// etcd starts a lease's time again when it elects a leader, so keys may live longer than the time
/// says, never shorter.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// The owner wants no more of it.
    ended: CancellationToken,
    /// It may be over in etcd.
    lost: CancellationToken,
    /// When it is over in etcd if no renewal succeeds.
    ends: Mutex<Instant>,
}

impl Shared {
    fn ends(&self) -> MutexGuard<'_, Instant> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    pub(crate) fn start(etcd: Etcd, id: LeaseId, ttl: Duration, granted: Instant) -> Lease {
        let (ended, lost) = (CancellationToken::new(), CancellationToken::new());
        let shared = Arc::new(Shared { ended, lost, ends: Mutex::new(granted + ttl) });
        let task = dapple_sched::spawn(keep(etcd, id, ttl, granted, shared.clone()));
        Lease { id, shared, task: Some(task) }
    }

    /// Its number, for [`Put::lease`](crate::Put::lease).
    pub fn id(&self) -> LeaseId {
        self.id
    }

    /// Whether the lease may be over in etcd. It asks the clock, so it is right also at once after the process was stopped.
    pub fn is_lost(&self) -> bool {
        self.shared.lost.is_cancelled() || Instant::now() >= *self.shared.ends()
    }

    /// Waits until the lease may have expired: etcd says that it has, or no renewal succeeded
    /// within its time.
    ///
    /// # Cancel safety
    ///
    /// Safe.
    pub async fn lost(&self) {
        self.shared.lost.cancelled().await;
    }

    /// Ends the lease and removes its keys. Where etcd does not answer, they go when the time of the lease is over.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, the lease is revoked all the same.
    pub async fn revoke(mut self) {
        self.shared.ended.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }

    /// Stops renewing without revoking: the keys stay for the rest of the lease's time, for a successor that puts them under a lease of its own.
    pub fn leave(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.ended.cancel();
    }
}

/// Renews three times in the lease's time, and more often after a failure; revokes at the end.
async fn keep(etcd: Etcd, id: LeaseId, ttl: Duration, granted: Instant, shared: Arc<Shared>) {
    let backoff = Backoff::new(RENEW_AGAIN_MIN, ttl / 3);
    let (mut failures, mut random) = (0, Random::fresh());
    let (mut ends, mut next) = (granted + ttl, granted + ttl / 3);
    loop {
        if let First::Left(()) = race(shared.ended.cancelled(), sleep_until(next.min(ends))).await {
            break;
        }
        // The time of the lease counts from before the question on.
        let asked = Instant::now();
        let renewing = etcd.clone().timeout(ends.saturating_duration_since(asked).min(ttl / 3));
        match race(shared.ended.cancelled(), renewing.renew(id)).await {
            First::Left(()) => break,
            First::Right(Ok(Some(left))) => {
                (failures, ends, next) = (0, asked + left, asked + left / 3);
                *shared.ends() = ends;
            }
            First::Right(Ok(None)) => {
                shared.lost.cancel();
                return;
            }
            First::Right(Err(error)) => {
                tracing::debug!(%error, lease = %id, "a lease was not renewed");
                next = Instant::now() + backoff.random_wait(failures, &mut random);
                failures += 1;
            }
        }
        if Instant::now() >= ends {
            // etcd may still have it, but the owner can no longer rely on that.
            shared.lost.cancel();
            return;
        }
    }
    if let Err(error) = etcd.timeout(REVOKE_MAX).revoke(id).await {
        tracing::debug!(%error, lease = %id, "a lease is left to end by itself");
    }
}

/// The time of a renewed lease.
pub(crate) fn time_left(ttl: i64) -> Option<Duration> {
    u64::try_from(ttl).ok().filter(|ttl| *ttl > 0).map(Duration::from_secs)
}

const RENEW_AGAIN_MIN: Duration = Duration::from_millis(100);
const REVOKE_MAX: Duration = Duration::from_secs(2);
