//! The recent changes of a partition, from which watchers read. Its bounds apply to all watchers
//! together.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dapple_sync::sync::Notify;

use crate::StoreOptions;
use crate::engine::TableId;
use crate::record::Record;

/// A change of one key.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) table: TableId,
    pub(crate) key: Bytes,
    /// The version of the change, also if it removed the key.
    pub(crate) version: u64,
    pub(crate) record: Option<Record>,
}

/// The watcher asks for changes that the history no longer has; the history begins after this
/// version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lagged(pub(crate) u64);

pub(super) struct History {
    /// In the order of their versions.
    events: VecDeque<Event>,
    bytes: usize,
    /// All changes after this version are in `events`.
    begin: u64,
    /// The version of the last commit.
    end: u64,
    /// One for each watcher; a dropped watcher leaves the only reference here.
    watchers: Vec<Arc<Notify>>,
}

/// The approximate memory of an event apart from key and value.
const OVERHEAD: usize = 120;

impl Event {
    fn size(&self) -> usize {
        OVERHEAD + self.key.len() + self.record.as_ref().map_or(0, |record| record.value.len())
    }
}

impl History {
    pub(super) fn new(version: u64) -> History {
        History { events: VecDeque::new(), bytes: 0, begin: version, end: version, watchers: Vec::new() }
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn add_watcher(&mut self, watcher: Arc<Notify>) {
        self.watchers.retain(|watcher| Arc::strong_count(watcher) > 1);
        self.watchers.push(watcher);
    }

    /// Adds the changes of a commit that is durable.
    pub(super) fn publish(&mut self, events: Vec<Event>, version: u64, options: &StoreOptions) {
        self.end = self.end.max(version);
        for event in events {
            self.bytes += event.size();
            self.events.push_back(event);
        }
        while self.events.len() > options.history_len_max || self.bytes > options.history_bytes_max {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes -= event.size();
            self.begin = event.version;
        }
        self.wake();
    }

    /// Makes all watchers check again.
    pub(super) fn wake(&mut self) {
        self.watchers.retain(|watcher| Arc::strong_count(watcher) > 1);
        self.watchers.iter().for_each(|watcher| watcher.notify_one());
    }

    /// The first `limit` changes after `version` that `is_wanted`, and the version up to which they are complete.
    pub(super) fn after(
        &self,
        version: u64,
        limit: usize,
        is_wanted: impl Fn(&Event) -> bool,
    ) -> Result<(Vec<Event>, u64), Lagged> {
        if version < self.begin || version > self.end {
            return Err(Lagged(self.begin.max(version.min(self.end))));
        }
        let first = self.events.partition_point(|event| event.version <= version);
        let mut found = Vec::new();
        for event in self.events.range(first..).filter(|event| is_wanted(event)) {
            found.push(event.clone());
            if found.len() == limit {
                return Ok((found, event.version));
            }
        }
        Ok((found, self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(version: u64) -> Event {
        Event { table: TableId(1), key: Bytes::from(version.to_string()), version, record: None }
    }

    #[test]
    fn what_was_dropped_is_told_and_the_rest_is_complete() {
        let options = StoreOptions { history_len_max: 3, ..StoreOptions::default() };
        let mut history = History::new(10);
        let versions = |history: &History, from| {
            history
                .after(from, 100, |_| true)
                .map(|(events, end)| (events.iter().map(|event| event.version).collect(), end))
        };
        assert_eq!(versions(&history, 10), Ok((vec![], 10)));
        assert_eq!(versions(&history, 9), Err(Lagged(10)));
        assert_eq!(versions(&history, 11), Err(Lagged(10)));
        history.publish(vec![event(11), event(12)], 13, &options);
        assert_eq!(versions(&history, 10), Ok((vec![11, 12], 13)));
        history.publish(vec![event(14), event(15)], 16, &options);
        assert_eq!(versions(&history, 10), Err(Lagged(11)));
        assert_eq!(versions(&history, 11), Ok((vec![12, 14, 15], 16)));
        assert_eq!(history.after(11, 2, |_| true).map(|(events, end)| (events.len(), end)), Ok((2, 14)));
    }
}
