//! The keys of a partition with the most operations, found with bounded memory.
//!
//! Space-saving (Metwally, Agrawal, El Abbadi 2005): a key that is not counted yet takes over the smallest count. So
//! each count is too large by at most the count that it took over, and a key with more than one of `LEN` operations is
//! never missing. One operation of 16 counts: a golden-ratio sequence chooses it, so that callers with a rhythm are
//! sampled fairly, too. Counts halve each minute: the result is that of the last minutes.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::Instant;

use super::batch::OWN;
use crate::engine::TableId;

/// The operations of the last minutes by key. Shared by all that use the partition.
pub(super) struct HotKeys {
    operations: AtomicU32,
    counts: Mutex<Counts>,
}

/// Operations of the last minutes, in units of [`SAMPLED`] of them: all, and at least that many for each of the keys.
pub(crate) type Usage = (u64, Vec<(Bytes, u64)>);

struct Counts {
    all: u64,
    keys: Vec<Counted>,
    halved: Instant,
}

struct Counted {
    table: TableId,
    key: Bytes,
    hash: u32,
    count: u64,
    /// The count that it took over.
    excess: u64,
}

const LEN: usize = 64;
const SAMPLED: u32 = 16;
const HALVED_EVERY: Duration = Duration::from_secs(60);

impl HotKeys {
    pub(super) fn new() -> HotKeys {
        let counts = Counts { all: 0, keys: Vec::new(), halved: Instant::now() };
        HotKeys { operations: AtomicU32::new(0), counts: Mutex::new(counts) }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation, if it is one of the sample.
    pub(super) fn used(&self, table: TableId, key: &[u8]) {
        const GOLDEN: u32 = 0x9e37_79b9;
        if table == OWN {
            return;
        }
        // Relaxed: a number for the sample, nothing more.
        let number = self.operations.fetch_add(1, Relaxed);
        if number.wrapping_mul(GOLDEN) < u32::MAX / SAMPLED {
            self.counts().add(table, key, Instant::now());
        }
    }

    /// All operations of the partition, and those with each of the table's keys.
    pub(super) fn of_table(&self, table: TableId) -> Usage {
        let mut counts = self.counts();
        counts.age(Instant::now());
        let keys = counts.keys.iter().filter(|counted| counted.table == table);
        (counts.all, keys.map(|counted| (counted.key.clone(), counted.count - counted.excess)).collect())
    }
}

impl Counts {
    fn age(&mut self, now: Instant) {
        let halvings = now.saturating_duration_since(self.halved).as_secs() / HALVED_EVERY.as_secs();
        if halvings == 0 {
            return;
        }
        self.halved = now;
        let half = |count: u64| count.checked_shr(u32::try_from(halvings).unwrap_or(u32::MAX)).unwrap_or(0);
        self.all = half(self.all);
        for counted in &mut self.keys {
            let surely = half(counted.count - counted.excess);
            counted.excess = half(counted.excess);
            counted.count = surely + counted.excess;
        }
        self.keys.retain(|counted| counted.count > 0);
    }

    fn add(&mut self, table: TableId, key: &[u8], now: Instant) {
        self.age(now);
        self.all += 1;
        let hash = crc32fast::hash(key);
        let is_it = |one: &&mut Counted| one.hash == hash && one.table == table && one.key == key;
        if let Some(counted) = self.keys.iter_mut().find(is_it) {
            counted.count += 1;
            return;
        }
        // A copy: the caller's bytes may be a part of a large buffer.
        let mut counted = Counted { table, key: Bytes::copy_from_slice(key), hash, count: 1, excess: 0 };
        if self.keys.len() < LEN {
            self.keys.push(counted);
        } else if let Some(smallest) = self.keys.iter_mut().min_by_key(|counted| counted.count) {
            (counted.count, counted.excess) = (smallest.count + 1, smallest.count);
            *smallest = counted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(100);

    fn surely(counts: &Counts, key: &[u8]) -> u64 {
        counts.keys.iter().find(|counted| counted.key == key).map_or(0, |counted| counted.count - counted.excess)
    }

    #[test]
    fn a_key_with_a_large_share_is_found_among_many_and_no_count_is_too_high() {
        let now = Instant::now();
        let mut counts = Counts { all: 0, keys: Vec::new(), halved: now };
        for number in 0..100_000_u32 {
            let key = if number % 10 == 0 { 7 } else { 1_000 + number };
            counts.add(TABLE, &key.to_be_bytes(), now);
        }
        assert_eq!((counts.all, counts.keys.len()), (100_000, LEN));
        let hot = surely(&counts, &7_u32.to_be_bytes());
        assert!((8_000..=10_000).contains(&hot), "{hot}");
        assert!(counts.keys.iter().all(|one| one.key == 7_u32.to_be_bytes()[..] || one.count - one.excess <= 1));
    }

    #[test]
    fn counts_halve_each_minute_until_the_key_is_forgotten() {
        let now = Instant::now();
        let mut counts = Counts { all: 0, keys: Vec::new(), halved: now };
        (0..8).for_each(|_| counts.add(TABLE, b"a", now));
        counts.age(now + 2 * HALVED_EVERY);
        assert_eq!((counts.all, surely(&counts, b"a")), (2, 2));
        counts.age(now + 100 * HALVED_EVERY);
        assert_eq!((counts.all, counts.keys.len()), (0, 0));
    }

    #[test]
    fn callers_with_a_rhythm_are_sampled_fairly() {
        for period in 1..=64_u32 {
            let hot = HotKeys::new();
            for number in 0..period * 1_600 {
                hot.used(TABLE, &(number % period).to_be_bytes());
            }
            let (all, keys) = hot.of_table(TABLE);
            assert_eq!(keys.len(), period as usize);
            let fair = all / u64::from(period);
            assert!(keys.iter().all(|(_, count)| count.abs_diff(fair) <= fair / 5), "{period}: {fair} {keys:?}");
        }
    }
}
