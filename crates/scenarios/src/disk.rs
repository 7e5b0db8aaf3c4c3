//! A log that outlives crashes: records that were synced do, others are lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A log of one host. The simulation keeps it, the host's program opens it when it starts.
#[derive(Clone, Debug)]
pub(crate) struct Log<T>(Arc<Mutex<Records<T>>>);

#[derive(Debug)]
struct Records<T> {
    all: Vec<T>,
    synced: usize,
}

impl<T: Clone> Log<T> {
    pub(crate) fn new() -> Log<T> {
        Log(Arc::new(Mutex::new(Records { all: Vec::new(), synced: 0 })))
    }

    fn records(&self) -> MutexGuard<'_, Records<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At the start of the host's program: what was not synced before the crash is gone.
    pub(crate) fn open(&self) -> Vec<T> {
        let mut records = self.records();
        let synced = records.synced;
        records.all.truncate(synced);
        records.all.clone()
    }

    pub(crate) fn append(&self, record: T) {
        self.records().all.push(record);
    }

    pub(crate) fn sync(&self) {
        let mut records = self.records();
        records.synced = records.all.len();
    }

    /// The results of `f` for all records.
    pub(crate) fn filter_map<R>(&self, f: impl FnMut(&T) -> Option<R>) -> Vec<R> {
        self.records().all.iter().filter_map(f).collect()
    }

    /// All records, for the check at the end.
    pub(crate) fn all(&self) -> Vec<T> {
        self.records().all.clone()
    }
}
