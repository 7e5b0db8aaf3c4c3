//! Replies that wait to be written, many at once.

use super::record::{RECORD_LEN, Record, mark};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Replies of one connection. Tasks add to it; one writer takes all.
#[derive(Default)]
pub(super) struct Outbox {
    bytes: Mutex<Vec<u8>>,
    filled: Notify,
    filled_blocking: Condvar,
}

impl Outbox {
    /// Adds a reply, and wakes the writer if it waits.
    pub(super) fn reply(&self, mut record: Record) {
        mark(&mut record);
        let mut bytes = self.bytes();
        bytes.extend_from_slice(&record);
        let was_empty = bytes.len() == RECORD_LEN;
        drop(bytes);
        if was_empty {
            self.filled.notify_one();
            self.filled_blocking.notify_one();
        }
    }

    /// Takes all replies, in exchange for an empty buffer; waits if there are none. Other due tasks
    /// run first: a write for each reply would cost more than all other work.
    pub(super) async fn take(&self, buf: &mut Vec<u8>, yield_now: impl AsyncFn()) {
        buf.clear();
        while buf.is_empty() {
            yield_now().await;
            std::mem::swap(&mut *self.bytes(), buf);
            if buf.is_empty() {
                self.filled.notified().await;
            }
        }
    }

    /// The same for kernel threads.
    pub(super) fn take_blocking(&self, buf: &mut Vec<u8>) {
        buf.clear();
        let bytes = self.bytes();
        let mut bytes =
            self.filled_blocking.wait_while(bytes, |bytes| bytes.is_empty()).unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *bytes, buf);
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Splits the read bytes into whole records; keeps the rest for the next time.
#[derive(Default)]
pub(super) struct Inbox {
    rest: Vec<u8>,
}

impl Inbox {
    pub(super) fn for_each(&mut self, mut bytes: &[u8], mut task: impl FnMut(Record)) {
        if !self.rest.is_empty() {
            let missing = (RECORD_LEN - self.rest.len()).min(bytes.len());
            self.rest.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if let Ok(record) = self.rest[..].try_into() {
                self.rest.clear();
                task(record);
            }
        }
        let mut records = bytes.chunks_exact(RECORD_LEN);
        records.by_ref().filter_map(|record| record.try_into().ok()).for_each(task);
        self.rest.extend_from_slice(records.remainder());
    }
}

/// A pool of tasks behind a queue: a limited number run, the others wait.
pub(super) struct Pool {
    state: Mutex<(VecDeque<Record>, usize)>,
    running_max: usize,
}

impl Pool {
    pub(super) fn new(running_max: usize) -> Arc<Pool> {
        Arc::new(Pool { state: Mutex::default(), running_max })
    }

    /// True if the caller must start a task for it; otherwise it is queued.
    pub(super) fn admits(&self, record: &Record) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = state.1 < self.running_max;
        if admitted {
            state.1 += 1;
        } else {
            state.0.push_back(*record);
        }
        admitted
    }

    /// The next record for a task; `None` ends it.
    pub(super) fn next(&self) -> Option<Record> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.0.pop_front();
        state.1 -= usize::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_put_together_again() {
        let all: Vec<u8> = (0..RECORD_LEN * 7).map(|index| (index / RECORD_LEN) as u8).collect();
        for piece in [1, 149, 150, 151, 400] {
            let (mut inbox, mut found) = (Inbox::default(), Vec::new());
            all.chunks(piece).for_each(|bytes| inbox.for_each(bytes, |record| found.push(record)));
            let expected: Vec<Record> = (0..7).map(|number| [number; RECORD_LEN]).collect();
            assert_eq!(found, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_pool_runs_no_more_than_it_may() {
        let pool = Pool::new(2);
        let record = |number| [number; RECORD_LEN];
        assert_eq!([1, 2, 3].map(|number| pool.admits(&record(number))), [true, true, false]);
        assert_eq!([pool.next(), pool.next()], [Some(record(3)), None]);
        assert!(pool.admits(&record(4)) && !pool.admits(&record(5)));
    }
}
