//! The counters of the status page, with no cache line that two workers write.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dapple::Handle;

/// The server's own counters. The scheduler's come from [`Handle::stats`].
pub(crate) struct Counters {
    handle: Handle,
    /// One slot for each worker, and a last one for any other thread.
    slots: Box<[Slot]>,
    open: AtomicUsize,
    accepted: AtomicU64,
    /// TLS handshakes that succeeded, and that failed.
    handshakes: [AtomicU64; 2],
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// An accepted connection, which counts as open until this is dropped.
pub(crate) struct OpenConnection(std::sync::Arc<Counters>);

impl Counters {
    pub(crate) fn new(handle: Handle) -> Counters {
        let slots = (0..=handle.workers()).map(|_| Slot::default()).collect();
        let (open, accepted, handshakes) = Default::default();
        Counters { handle, slots, open, accepted, handshakes }
    }

    /// Counts one request and the bytes of its body. `Relaxed` here and below: no other memory
    /// depends on a counter.
    pub(crate) fn add_request(&self, bytes: u64) {
        let slot = self.slot();
        slot.requests.fetch_add(1, Ordering::Relaxed);
        slot.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of a body that is sent in pieces.
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.slot().bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a connection as open until the result is dropped.
    pub(crate) fn open_connection(self: &std::sync::Arc<Counters>) -> OpenConnection {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.clone())
    }

    /// Counts a finished TLS handshake.
    pub(crate) fn add_handshake(&self, is_ok: bool) {
        self.handshakes[usize::from(!is_ok)].fetch_add(1, Ordering::Relaxed);
    }

    /// TLS handshakes that succeeded, and that failed.
    pub(crate) fn handshakes(&self) -> [u64; 2] {
        self.handshakes.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The number of connections accepted since the start.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// The numbers of requests, and bytes of bodies, since the start.
    pub(crate) fn requests_and_bytes(&self) -> (u64, u64) {
        self.slots.iter().fold((0, 0), |(requests, bytes), slot| {
            (requests + slot.requests.load(Ordering::Relaxed), bytes + slot.bytes.load(Ordering::Relaxed))
        })
    }

    /// The index of the worker on this thread.
    pub(crate) fn worker_index(&self) -> Option<usize> {
        self.handle.worker_index()
    }

    fn slot(&self) -> &Slot {
        let others = self.slots.len() - 1;
        &self.slots[self.handle.worker_index().unwrap_or(others).min(others)]
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
