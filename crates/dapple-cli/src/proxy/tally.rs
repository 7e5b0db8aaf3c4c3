//! The proxy's counters, with no cache line that two workers write.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dapple::Handle;

/// A counter. Bytes count bodies only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Requests,
    Hits,
    Misses,
    /// Misses that joined the fetch of another request.
    Collapsed,
    /// Stored responses that the origin confirmed.
    Revalidated,
    /// Stale responses sent.
    Stale,
    /// Requests that bypass the cache.
    Passed,
    /// Requests for forbidden destinations.
    Refused,
    /// Requests answered with an error of the proxy.
    Failed,
    BytesToClients,
    BytesFromOrigins,
    Connects,
    /// Requests on a kept connection.
    Reused,
    Retries,
    Tunnels,
    TunnelBytes,
    /// Requests to servers that got no response.
    FetchesFailed,
    /// Client connections accepted.
    Accepted,
    /// Clients turned away because they may not use the proxy.
    Strangers,
}

/// The number of counters.
const COUNTS: usize = Count::Strangers as usize + 1;

/// The proxy's counters.
pub(crate) struct Tally {
    handle: Handle,
    /// One slot for each worker, and a last one for any other thread.
    slots: Box<[Slot]>,
    pub(crate) tunnels: AtomicUsize,
}

/// Whole cache lines, in pairs, because processors fetch pairs.
#[repr(align(128))]
#[derive(Default)]
struct Slot([AtomicU64; COUNTS]);

impl Tally {
    pub(crate) fn new(handle: Handle) -> Tally {
        let slots = (0..=handle.workers()).map(|_| Slot::default()).collect();
        Tally { handle, slots, tunnels: AtomicUsize::new(0) }
    }

    /// Adds one.
    pub(crate) fn one(&self, count: Count) {
        self.add(count, 1);
    }

    /// Adds a number. `Relaxed` here and below: no other memory depends on a counter.
    pub(crate) fn add(&self, count: Count, by: u64) {
        let others = self.slots.len() - 1;
        let slot = &self.slots[self.handle.worker_index().unwrap_or(others).min(others)];
        slot.0[count as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// The number of open tunnels.
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
