//! The processor time that each client used recently.

use std::time::{Duration, Instant};

/// Recent use by client. Bounded: a fixed table. Clients that collide count as one.
#[derive(Debug)]
pub(super) struct Recent {
    memory: Duration,
    slots: Box<[Option<Had>]>,
}

/// An amount that decays with time.
#[derive(Clone, Copy, Debug)]
struct Had {
    ns: f64,
    at: Instant,
}

impl Recent {
    /// Use `memory` ago counts for a third.
    pub(super) fn new(memory: Duration) -> Recent {
        Recent { memory, slots: vec![None; SLOTS].into() }
    }

    /// The amount in nanoseconds.
    pub(super) fn of(&self, client: u64, now: Instant) -> f64 {
        self.slots[slot(client)].map_or(0.0, |had| {
            had.ns * (-now.saturating_duration_since(had.at).as_secs_f64() / self.memory.as_secs_f64()).exp()
        })
    }

    pub(super) fn add(&mut self, client: u64, ns: u64, now: Instant) {
        let ns = self.of(client, now) + ns as f64;
        self.slots[slot(client)] = Some(Had { ns, at: now });
    }
}

fn slot(client: u64) -> usize {
    // The upper bits of a product depend on all bits of the client.
    (client.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize
}

/// Eight bits of slots, 8 KB in all.
const SLOTS: usize = 1 << 8;
