//! What the proxy counts, without a cache line that two workers write.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dapple::Handle;

/// Something that is counted. Bytes are those of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Requests,
    Hits,
    Misses,
    /// Misses that joined the fetch of another request.
    Collapsed,
    /// Stored responses of which the origin said that they are still right.
    Revalidated,
    /// Stale responses that were sent.
    Stale,
    /// Requests that the cache has no part in.
    Passed,
    /// Requests of what may not be reached.
    Refused,
    /// Requests that got an error of ours.
    Failed,
    BytesToClients,
    BytesFromOrigins,
    Connects,
    /// Requests on a connection that was kept.
    Reused,
    Retries,
    Tunnels,
    TunnelBytes,
    /// Requests to servers that came to no response.
    FetchesFailed,
    /// Connections of clients that were taken.
    Accepted,
    /// Clients that may not use the proxy, and were turned away.
    Strangers,
}

/// How many kinds of counts there are.
const COUNTS: usize = Count::Strangers as usize + 1;

/// The proxy's own numbers.
pub(crate) struct Tally {
    handle: Handle,
    /// One slot per worker, and a last one for any other thread.
    slots: Box<[Slot]>,
    pub(crate) tunnels: AtomicUsize,
}

/// Whole cache lines, in pairs, because processors fetch them so.
#[repr(align(128))]
#[derive(Default)]
struct Slot([AtomicU64; COUNTS]);

impl Tally {
    pub(crate) fn new(handle: Handle) -> Tally {
        let slots = (0..=handle.workers()).map(|_| Slot::default()).collect();
        Tally { handle, slots, tunnels: AtomicUsize::new(0) }
    }

    /// Counts one more.
    pub(crate) fn one(&self, count: Count) {
        self.add(count, 1);
    }

    /// `Relaxed` here and below: nothing is ordered by a count.
    pub(crate) fn add(&self, count: Count, by: u64) {
        let others = self.slots.len() - 1;
        let slot = &self.slots[self.handle.worker_index().unwrap_or(others).min(others)];
        slot.0[count as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Tunnels that are open.
    pub(crate) fn tunnels_open(&self) -> usize {
        self.tunnels.load(Ordering::Relaxed)
    }

    /// The sum since the start.
    pub(crate) fn sum(&self, count: Count) -> u64 {
        self.slots.iter().map(|slot| slot.0[count as usize].load(Ordering::Relaxed)).sum()
    }
}

/// One of a limited number of places, given back when dropped.
pub(crate) struct TallyPermit {
    tally: std::sync::Arc<Tally>,
    of: fn(&Tally) -> &AtomicUsize,
}

impl TallyPermit {
    /// Takes a place where fewer than `max` are taken.
    pub(crate) fn take(
        tally: &std::sync::Arc<Tally>,
        of: fn(&Tally) -> &AtomicUsize,
        max: usize,
    ) -> Option<TallyPermit> {
        if of(tally).fetch_add(1, Ordering::Relaxed) < max {
            return Some(TallyPermit { tally: tally.clone(), of });
        }
        of(tally).fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for TallyPermit {
    fn drop(&mut self) {
        (self.of)(&self.tally).fetch_sub(1, Ordering::Relaxed);
    }
}
