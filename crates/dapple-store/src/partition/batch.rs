//! One batch of the write combiner: evaluated in order, then committed at once. It runs in the blocking pool.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use dapple_sched::environment::HashMap;

use super::history::Event;
use crate::codec;
use crate::engine::{Change, Failure, Partition, TableId};
use crate::error::Refusal;
use crate::lock::Fence;
use crate::record::{NEVER, Record, now_ms};
use crate::table_info::TableInfo;
use crate::{Expect, Version};

/// A write as it waits in a partition.
pub(crate) struct Write {
    pub(crate) table: Arc<TableInfo>,
    pub(crate) key: Bytes,
    pub(crate) action: Action,
    /// The write is refused if this token is not the newest.
    pub(crate) fence: Option<Fence>,
}

pub(crate) enum Action {
    Put {
        value: Bytes,
        expires_ms: u64,
        expect: Option<Expect<Bytes>>,
    },
    Remove {
        expect: Option<Expect<Bytes>>,
    },
    Increment {
        by: i64,
    },
    /// Appends to a log.
    Append {
        values: Vec<Bytes>,
    },
    /// Removes entries of a log below a position.
    Trim {
        to: u64,
    },
    /// Runs once, between the writes before and after it.
    Modify(Mutex<Option<Modification>>),
    /// All of these or none; the table and key of the write around them have no effect.
    All(Vec<Write>),
    /// Each of these by itself: as single writes, but with one entry in the queue and one answer.
    Each(Vec<Write>),
    /// Changes nothing, if `expect` holds.
    Check {
        expect: Expect<Bytes>,
    },
    /// Removes all of the table from this partition.
    Drop,
    /// Changes nothing, so it is answered when all entries that waited before it are.
    Nothing,
}

/// A change that depends on the value before.
pub(crate) type Modification = Box<dyn FnOnce(Option<&Record>) -> Result<Next, Refusal> + Send>;

/// The result of a [`Modification`].
pub(crate) enum Next {
    Keep,
    Put { value: Bytes, expires_ms: u64 },
    Remove,
}

/// The answer to a write that was applied.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) previous: Option<Record>,
    pub(crate) version: Version,
    /// The number after an increment.
    pub(crate) number: i64,
    /// The answers to the parts of [`Action::All`] and [`Action::Each`].
    pub(crate) parts: Vec<Result<Reply, Refusal>>,
}

impl Reply {
    pub(crate) fn new(previous: Option<Record>, version: u64) -> Reply {
        Reply { previous, version: Version(version), number: 0, parts: Vec::new() }
    }
}

/// The changes of a commit.
#[derive(Default)]
pub(super) struct Changed {
    /// The new records of the keys that changed.
    pub(super) records: Records,
    /// Each change, also of keys that changed several times.
    pub(super) events: Vec<Event>,
    /// The version of the partition from then on.
    pub(super) version: u64,
}

pub(super) struct Outcome {
    pub(super) replies: Vec<Result<Reply, Refusal>>,
    pub(super) changed: Changed,
    pub(super) committed: Result<(), Uncommitted>,
}

impl Outcome {
    /// None of these writes has run.
    pub(super) fn not_applied(len: usize, failure: Failure) -> Outcome {
        let replies = (0..len).map(|_| Ok(Reply::new(None, 0))).collect();
        Outcome { replies, changed: Changed::default(), committed: Err(Uncommitted::NotApplied(failure)) }
    }
}

/// The records that a batch knows, by table and key; `None` for keys without a value.
pub(super) type Records = HashMap<(TableId, Bytes), Option<Record>>;

/// A commit that failed.
#[derive(Clone)]
pub(super) enum Uncommitted {
    /// The file is known not to hold it. Later ones may succeed.
    NotApplied(Failure),
    /// The file may hold it, and the partition must not continue.
    Unknown(Failure),
}

impl Write {
    pub(crate) fn new(table: &Arc<TableInfo>, key: Bytes, action: Action) -> Write {
        Write { table: table.clone(), key, action, fence: None }
    }

    pub(crate) fn len(&self) -> usize {
        let value = match &self.action {
            Action::Put { value, .. } => value.len(),
            Action::Append { values } => values.iter().map(Bytes::len).sum(),
            Action::All(writes) | Action::Each(writes) => writes.iter().map(Write::len).sum(),
            _ => 0,
        };
        self.key.len() + value
    }
}

/// Runs the first writes, at least one: as many as read no more than [`READ_BYTES`] of values before them. There is a reply for
/// each that ran.
pub(super) fn run<P: Partition>(engine: &P, progress: &mut Progress, writes: &[Write], known: Records) -> Outcome {
    let mut batch = Batch::new(engine, progress, known);
    let mut replies = Vec::with_capacity(writes.len());
    for write in writes {
        replies.push(batch.apply(write));
        if batch.read_bytes > READ_BYTES {
            break;
        }
    }
    let committed = batch.commit(progress, &[]);
    Outcome { replies, changed: batch.changed(), committed }
}

/// The values before its writes that one commit reads from the engine, bytes, and those that one batch of a caller may read.
const READ_BYTES: usize = 32 << 20;
const READ_BYTES_MAX: usize = 256 << 20;

/// The totals of a partition's commits.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The last version that was given out.
    pub(super) version: u64,
    /// Keys of commit records that are no longer needed. The next commit removes them.
    pub(super) finished: Vec<Vec<u8>>,
}

pub(super) struct Batch<'a, P> {
    engine: &'a P,
    known: Records,
    /// In the order of the keys, which is the cheapest for trees.
    changes: BTreeMap<(TableId, Bytes), Option<Record>>,
    events: Vec<Event>,
    dropped: Vec<TableId>,
    logs: Vec<TableId>,
    version: u64,
    /// The bytes of records that were read from the engine.
    read_bytes: usize,
}

impl<'a, P: Partition> Batch<'a, P> {
    pub(super) fn new(engine: &'a P, progress: &Progress, known: Records) -> Self {
        let (changes, events, dropped, logs) = (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
        Batch { engine, known, changes, events, dropped, logs, version: progress.version, read_bytes: 0 }
    }

    /// Its changes; called after the commit.
    pub(super) fn changed(&mut self) -> Changed {
        let mut records: Records = std::mem::take(&mut self.changes).into_iter().collect();
        records.retain(|(table, key), _| key.is_empty() || !self.logs.contains(table));
        Changed { records, events: std::mem::take(&mut self.events), version: self.version }
    }

    pub(super) fn apply(&mut self, write: &Write) -> Result<Reply, Refusal> {
        let table = write.table.id;
        match &write.action {
            Action::Nothing => return Ok(Reply::new(None, self.version)),
            Action::All(writes) => return self.apply_all(writes),
            Action::Each(writes) => {
                let parts = writes.iter().map(|write| self.apply(write)).collect();
                return Ok(Reply { parts, ..Reply::new(None, self.version) });
            }
            Action::Drop => {
                self.changes.retain(|(of, _), _| *of != table);
                self.known.retain(|(of, _), _| *of != table);
                self.dropped.push(table);
                return Ok(Reply::new(None, self.version));
            }
            _ => write.table.check()?,
        }
        write.fence.as_ref().map_or(Ok(()), Fence::check)?;
        match &write.action {
            Action::Append { values } => return self.append(table, values),
            Action::Trim { to } => return self.trim(table, *to),
            _ => {}
        }
        let kept = self.kept(table, &write.key)?;
        let previous = kept.clone().filter(|record| record.is_live(now_ms()));
        let (next, number) = match &write.action {
            Action::Put { value, expires_ms, expect } => {
                check(expect.as_ref(), &previous)?;
                (Some((value.clone(), *expires_ms)), 0)
            }
            Action::Remove { expect } => {
                check(expect.as_ref(), &previous)?;
                // A value that has expired is removed as well: it takes room.
                if kept.is_none() {
                    return Ok(Reply::new(previous, self.version));
                }
                (None, 0)
            }
            Action::Check { expect } => {
                check(Some(expect), &previous)?;
                return Ok(Reply::new(previous, self.version));
            }
            Action::Increment { by } => {
                let number = previous.as_ref().map_or(Ok(0), |record| codec::decode::<i64>(&record.value))?;
                let number = number.checked_add(*by).ok_or(Refusal::Overflow)?;
                let expires_ms = previous.as_ref().map_or(NEVER, |record| record.expires_ms);
                (Some((codec::encode(&number)?, expires_ms)), number)
            }
            Action::Modify(modification) => match modify(modification, previous.as_ref())? {
                Next::Keep => return Ok(Reply::new(previous, self.version)),
                Next::Remove if kept.is_none() => return Ok(Reply::new(previous, self.version)),
                Next::Remove => (None, 0),
                Next::Put { value, expires_ms } => (Some((value, expires_ms)), 0),
            },
            Action::Append { .. }
            | Action::Trim { .. }
            | Action::All(_)
            | Action::Each(_)
            | Action::Drop
            | Action::Nothing => {
                unreachable!("answered above")
            }
        };
        self.set(table, &write.key, next);
        Ok(Reply { number, ..Reply::new(previous, self.version) })
    }

    /// Gives a key a new value and time of expiry, or none.
    pub(super) fn set(&mut self, table: TableId, key: &Bytes, next: Option<(Bytes, u64)>) {
        self.version += 1;
        let version = self.version;
        let record = next.map(|(value, expires_ms)| Record { version, expires_ms, value });
        self.known.insert((table, key.clone()), record.clone());
        self.events.push(Event { table, key: key.clone(), version, record: record.clone() });
        self.changes.insert((table, key.clone()), record);
    }

    /// Applies all writes; if one is refused, undoes those before it.
    fn apply_all(&mut self, writes: &[Write]) -> Result<Reply, Refusal> {
        let places = writes.iter().map(|write| (write.table.id, write.key.clone()));
        let before: Vec<_> =
            places.map(|place| (self.known.get(&place).cloned(), self.changes.get(&place).cloned(), place)).collect();
        let events_before = self.events.len();
        let parts: Result<Vec<Reply>, Refusal> = writes.iter().map(|write| self.apply(write)).collect();
        match parts {
            Ok(parts) => Ok(Reply { parts: parts.into_iter().map(Ok).collect(), ..Reply::new(None, self.version) }),
            Err(refusal) => {
                self.events.truncate(events_before);
                for (known, changed, place) in before {
                    match known {
                        Some(record) => drop(self.known.insert(place.clone(), record)),
                        None => drop(self.known.remove(&place)),
                    }
                    match changed {
                        Some(record) => drop(self.changes.insert(place, record)),
                        None => drop(self.changes.remove(&place)),
                    }
                }
                Err(refusal)
            }
        }
    }

    /// The record of a key, expired or not.
    pub(super) fn kept(&mut self, table: TableId, key: &Bytes) -> Result<Option<Record>, Refusal> {
        let record = match self.known.get(&(table, key.clone())) {
            Some(record) => record.clone(),
            None if self.read_bytes > READ_BYTES_MAX => {
                let (len, len_max) = (self.read_bytes, READ_BYTES_MAX);
                return Err(Refusal::TooLong { part: "sum of the values before the batch", len, len_max });
            }
            None => {
                let record = super::load(self.engine, table, key)?;
                self.read_bytes += record.as_ref().map_or(0, |record| record.value.len());
                self.known.insert((table, key.clone()), record.clone());
                record
            }
        };
        Ok(record)
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Keeps the entries of a log out of the cache: they are read in rows.
    pub(super) fn mark_log(&mut self, table: TableId) {
        if !self.logs.contains(&table) {
            self.logs.push(table);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.dropped.is_empty()
    }

    /// The changes of the tables, with the version that their commit gives to the partition.
    pub(super) fn changes(&self) -> (Vec<Change>, u64) {
        let mut changes: Vec<Change> = self.dropped.iter().map(|table| Change::DropTable(*table)).collect();
        changes.extend(self.changes.iter().map(|((table, key), record)| match record {
            Some(record) => Change::Put(*table, key.to_vec(), record.encode(*table, key)),
            None => Change::Remove(*table, key.to_vec()),
        }));
        // Counts even if tables are only dropped, so that the file always tells whether a commit is
        // in it.
        (changes, self.version + 1)
    }

    /// Commits the changes and `more`.
    pub(super) fn commit(&mut self, progress: &mut Progress, more: &[Change]) -> Result<(), Uncommitted> {
        if self.is_empty() && more.is_empty() {
            return Ok(());
        }
        let (mut changes, version) = self.changes();
        self.version = version;
        progress.version = version;
        let finished = std::mem::take(&mut progress.finished);
        changes.extend_from_slice(more);
        changes.extend(finished.into_iter().map(|key| Change::Remove(OWN, key)));
        changes.push(put_version(version));
        match self.engine.commit(&changes) {
            Ok(()) => Ok(()),
            Err(failure @ Failure::Full { .. }) => self.after_full(failure),
            Err(failure) => Err(Uncommitted::Unknown(failure)),
        }
    }

    /// Asks the file whether it holds the commit that found no room.
    fn after_full(&self, failure: Failure) -> Result<(), Uncommitted> {
        self.engine.recover().map_err(Uncommitted::Unknown)?;
        match stored_version(self.engine) {
            Ok(version) if version < self.version => Err(Uncommitted::NotApplied(failure)),
            Ok(_) => Err(Uncommitted::Unknown(failure)),
            Err(other) => Err(Uncommitted::Unknown(other)),
        }
    }
}

/// Runs a caller's closure. A panic in it is that write's alone.
fn modify(modification: &Mutex<Option<Modification>>, previous: Option<&Record>) -> Result<Next, Refusal> {
    let taken = modification.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(closure) = taken else { return Ok(Next::Keep) };
    // The closure has no part of the batch, so no state can be left half changed.
    let result = catch_unwind(AssertUnwindSafe(|| closure(previous)));
    result.unwrap_or_else(|_| Err(Refusal::Panicked))
}

fn check(expect: Option<&Expect<Bytes>>, current: &Option<Record>) -> Result<(), Refusal> {
    let holds = match (expect, current) {
        (None, _) | (Some(Expect::Absent), None) => true,
        (Some(Expect::Version(version)), Some(record)) => version.0 == record.version,
        (Some(Expect::Value(value)), Some(record)) => *value == record.value,
        _ => false,
    };
    let current = current.as_ref().map(|record| Version(record.version));
    if holds { Ok(()) } else { Err(Refusal::Conflict { current }) }
}

/// The last version that a partition gave out.
pub(super) fn stored_version<P: Partition>(engine: &P) -> Result<u64, Failure> {
    let bytes = engine.get(OWN, VERSION)?.unwrap_or_default();
    Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
}

pub(crate) fn put_version(version: u64) -> Change {
    Change::Put(OWN, VERSION.to_vec(), version.to_le_bytes().to_vec())
}

/// The table of the store's own data in each partition.
pub(crate) const OWN: TableId = TableId(0);

const VERSION: &[u8] = b"version";
