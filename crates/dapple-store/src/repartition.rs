//! Another number of partitions for a store that serves, and checkpoints of it.
//!
//! ```text
//!   open new, empty partitions       a crash here or below leaves files that the next change empties
//!   copy all, and follow the changes
//!   wait until no operation is under way; the next ones wait; hold the old partitions
//!   copy the last changes
//!   commit the new layout                          ◀── the commit point
//!   replace the map; operations go on
//!   remove the old partitions, commit that          a crash before: opening the store does it
//! ```

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use dapple_io::time::Instant;

use crate::codec;
use crate::copy::{Copied, Copier, Targets, blocking};
use crate::engine::{Change, Engine, Failure, Partition, Place};
use crate::entries::Entries;
use crate::error::{Error, Refusal};
use crate::map::{Layout, Map};
use crate::partition::{Held, OWN, PartitionHandle};
use crate::record::{NEVER, Record};
use crate::store::{
    NAMES, NEXT_ID, Opened, Store, check_partitions, handles, kept_layout, name_key, open_partitions, remove_stale,
    to_the_end, write_layout,
};

impl<E: Engine> Store<E> {
    /// Gives the store another number of partitions, while it serves. All data are copied once;
    /// operations wait only while the last changes are copied, some milliseconds. Watchers get
    /// [`Refusal::Lagged`].
    ///
    /// `progress` is called after each page. **Cancel safety:** it continues to its end if the
    /// future is dropped.
    ///
    /// # Errors
    /// The number is not 1 to 1024; another change is in progress; [`Error::Unavailable`] if
    /// writers are faster than the copy, or operations do not end in the store's time limit. In all
    /// these cases the store continues as before.
    ///
    /// ```
    /// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await?;
    /// table.put(&1, &2).await?;
    /// store.repartition(7, |_| {}).await?;
    /// assert_eq!(store.partitions(), 7);
    /// assert_eq!(table.get(&1).await?, Some(2));
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn repartition(
        &self,
        partitions: u32,
        progress: impl FnMut(Copied) + Send + 'static,
    ) -> Result<Copied, Error> {
        check_partitions(partitions)?;
        let store = self.clone();
        to_the_end(async move { store.repartition_now(partitions, progress).await }).await
    }

    async fn repartition_now(&self, partitions: u32, mut progress: impl FnMut(Copied) + Send) -> Result<Copied, Error> {
        let inner = self.inner();
        let Ok(_alone) = inner.repartitioning.try_lock() else {
            return Err(Refusal::Unsupported("the number of partitions is changing already".to_owned()).into());
        };
        let (old, sources) = {
            let map = inner.map(inner.deadline()).await?;
            (map.layout, map.all().cloned().collect::<Vec<_>>())
        };
        if old.partitions == partitions {
            return Ok(Copied::default());
        }
        let first = old.first + old.partitions;
        let next = Layout { partitions, first, stale: Some((old.first, old.partitions)) };
        let engine = inner.engine.clone();
        let opened = blocking(move || open_empty(&*engine, &next)).await?;
        let targets = targets(&opened);
        let moved = self.move_to(&sources, &targets, next, opened, &mut progress).await;
        // The last references of a failed change: closing files blocks.
        blocking(move || {
            drop(targets);
            Ok(())
        })
        .await?;
        let copied = moved?;
        for source in &sources {
            source.retire();
            source.wake_watchers().await;
        }
        drop(sources);
        // The data is in its new place. A failure from here on costs only disk space, and the next
        // open finishes the work.
        let engine = inner.engine.clone();
        match blocking(move || remove_stale(&*engine, &next)).await {
            Ok(()) => drop(inner.put_layout(&Layout { stale: None, ..next }).await),
            Err(error) => tracing::warn!(%error, "partitions that are not used any more could not be removed"),
        }
        Ok(copied)
    }

    /// Copies all data to `targets`, which become the partitions of the store.
    async fn move_to(
        &self,
        sources: &[PartitionHandle<E::Partition>],
        targets: &Targets<E::Partition>,
        next: Layout,
        opened: Opened<E::Partition>,
        progress: &mut (impl FnMut(Copied) + Send),
    ) -> Result<Copied, Error> {
        let inner = self.inner();
        let mut copier = Copier::new(self, sources, targets).await;
        copier.copy(progress).await?;
        let deadline = inner.deadline();
        let changing = inner.catalog_change.lock().await;
        let mut map = inner.map_alone(deadline).await?;
        let held = hold(sources, deadline).await?;
        let copied = copier.finish().await?;
        let options = inner.options.clone();
        let groups = blocking(move || handles(opened, &options)).await?;
        match inner.put_layout(&next).await {
            Ok(()) => {}
            Err(error @ Error::Unknown { .. }) => {
                // The next open finds the old map or the new one, and neither map may get writes
                // that the other lacks.
                let failure = Failure::Io { file: "the catalog".to_owned(), detail: error.to_string() };
                held.into_iter().for_each(|held| held.stop(failure.clone()));
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        let epoch = map.epoch + 1;
        inner.set_map(&mut map, Map { groups, layout: next, epoch });
        drop((held, map, changing));
        Ok(copied)
    }

    /// Copies the whole store, as it is at one moment, into a new store at `target`, while it serves. The copy is a store
    /// like any other: opening it, or a checkpoint of it into another place, restores it.
    ///
    /// `partitions` is the number of the copy's partitions; 0 means the number that this store has.
    ///
    /// # Errors
    /// There is a store at `target`; `target` lacks the durability of a table; the errors of both engines;
    /// [`Error::Unavailable`] if writers are faster than the copy. A copy that was not finished cannot be opened.
    ///
    /// ```
    /// use dapple_store::{Redb, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # let folder = tempfile::tempdir().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Redb::new(folder.path().join("store")), StoreOptions::default()).await?;
    /// let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await?;
    /// table.put(&1, &2).await?;
    /// store.checkpoint(Redb::new(folder.path().join("copy")), 0, |_| {}).await?;
    /// table.put(&1, &3).await?;
    /// let copy = Store::open(Redb::new(folder.path().join("copy")), StoreOptions::default()).await?;
    /// assert_eq!(copy.table::<u32, u32>("t").await?.get(&1).await?, Some(2));
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn checkpoint<F: Engine>(
        &self,
        target: F,
        partitions: u32,
        mut progress: impl FnMut(Copied) + Send,
    ) -> Result<Copied, Error> {
        let inner = self.inner();
        for info in self.infos().await {
            check_durability::<F>(&info)?;
        }
        let sources: Vec<_> = inner.map(inner.deadline()).await?.all().cloned().collect();
        let partitions = if partitions == 0 { self.partitions() as u32 } else { partitions };
        check_partitions(partitions)?;
        let layout = Layout::new(partitions);
        let (catalog, opened) = blocking(move || open_new(&target, &layout)).await?;
        let (targets, catalog) = (targets(&opened), Arc::new(catalog));
        drop(opened);
        let copied = self.copy_to::<F>(&sources, &targets, &catalog, layout, &mut progress).await;
        // The last references: closing files blocks, and the copy can be opened after that.
        blocking(move || {
            drop((targets, catalog));
            Ok(())
        })
        .await?;
        copied
    }

    /// Copies all data to `targets` and `catalog`, which are a store after that.
    async fn copy_to<F: Engine>(
        &self,
        sources: &[PartitionHandle<E::Partition>],
        targets: &Targets<F::Partition>,
        catalog: &Arc<F::Partition>,
        layout: Layout,
        progress: &mut (impl FnMut(Copied) + Send),
    ) -> Result<Copied, Error> {
        let inner = self.inner();
        let mut copier = Copier::new(self, sources, targets).await;
        copier.copy(progress).await?;
        let deadline = inner.deadline();
        // Neither the catalog nor a partition changes until the copy is complete; partitions do not move, either.
        let _changing = inner.catalog_change.lock().await;
        let map = inner.map_alone(deadline).await?;
        if map.all().map(PartitionHandle::index).ne(sources.iter().map(PartitionHandle::index)) {
            return Err(Refusal::Unsupported("the number of partitions changed during the copy".to_owned()).into());
        }
        let held = hold(sources, deadline).await?;
        let copied = copier.finish().await?;
        let mut changes = Vec::new();
        let mut next_id: i64 = 0;
        for info in self.infos().await {
            check_durability::<F>(&info)?;
            next_id = next_id.max(i64::try_from(info.id.0).unwrap_or(i64::MAX));
            changes.push(record(&name_key(&info.name), codec::encode(&info.kept)?));
        }
        drop((held, map));
        // Ids begin at a number above 0, so the greatest id is far enough.
        changes.push(record(NEXT_ID, codec::encode(&next_id)?));
        let (encoded, catalog) = (layout.encode()?, catalog.clone());
        blocking(move || {
            catalog.commit(&changes)?;
            // The copy is a store from here on.
            write_layout(&*catalog, encoded)
        })
        .await?;
        Ok(copied)
    }
}

/// A digest of the content of a table, log, lock or counter: if two digests are equal, so are the
/// keys, values and times of expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Digest {
    /// The number of keys.
    pub entries: u64,
    /// A CRC-32 over them: it finds errors, not forgeries.
    pub checksum: u32,
}

impl<E: Engine> Store<E> {
    /// Reads all of a table and sums it up. Stores of other engines with the same contents give the same.
    ///
    /// # Errors
    /// [`Refusal::NoSuchTable`]; the engine cannot read; the time limit passed for one page.
    pub async fn digest(&self, name: &str) -> Result<Digest, Error> {
        let info = self.find(name).await?;
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut entries = Entries::new(self, &info, all, self.inner().options.limit);
        let (mut hasher, mut count) = (crc32fast::Hasher::new(), 0);
        while let Some((key, record)) = entries.next_kept().await? {
            hasher.update(&(key.len() as u64).to_le_bytes());
            hasher.update(&key);
            hasher.update(&(record.value.len() as u64).to_le_bytes());
            hasher.update(&record.value);
            hasher.update(&record.expires_ms.to_le_bytes());
            count += 1;
        }
        Ok(Digest { entries: count, checksum: hasher.finalize() })
    }
}

fn record(key: &[u8], value: Bytes) -> Change {
    let record = Record { version: 0, expires_ms: NEVER, value };
    Change::Put(NAMES, key.to_vec(), record.encode(NAMES, key))
}

fn check_durability<F: Engine>(info: &crate::table_info::TableInfo) -> Result<(), Refusal> {
    let durability = info.kept.durability;
    if F::DURABILITIES.contains(&durability) {
        return Ok(());
    }
    let name = &info.name;
    Err(Refusal::Unsupported(format!("`{name}` has durability {durability:?}, which the engine of the copy lacks")))
}

/// Holds all partitions, in the order of their numbers, as transactions do.
async fn hold<P: Partition>(partitions: &[PartitionHandle<P>], deadline: Instant) -> Result<Vec<Held>, Error> {
    let mut sorted: Vec<_> = partitions.iter().collect();
    sorted.sort_by_key(|partition| partition.index());
    let mut held = Vec::new();
    for partition in sorted {
        held.push(partition.hold(deadline).await?);
    }
    Ok(held)
}

fn targets<P>(opened: &Opened<P>) -> Targets<P> {
    let of = |group: &[(u32, Arc<P>)]| group.iter().map(|(_, partition)| partition.clone()).collect();
    opened.iter().map(|(durability, group)| (*durability, of(group))).collect()
}

/// Opens partitions of the store that have no data. Blocks.
fn open_empty<E: Engine>(engine: &E, layout: &Layout) -> Result<Opened<E::Partition>, Failure> {
    layout.places::<E>().try_for_each(|place| engine.remove(place))?;
    let opened = open_partitions(engine, layout)?;
    for (_, partition) in opened.iter().flat_map(|(_, group)| group) {
        let mut changes: Vec<Change> = partition.tables()?.into_iter().map(Change::DropTable).collect();
        if !changes.is_empty() {
            changes.push(Change::DropTable(OWN));
            partition.commit(&changes)?;
        }
    }
    Ok(opened)
}

/// Opens the catalog and the partitions of a store that is not there yet. Blocks.
fn open_new<F: Engine>(engine: &F, layout: &Layout) -> Result<(F::Partition, Opened<F::Partition>), Failure> {
    engine.check(Place::Catalog)?;
    engine.remove_unfinished(Place::Catalog)?;
    let catalog = engine.open(Place::Catalog)?;
    if !catalog.tables()?.is_empty() {
        // Says so if it is what a copy left that was not finished.
        kept_layout(&catalog).map_err(|refusal| match refusal {
            Refusal::Engine(failure) => failure,
            other => catalog.corrupt(&other.to_string()),
        })?;
        let detail = "there is a store already, and a copy needs a new place".to_owned();
        return Err(Failure::Io { file: catalog.name(), detail });
    }
    let unfinished = Layout::unfinished().map_err(|refusal| catalog.corrupt(&refusal.to_string()))?;
    write_layout(&catalog, unfinished)?;
    let opened = open_empty(engine, layout)?;
    Ok((catalog, opened))
}
