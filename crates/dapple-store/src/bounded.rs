//! A table as a cache: at most so many bytes, the longest unused ones go first.

use std::collections::BTreeMap;
use std::fmt;

use dapple_sched::Colored;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::engine::Engine;
use crate::error::Error;
use crate::table::Table;

/// A table that keeps at most so many bytes of keys and values. A further value removes those that were not used for the longest
/// time.
///
/// The order of uses is in memory, with the keys: after a restart it is that of the table. Other handles of the table must not write
/// to it. A value that is larger than the whole is not kept.
///
/// ```
/// use dapple_store::{Bounded, Memory, Store, StoreOptions, Table, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let pages: Table<String, String, _> = store.create("pages", TableOptions::default()).await?;
/// let pages = Bounded::new(pages, 2_000).await?;
/// let (a, b, c) = ("a".to_owned(), "b".to_owned(), "c".to_owned());
/// pages.put(&a, &"A".repeat(500)).await?;
/// pages.put(&b, &"B".repeat(500)).await?;
/// pages.get(&a).await?;
/// pages.put(&c, &"C".repeat(500)).await?;
/// assert_eq!((pages.get(&a).await?.is_some(), pages.get(&b).await?), (true, None));
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
pub struct Bounded<K, V, E: Engine> {
    table: Table<K, V, E>,
    uses: Colored<Uses<K>>,
}

impl<K, V, E> Bounded<K, V, E>
where
    K: Serialize + DeserializeOwned + Clone + Ord + Send + 'static,
    V: Serialize + DeserializeOwned,
    E: Engine,
{
    /// Bounds a table. Reads all of it, and removes what is too much.
    ///
    /// # Errors
    /// As [`Table::get`] and [`Table::remove`].
    pub async fn new(table: Table<K, V, E>, bytes_max: u64) -> Result<Self, Error> {
        let mut uses = Uses { by_key: BTreeMap::new(), by_time: BTreeMap::new(), clock: 0, bytes: 0, bytes_max };
        let (mut rows, mut removed) = (table.iter(), Vec::new());
        while let Some((key, row)) = rows.next().await? {
            let weight = weight(&key, &row.value)?;
            removed.extend(uses.add(key, weight));
        }
        for key in removed {
            table.remove(&key).await?;
        }
        Ok(Bounded { table, uses: Colored::new(uses) })
    }

    /// The value of a key, which counts as used now.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn get(&self, key: &K) -> Result<Option<V>, Error> {
        let found = self.table.get(key).await?;
        if found.is_some() {
            let key = key.clone();
            self.uses.with(move |uses| uses.touch(key)).await;
        }
        Ok(found)
    }

    /// Sets a value, and makes room for it. Returns whether it is kept.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub async fn put(&self, key: &K, value: &V) -> Result<bool, Error> {
        let (added, weight) = (key.clone(), weight(key, value)?);
        let removed = self.uses.with(move |uses| uses.add(added, weight)).await;
        let mut is_kept = true;
        for removed in removed {
            is_kept &= removed != *key;
            self.table.remove(&removed).await?;
        }
        if is_kept {
            self.table.put(key, value).await?;
        }
        Ok(is_kept)
    }

    /// Removes a value.
    ///
    /// # Errors
    /// As [`Table::remove`].
    pub async fn remove(&self, key: &K) -> Result<(), Error> {
        self.table.remove(key).await?;
        let key = key.clone();
        self.uses.with(move |uses| uses.remove(&key)).await;
        Ok(())
    }
}

impl<K, V, E: Engine> Clone for Bounded<K, V, E> {
    fn clone(&self) -> Self {
        Bounded { table: self.table.clone(), uses: self.uses.clone() }
    }
}

impl<K, V, E: Engine> fmt::Debug for Bounded<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").field("table", &self.table).finish_non_exhaustive()
    }
}

/// The order in which keys were used, and the weight of their rows.
struct Uses<K> {
    /// The time of the last use, and the weight.
    by_key: BTreeMap<K, (u64, u64)>,
    by_time: BTreeMap<u64, K>,
    clock: u64,
    bytes: u64,
    bytes_max: u64,
}

impl<K: Clone + Ord> Uses<K> {
    /// Notes a row as used, and returns the keys for which there is no more room.
    fn add(&mut self, key: K, weight: u64) -> Vec<K> {
        self.remove(&key);
        self.clock += 1;
        self.bytes += weight;
        self.by_key.insert(key.clone(), (self.clock, weight));
        self.by_time.insert(self.clock, key);
        let mut removed = Vec::new();
        while self.bytes > self.bytes_max
            && let Some((_, oldest)) = self.by_time.first_key_value()
        {
            let oldest = oldest.clone();
            self.remove(&oldest);
            removed.push(oldest);
        }
        removed
    }

    fn touch(&mut self, key: K) {
        if let Some((_, weight)) = self.by_key.get(&key).copied() {
            self.add(key, weight);
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some((time, weight)) = self.by_key.remove(key) {
            self.by_time.remove(&time);
            self.bytes -= weight;
        }
    }
}

/// Roughly the bytes of a row on the disk, and of its key in memory.
fn weight<K: Serialize, V: Serialize>(key: &K, value: &V) -> Result<u64, Error> {
    let (key, value) = (codec::encode(key)?, codec::encode(value)?);
    Ok((3 * key.len() + value.len() + ROW_WEIGHT) as u64)
}

/// Bytes of a row beside its key and value.
const ROW_WEIGHT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_rows_go_first() {
        let mut uses = Uses { by_key: BTreeMap::new(), by_time: BTreeMap::new(), clock: 0, bytes: 0, bytes_max: 10 };
        assert!(uses.add("a", 4).is_empty() && uses.add("b", 4).is_empty());
        uses.touch("a");
        assert_eq!(uses.add("c", 4), ["b"]);
        assert_eq!(uses.add("c", 1), [""; 0]);
        assert_eq!(uses.add("d", 11), ["a", "c", "d"]);
        assert_eq!((uses.bytes, uses.by_key.len(), uses.by_time.len()), (0, 0, 0));
    }
}
