//! An engine that keeps everything in memory: for tests, and for data that may end with the process.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;

use super::{Change, Engine, Entry, Failure, KeyRange, Partition, Place, TableId, Transactions};
use crate::Durability;

/// The engine of stores that end with the process. Its tables have [`Durability::Memory`].
///
/// ```
/// use dapple_store::Memory;
/// use dapple_store::engine::{Change, Engine, Partition, Place, TableId, Transactions};
///
/// let partition = Memory.open(Place::Catalog)?;
/// partition.commit(&[Change::Put(TableId(1), b"ann".to_vec(), b"42".to_vec())])?;
/// assert_eq!(partition.get(TableId(1), b"ann")?.as_deref(), Some(&b"42"[..]));
/// # Ok::<(), dapple_store::engine::Failure>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory;

/// A partition of [`Memory`].
#[derive(Debug, Default)]
pub struct MemoryPartition(RwLock<Tables>);

type Tables = BTreeMap<TableId, BTreeMap<Vec<u8>, Vec<u8>>>;

impl Engine for Memory {
    type Partition = MemoryPartition;

    const DURABILITIES: &'static [Durability] = &[Durability::Memory];

    fn open(&self, _: Place) -> Result<MemoryPartition, Failure> {
        Ok(MemoryPartition::default())
    }
}

impl Transactions for Memory {}

impl MemoryPartition {
    // A panic cannot leave a map half changed in a way that matters here: no caller's code runs under the lock.
    fn locked(&self) -> RwLockReadGuard<'_, Tables> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Partition for MemoryPartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.locked().get(&table).and_then(|keys| keys.get(key)).cloned())
    }

    fn get_many(&self, table: TableId, keys: &[Bytes]) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let tables = self.locked();
        let Some(table) = tables.get(&table) else { return Ok(vec![None; keys.len()]) };
        Ok(keys.iter().map(|key| table.get(&key[..]).cloned()).collect())
    }

    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure> {
        let tables = self.locked();
        let Some(keys) = tables.get(&table) else { return Ok(Vec::new()) };
        let entries = keys.range::<[u8], _>(range).take(limit);
        Ok(entries.map(|(key, bytes)| (key.clone(), bytes.clone())).collect())
    }

    fn len(&self, table: TableId) -> Result<u64, Failure> {
        Ok(self.locked().get(&table).map_or(0, |keys| keys.len() as u64))
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        Ok(self.locked().keys().copied().collect())
    }

    fn commit(&self, changes: &[Change]) -> Result<(), Failure> {
        let mut tables = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            match change {
                Change::Put(table, key, bytes) => {
                    tables.entry(*table).or_default().insert(key.clone(), bytes.clone());
                }
                Change::Remove(table, key) => {
                    tables.get_mut(table).and_then(|keys| keys.remove(key));
                }
                Change::DropTable(table) => {
                    tables.remove(table);
                }
            }
        }
        Ok(())
    }

    fn recover(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn verify(&self) -> Result<(), Failure> {
        Ok(())
    }
}
