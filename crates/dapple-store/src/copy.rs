//! Copies of a store while it serves: checkpoints, and another number of partitions.
//!
//! ```text
//!   for each page of each table:   read it, write it to the target, then apply all changes since, from the history
//!   hold all partitions:           apply the last changes; the target now is the store at this moment
//! ```
//!
//! A page is read before the changes after it are applied, so the target ends with the newest
//! record of each key.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dapple_io::blocking::spawn_blocking;
use dapple_io::time::Instant;
use dapple_sched::environment::{HashMap, HashSet};
use dapple_tower::Reason;

use crate::Durability;
use crate::engine::{Change, Engine, Entry, Failure, Partition, TableId};
use crate::error::{Error, Refusal, unavailable};
use crate::map::place;
use crate::partition::{Event, Lagged, OWN, PartitionHandle, put_version};
use crate::record::Record;
use crate::store::Store;
use crate::table_info::TableInfo;

/// The progress of the copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copied {
    /// Keys with their values; one that changed meanwhile counts again.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The partitions that are written.
pub(crate) type Targets<P> = Vec<(Durability, Vec<Arc<P>>)>;

/// A copy in progress.
pub(crate) struct Copier<'a, E: Engine, P> {
    store: &'a Store<E>,
    sources: Vec<Source<E>>,
    targets: &'a Targets<P>,
    known: HashMap<TableId, Arc<TableInfo>>,
    copied: Copied,
}

struct Source<E: Engine> {
    partition: PartitionHandle<E::Partition>,
    /// The target has all changes up to this version.
    version: u64,
}

/// A commit of the target has at most this many keys, or slightly more than this many bytes.
const PAGE: usize = 512;
const PAGE_BYTES: usize = 4 << 20;

impl<'a, E: Engine, P: Partition> Copier<'a, E, P> {
    pub(crate) async fn new(
        store: &'a Store<E>,
        partitions: &[PartitionHandle<E::Partition>],
        targets: &'a Targets<P>,
    ) -> Self {
        let mut sources = Vec::new();
        for partition in partitions {
            sources.push(Source { partition: partition.clone(), version: partition.history_end().await });
        }
        Copier { store, sources, targets, known: HashMap::default(), copied: Copied::default() }
    }

    /// Copies all tables, while they change.
    pub(crate) async fn copy(&mut self, progress: &mut (impl FnMut(Copied) + Send)) -> Result<(), Error> {
        for at in 0..self.sources.len() {
            let partition = self.sources[at].partition.clone();
            for table in partition.call(self.deadline(), |engine| engine.tables()).await? {
                if table == OWN {
                    continue;
                }
                // A dropped table needs no copy.
                let Some(info) = self.info(table).await else { continue };
                let mut from = Bound::Unbounded;
                loop {
                    let begin = from.clone();
                    let read = move |engine: &E::Partition| {
                        engine.scan(table, (begin.as_ref().map(|key: &Bytes| &key[..]), Bound::Unbounded), PAGE)
                    };
                    let entries = partition.call(self.deadline(), read).await?;
                    let Some((last, _)) = entries.last() else { break };
                    from = Bound::Excluded(Bytes::copy_from_slice(last));
                    self.put_page(&partition, &info, entries).await?;
                    self.follow().await?;
                    progress(self.copied);
                }
            }
        }
        Ok(())
    }

    async fn put_page(
        &mut self,
        source: &PartitionHandle<E::Partition>,
        info: &TableInfo,
        entries: Vec<Entry>,
    ) -> Result<(), Error> {
        let mut changes = Changes::default();
        for (key, bytes) in entries {
            if Record::decode(info.id, &key, bytes.clone()).is_none() {
                let failure = source.engine().corrupt("a record does not have its checksum");
                return Err(Refusal::Engine(failure).into());
            }
            self.copied.entries += 1;
            self.copied.bytes += (key.len() + bytes.len()) as u64;
            let place = self.place(info, &key);
            changes.add(place, Change::Put(info.id, key, bytes));
            if changes.bytes > PAGE_BYTES {
                self.commit(std::mem::take(&mut changes)).await?;
            }
        }
        self.commit(changes).await
    }

    /// Applies all changes that are known now.
    pub(crate) async fn follow(&mut self) -> Result<(), Error> {
        for at in 0..self.sources.len() {
            loop {
                let Source { partition, version } = &self.sources[at];
                let (events, complete) = match partition.changes_after(*version, PAGE, None).await? {
                    Ok(found) => found,
                    // Writers are faster than the copy. Later it may be otherwise.
                    Err(Lagged(_)) => return Err(unavailable(Reason::Busy, Duration::from_secs(10))),
                };
                let is_last = events.len() < PAGE;
                self.apply(events).await?;
                self.sources[at].version = complete;
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn apply(&mut self, events: Vec<Event>) -> Result<(), Error> {
        // The last change of a key counts.
        let mut last: BTreeMap<(TableId, Bytes), Option<Record>> = BTreeMap::new();
        for event in events {
            last.insert((event.table, event.key), event.record);
        }
        let mut changes = Changes::default();
        for ((table, key), record) in last {
            let Some(info) = self.info(table).await else { continue };
            let place = self.place(&info, &key);
            changes.add(
                place,
                match record {
                    Some(record) => Change::Put(table, key.to_vec(), record.encode(table, &key)),
                    None => Change::Remove(table, key.to_vec()),
                },
            );
            self.copied.entries += 1;
        }
        self.commit(changes).await
    }

    /// Brings the target to the state of this moment. The caller holds all sources.
    pub(crate) async fn finish(&mut self) -> Result<Copied, Error> {
        self.follow().await?;
        let mut version = 0;
        for source in &self.sources {
            version = version.max(source.partition.history_end().await);
        }
        let tables = self.store.infos().await;
        let known: HashSet<TableId> = tables.iter().map(|info| info.id).collect();
        for (_, targets) in self.targets {
            for target in targets {
                let (target, known) = (target.clone(), known.clone());
                blocking(move || {
                    // Tables that were destroyed meanwhile.
                    let gone = target.tables()?.into_iter().filter(|table| *table != OWN && !known.contains(table));
                    let mut changes: Vec<Change> = gone.map(Change::DropTable).collect();
                    // Versions continue as before, in whichever partition a key is from now on.
                    changes.push(put_version(version));
                    target.commit(&changes)
                })
                .await?;
            }
        }
        Ok(self.copied)
    }

    async fn commit(&self, changes: Changes) -> Result<(), Error> {
        for ((group, at), changes) in changes.of {
            let target = self.targets[group].1[at].clone();
            blocking(move || target.commit(&changes)).await?;
        }
        Ok(())
    }

    /// The group of a key, and its position there.
    fn place(&self, info: &TableInfo, key: &[u8]) -> (usize, usize) {
        let group = self.targets.iter().position(|(of, _)| *of == info.kept.durability).unwrap_or(0);
        (group, place(info, key, self.targets[group].1.len()))
    }

    async fn info(&mut self, table: TableId) -> Option<Arc<TableInfo>> {
        if !self.known.contains_key(&table) {
            // It may be new.
            self.known = self.store.infos().await.into_iter().map(|info| (info.id, info)).collect();
        }
        self.known.get(&table).cloned()
    }

    fn deadline(&self) -> Instant {
        self.store.inner().deadline()
    }
}

/// Changes by the group and place of their partition.
#[derive(Default)]
struct Changes {
    of: BTreeMap<(usize, usize), Vec<Change>>,
    bytes: usize,
}

impl Changes {
    fn add(&mut self, place: (usize, usize), change: Change) {
        self.bytes += if let Change::Put(_, key, bytes) = &change { key.len() + bytes.len() } else { 0 };
        self.of.entry(place).or_default().push(change);
    }
}

/// Calls an engine in the blocking pool.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Error> {
    match spawn_blocking(call).await {
        Ok(result) => result.map_err(|failure| Refusal::Engine(failure).into()),
        Err(error) => Err(Refusal::Unsupported(format!("the engine failed: {error}")).into()),
    }
}
