//! The cached records of a partition, bounded in bytes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dapple_sched::environment::HashMap;

use crate::engine::TableId;
use crate::record::Record;

/// A cache that evicts in the order of insertion, but skips records that were read since it last
/// reached them.
pub(super) struct Cache {
    tables: HashMap<TableId, HashMap<Bytes, Cached>>,
    /// Each cached key once, and keys that were removed since.
    order: VecDeque<(TableId, Bytes, u64)>,
    bytes: usize,
    bytes_max: usize,
    next_number: u64,
}

struct Cached {
    record: Record,
    /// Tells the entry of `order` from older ones of the same key.
    number: u64,
    /// Set by readers, which hold the color for reading only.
    was_read: AtomicBool,
}

/// The approximate memory of a cached record apart from its key and value.
const OVERHEAD: usize = 160;

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Cache {
        Cache { tables: HashMap::default(), order: VecDeque::new(), bytes: 0, bytes_max, next_number: 0 }
    }

    pub(super) fn lookup(&self, table: TableId, key: &[u8]) -> Option<Record> {
        let cached = self.tables.get(&table)?.get(key)?;
        // Relaxed: a hint, no other memory depends on it.
        if !cached.was_read.load(Ordering::Relaxed) {
            cached.was_read.store(true, Ordering::Relaxed);
        }
        Some(cached.record.clone())
    }

    pub(super) fn insert(&mut self, table: TableId, key: Bytes, record: Record) {
        self.remove(table, &key);
        let size = size(&key, &record);
        if size > self.bytes_max / 4 {
            return;
        }
        self.bytes += size;
        let number = self.next_number;
        self.next_number += 1;
        self.order.push_back((table, key.clone(), number));
        let cached = Cached { record, number, was_read: AtomicBool::new(false) };
        self.tables.entry(table).or_default().insert(key, cached);
        while self.bytes > self.bytes_max || self.order.len() > self.bytes_max / OVERHEAD {
            self.evict();
        }
    }

    pub(super) fn remove(&mut self, table: TableId, key: &[u8]) -> Option<Record> {
        let cached = self.tables.get_mut(&table)?.remove(key)?;
        self.bytes -= size(key, &cached.record);
        Some(cached.record)
    }

    pub(super) fn drop_table(&mut self, table: TableId) {
        let Some(keys) = self.tables.remove(&table) else { return };
        self.bytes -= keys.iter().map(|(key, cached)| size(key, &cached.record)).sum::<usize>();
    }

    fn evict(&mut self) {
        let Some((table, key, number)) = self.order.pop_front() else { return };
        let Some(cached) = self.tables.get_mut(&table).and_then(|keys| keys.get_mut(&key)) else { return };
        if cached.number != number {
            return;
        }
        if std::mem::take(cached.was_read.get_mut()) {
            self.order.push_back((table, key, number));
        } else {
            self.remove(table, &key);
        }
    }
}

fn size(key: &[u8], record: &Record) -> usize {
    key.len() + record.value.len() + OVERHEAD
}
