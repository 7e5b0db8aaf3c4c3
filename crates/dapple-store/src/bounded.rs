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
/// to it. A value that is larger than the whole is not kept. While two calls put the same key, either value may be counted.
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
        let mut uses = Uses::new(bytes_max);
        let mut rows = table.iter();
        while let Some((key, row)) = rows.next().await? {
            let weight = weight(&key, &row.value)?;
            uses.put(key, weight);
        }
        let bounded = Bounded { table, uses: Colored::new(uses) };
        bounded.make_room().await?;
        Ok(bounded)
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
    /// # Cancel safety
    /// If dropped before it resolves, it may or may not have set the value, and the next call makes the room.
    ///
    /// # Errors
    /// As [`Table::put`] and [`Table::remove`].
    pub async fn put(&self, key: &K, value: &V) -> Result<bool, Error> {
        let weight = weight(key, value)?;
        let added = key.clone();
        if !self.uses.with(move |uses| uses.fits(weight).then(|| uses.put(added, weight)).is_some()).await {
            self.remove(key).await?;
            return Ok(false);
        }
        // Also if this is dropped: others may have removed the key before its row was written.
        let _counted = Counted { uses: &self.uses, row: Some((key.clone(), weight)) };
        self.make_room().await?;
        self.table.put(key, value).await?;
        Ok(true)
    }

    /// Removes a value.
    ///
    /// # Errors
    /// As [`Table::remove`].
    pub async fn remove(&self, key: &K) -> Result<(), Error> {
        let of = key.clone();
        if let Some(put) = self.uses.with(move |uses| uses.put_of(&of)).await {
            self.drop_row(key.clone(), put).await?;
        }
        Ok(())
    }

    async fn make_room(&self) -> Result<(), Error> {
        for (key, put) in self.uses.with(|uses| uses.beyond()).await {
            self.drop_row(key, put).await?;
        }
        Ok(())
    }

    /// Removes a row, and counts it until it is gone. A row that was put meanwhile still counts.
    async fn drop_row(&self, key: K, put: u64) -> Result<(), Error> {
        self.table.remove(&key).await?;
        self.uses.post(move |uses| uses.remove_if(&key, put));
        Ok(())
    }
}

/// A row that counts at the end of a call, in any case.
struct Counted<'a, K: Clone + Ord + Send + 'static> {
    uses: &'a Colored<Uses<K>>,
    row: Option<(K, u64)>,
}

impl<K: Clone + Ord + Send + 'static> Drop for Counted<'_, K> {
    fn drop(&mut self) {
        if let Some((key, weight)) = self.row.take() {
            self.uses.post(move |uses| {
                if uses.put_of(&key).is_none() {
                    uses.put(key, weight);
                }
            });
        }
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

/// The order in which keys were used, and the weight of their rows. It has all rows that the table has, and at times some more.
struct Uses<K> {
    by_key: BTreeMap<K, Use>,
    by_time: BTreeMap<u64, K>,
    clock: u64,
    bytes: u64,
    bytes_max: u64,
}

struct Use {
    /// When the row was used.
    at: u64,
    /// When it was put, which tells it from later rows of its key.
    put: u64,
    weight: u64,
}

impl<K: Clone + Ord> Uses<K> {
    fn new(bytes_max: u64) -> Uses<K> {
        Uses { by_key: BTreeMap::new(), by_time: BTreeMap::new(), clock: 0, bytes: 0, bytes_max }
    }

    fn fits(&self, weight: u64) -> bool {
        weight <= self.bytes_max
    }

    fn put(&mut self, key: K, weight: u64) {
        self.remove(&key);
        self.clock += 1;
        self.bytes += weight;
        self.by_key.insert(key.clone(), Use { at: self.clock, put: self.clock, weight });
        self.by_time.insert(self.clock, key);
    }

    fn touch(&mut self, key: K) {
        if let Some(of) = self.by_key.get_mut(&key) {
            self.clock += 1;
            self.by_time.remove(&std::mem::replace(&mut of.at, self.clock));
            self.by_time.insert(self.clock, key);
        }
    }

    fn put_of(&self, key: &K) -> Option<u64> {
        self.by_key.get(key).map(|of| of.put)
    }

    /// The rows for which there is no room, the longest unused first.
    fn beyond(&self) -> Vec<(K, u64)> {
        let mut too_much = self.bytes.saturating_sub(self.bytes_max);
        let oldest = self.by_time.values().map_while(|key| {
            let of = self.by_key.get(key).filter(|_| too_much > 0)?;
            too_much = too_much.saturating_sub(of.weight);
            Some((key.clone(), of.put))
        });
        oldest.collect()
    }

    fn remove_if(&mut self, key: &K, put: u64) {
        if self.put_of(key) == Some(put) {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: &K) {
        if let Some(of) = self.by_key.remove(key) {
            self.by_time.remove(&of.at);
            self.bytes -= of.weight;
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
        let mut uses = Uses::new(10);
        for key in ["a", "b"] {
            uses.put(key, 4);
        }
        uses.touch("a");
        uses.put("c", 4);
        assert_eq!(uses.beyond(), [("b", 2)]);
        uses.put("b", 1);
        uses.remove_if(&"b", 2);
        assert_eq!(uses.beyond(), [], "a row that was put again stays");
        uses.put("d", 10);
        assert_eq!(uses.beyond().iter().map(|(key, _)| *key).collect::<String>(), "acb");
        for (key, put) in uses.beyond() {
            uses.remove_if(&key, put);
        }
        assert_eq!((uses.bytes, uses.by_key.len(), uses.by_time.len()), (10, 1, 1));
        assert!(uses.fits(10) && !uses.fits(11));
    }
}
