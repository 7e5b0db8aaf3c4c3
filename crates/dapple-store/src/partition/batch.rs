//! One batch of the write combiner: evaluated in order, then committed at once. It runs in the blocking pool.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::codec;
use crate::engine::{Change, Failure, Partition, TableId};
use crate::error::Refusal;
use crate::record::{NEVER, Record, now_ms};
use crate::table_info::TableInfo;
use crate::{Expect, Version};

/// A write as it waits in a partition.
pub(crate) struct Write {
    pub(crate) table: Arc<TableInfo>,
    pub(crate) key: Bytes,
    pub(crate) action: Action,
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
    /// Runs once, between the writes before and after it.
    Modify(Mutex<Option<Modification>>),
    /// Removes all of the table from this partition.
    Drop,
    /// Changes nothing, and so is answered when all that waited before it is.
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
}

pub(super) struct Outcome {
    pub(super) replies: Vec<Result<Reply, Refusal>>,
    /// The new records of the keys that changed.
    pub(super) records: Records,
    pub(super) committed: Result<(), Uncommitted>,
}

/// The records that a batch knows, by table and key; `None` for keys without a value.
pub(super) type Records = HashMap<(TableId, Bytes), Option<Record>>;

/// A commit that failed.
#[derive(Clone)]
pub(super) enum Uncommitted {
    /// The file is known not to hold it. Later ones may succeed.
    NotApplied(Failure),
    /// The file may hold it, and the partition must not go on.
    Unknown(Failure),
}

impl Write {
    pub(crate) fn len(&self) -> usize {
        let value = if let Action::Put { value, .. } = &self.action { value.len() } else { 0 };
        self.key.len() + value
    }
}

pub(super) fn run<P: Partition>(engine: &P, version: &mut u64, writes: &[Write], known: Records) -> Outcome {
    let mut batch = Batch { engine, known, changes: BTreeMap::new(), dropped: Vec::new(), version: *version };
    let replies = writes.iter().map(|write| batch.apply(write)).collect();
    let committed = batch.commit();
    *version = batch.version;
    let changed = std::mem::take(&mut batch.changes);
    let records = changed.into_iter().collect();
    Outcome { replies, records, committed }
}

struct Batch<'a, P> {
    engine: &'a P,
    known: Records,
    /// In the order of the keys, which is the cheapest for trees.
    changes: BTreeMap<(TableId, Bytes), Option<Record>>,
    dropped: Vec<TableId>,
    version: u64,
}

impl<P: Partition> Batch<'_, P> {
    fn apply(&mut self, write: &Write) -> Result<Reply, Refusal> {
        let table = write.table.id;
        match &write.action {
            Action::Nothing => return Ok(Reply { previous: None, version: Version(self.version), number: 0 }),
            Action::Drop => {
                self.changes.retain(|(of, _), _| *of != table);
                self.known.retain(|(of, _), _| *of != table);
                self.dropped.push(table);
                return Ok(Reply { previous: None, version: Version(self.version), number: 0 });
            }
            _ => write.table.check()?,
        }
        let kept = self.kept(table, &write.key)?;
        let previous = kept.clone().filter(|record| record.is_live(now_ms()));
        let (next, number) = match &write.action {
            Action::Put { value, expires_ms, expect } => {
                check(expect, &previous)?;
                (Some((value.clone(), *expires_ms)), 0)
            }
            Action::Remove { expect } => {
                check(expect, &previous)?;
                // A value that has expired is removed as well: it takes room.
                if kept.is_none() {
                    return Ok(Reply { previous, version: Version(self.version), number: 0 });
                }
                (None, 0)
            }
            Action::Increment { by } => {
                let number = previous.as_ref().map_or(Ok(0), |record| codec::decode::<i64>(&record.value))?;
                let number = number.checked_add(*by).ok_or(Refusal::Overflow)?;
                let expires_ms = previous.as_ref().map_or(NEVER, |record| record.expires_ms);
                (Some((codec::encode(&number)?, expires_ms)), number)
            }
            Action::Modify(modification) => match modify(modification, previous.as_ref())? {
                Next::Keep => return Ok(Reply { previous, version: Version(self.version), number: 0 }),
                Next::Remove if kept.is_none() => {
                    return Ok(Reply { previous, version: Version(self.version), number: 0 });
                }
                Next::Remove => (None, 0),
                Next::Put { value, expires_ms } => (Some((value, expires_ms)), 0),
            },
            Action::Drop | Action::Nothing => unreachable!("answered above"),
        };
        self.version += 1;
        let record = next.map(|(value, expires_ms)| Record { version: self.version, expires_ms, value });
        self.known.insert((table, write.key.clone()), record.clone());
        self.changes.insert((table, write.key.clone()), record);
        Ok(Reply { previous, version: Version(self.version), number })
    }

    /// The record of a key, expired or not.
    fn kept(&mut self, table: TableId, key: &Bytes) -> Result<Option<Record>, Refusal> {
        let record = match self.known.get(&(table, key.clone())) {
            Some(record) => record.clone(),
            None => {
                let record = super::load(self.engine, table, key)?;
                self.known.insert((table, key.clone()), record.clone());
                record
            }
        };
        Ok(record)
    }

    fn commit(&mut self) -> Result<(), Uncommitted> {
        if self.changes.is_empty() && self.dropped.is_empty() {
            return Ok(());
        }
        // Counts also where only tables are dropped, so that the file always tells whether a commit is in it.
        self.version += 1;
        let mut changes: Vec<Change> = self.dropped.iter().map(|table| Change::DropTable(*table)).collect();
        changes.extend(self.changes.iter().map(|((table, key), record)| match record {
            Some(record) => Change::Put(*table, key.to_vec(), record.encode(*table, key)),
            None => Change::Remove(*table, key.to_vec()),
        }));
        changes.push(Change::Put(OWN, VERSION.to_vec(), self.version.to_le_bytes().to_vec()));
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
    // Nothing of the batch is in the closure's hands, so no state can be left half changed.
    let result = catch_unwind(AssertUnwindSafe(|| closure(previous)));
    result.unwrap_or_else(|_| Err(Refusal::Panicked))
}

fn check(expect: &Option<Expect<Bytes>>, current: &Option<Record>) -> Result<(), Refusal> {
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

/// The table of the store's own data in each partition.
pub(crate) const OWN: TableId = TableId(0);

const VERSION: &[u8] = b"version";
