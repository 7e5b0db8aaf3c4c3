//! Watching: the changes of a table or a store, in their order, without a gap.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use dapple_sync::sync::Notify;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, TableId};
use crate::error::{Error, Refusal};
use crate::partition::{Event, Lagged, PartitionHandle};
use crate::store::Store;
use crate::table_info::TableInfo;
use crate::{Kind, OrderedTable, Table, Version, codec};

/// A moment in the history of a table or a store: a version of each partition. It can be kept, and used by a later
/// [`watch`](Table::watch).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor(Vec<(u32, u64)>);

/// A change of one key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed<K, V> {
    /// The key.
    pub key: K,
    /// The new value; `None` if the key was removed.
    pub value: Option<V>,
    /// The version of the change.
    pub version: Version,
}

/// A change in a store, as encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreChanged {
    /// The table, log, lock or counter.
    pub table: String,
    /// The encoded key.
    pub key: Bytes,
    /// The encoded new value; `None` if the key was removed.
    pub value: Option<Bytes>,
    /// The version of the change.
    pub version: Version,
}

/// The changes of a table from now on: each once, those of one key in their order.
///
/// It has no queue of its own. It reads from the recent history that each partition keeps
/// ([`history_len_max`](crate::StoreOptions::history_len_max)), so a slow watcher costs no memory and slows no writer. A
/// watcher that is slower than that history is long gets [`Refusal::Lagged`].
///
/// ```
/// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let users: Table<String, u32, _> = store.create("users", TableOptions::default()).await?;
/// let now = users.cursor().await?;
/// users.put(&"ann".to_owned(), &42).await?;
/// users.remove(&"ann".to_owned()).await?;
/// let mut watch = users.watch(&now).await?;
/// assert_eq!(watch.next().await?.value, Some(42));
/// assert_eq!(watch.next().await?.value, None);
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
pub struct Watch<K, V, E: Engine> {
    raw: RawWatch<E>,
    info: Arc<TableInfo>,
    types: PhantomData<fn() -> (K, V)>,
}

/// The changes of all tables of a store from now on, like [`Watch`] for one table.
pub struct StoreWatch<E: Engine> {
    raw: RawWatch<E>,
}

struct RawWatch<E: Engine> {
    store: Store<E>,
    /// The epoch of the map that `sources` are of.
    epoch: u64,
    /// `None` for all tables.
    info: Option<Arc<TableInfo>>,
    sources: Vec<Source<E>>,
    notify: Arc<Notify>,
    /// The source that is asked next, so that none starves.
    turn: usize,
}

/// A watcher's state for one partition.
struct Source<E: Engine> {
    partition: PartitionHandle<E::Partition>,
    /// All changes up to this version have been returned.
    returned: u64,
    ready: VecDeque<Event>,
    /// The version up to which `ready` is complete.
    complete: u64,
}

/// The most changes that a watcher takes out of a history at a time.
const READY_MAX: usize = 64;

impl<K, V, E: Engine> fmt::Debug for Watch<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("table", &self.info.name).finish_non_exhaustive()
    }
}

impl<E: Engine> fmt::Debug for StoreWatch<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreWatch").finish_non_exhaustive()
    }
}

impl<K, V, E> Table<K, V, E>
where
    K: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
    E: Engine,
{
    /// The present moment. Changes that are acknowledged later come in a [`watch`](Self::watch) from it.
    ///
    /// To follow a table from its beginning, take the cursor, then read the table, then watch: changes made meanwhile
    /// come a second time, and none is missed.
    ///
    /// # Errors
    /// The table was destroyed.
    pub async fn cursor(&self) -> Result<Cursor, Error> {
        self.info().check()?;
        let map = self.store().inner().map(self.deadline()).await?;
        Ok(cursor(map.group(self.info().kept.durability).iter()).await)
    }

    /// Watches from `from` on. A value that expires makes no change; [`remove_expired`](Self::remove_expired) does.
    ///
    /// # Errors
    /// The table was destroyed. [`Refusal::Lagged`] comes from [`Watch::next`].
    pub async fn watch(&self, from: &Cursor) -> Result<Watch<K, V, E>, Error> {
        let info = self.info().clone();
        info.check()?;
        let raw = RawWatch::new(self.store(), Some(info.clone()), from).await?;
        Ok(Watch { raw, info, types: PhantomData })
    }
}

impl<K, V, E> OrderedTable<K, V, E>
where
    K: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
    E: Engine,
{
    /// As [`Table::watch`].
    ///
    /// # Errors
    /// As [`Table::watch`].
    pub async fn watch(&self, from: &Cursor) -> Result<Watch<K, V, E>, Error> {
        Table::watch(self, from).await
    }
}

impl<E: Engine> Store<E> {
    /// The present moment, for [`watch`](Self::watch).
    ///
    /// # Errors
    /// The time limit passed while the number of partitions changed.
    pub async fn cursor(&self) -> Result<Cursor, Error> {
        let map = self.inner().map(self.inner().deadline()).await?;
        Ok(cursor(map.all()).await)
    }

    /// Watches all tables from `from` on.
    ///
    /// # Errors
    /// As [`cursor`](Self::cursor).
    pub async fn watch(&self, from: &Cursor) -> Result<StoreWatch<E>, Error> {
        Ok(StoreWatch { raw: RawWatch::new(self, None, from).await? })
    }
}

impl<K: DeserializeOwned, V: DeserializeOwned, E: Engine> Watch<K, V, E> {
    /// The next change; waits for it without a limit. **Cancel safety:** nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// [`Refusal::Lagged`] if changes were missed; the next call continues after them, at the
    /// position in the error. [`Refusal::Destroyed`]; [`Error::Unavailable`] if the partition has
    /// stopped after an error.
    pub async fn next(&mut self) -> Result<Changed<K, V>, Error> {
        let event = self.raw.next().await?;
        let is_ordered = self.info.kept.kind == Kind::Ordered;
        let key = if is_ordered { codec::decode_ordered_key(&event.key)? } else { codec::decode(&event.key)? };
        let value = event.record.map(|record| codec::decode(&record.value)).transpose()?;
        Ok(Changed { key, value, version: Version(event.version) })
    }

    /// The cursor after the last returned change: a later watch continues there.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.raw.cursor()
    }
}

impl<E: Engine> StoreWatch<E> {
    /// The next change, as [`Watch::next`]. Changes of tables that are destroyed are left out.
    ///
    /// # Errors
    /// As [`Watch::next`].
    pub async fn next(&mut self) -> Result<StoreChanged, Error> {
        loop {
            let Event { table, key, version, record } = self.raw.next().await?;
            if let Some(table) = self.raw.store.name_of(table).await {
                let value = record.map(|record| record.value);
                return Ok(StoreChanged { table, key, value, version: Version(version) });
            }
        }
    }

    /// The moment after the last change that was returned.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.raw.cursor()
    }
}

impl<E: Engine> RawWatch<E> {
    async fn new(store: &Store<E>, info: Option<Arc<TableInfo>>, from: &Cursor) -> Result<RawWatch<E>, Error> {
        let map = store.inner().map(store.inner().deadline()).await?;
        let partitions: Vec<_> = match &info {
            Some(info) => map.group(info.kept.durability).iter().collect(),
            None => map.all().collect(),
        };
        let notify = Arc::new(Notify::new());
        let mut sources = Vec::new();
        for partition in partitions {
            partition.add_watcher(notify.clone()).await;
            let known = from.0.iter().find(|(index, _)| *index == partition.index());
            // A cursor without this partition is from another time: a read from there reports that.
            let returned = known.map_or(0, |(_, version)| *version);
            let (ready, partition) = (VecDeque::new(), partition.clone());
            sources.push(Source { partition, returned, ready, complete: returned });
        }
        Ok(RawWatch { store: store.clone(), epoch: map.epoch, info, sources, notify, turn: 0 })
    }

    /// The partitions are others, and so are their histories.
    async fn begin_anew(&mut self) -> Result<Event, Error> {
        let map = self.store.inner().map(self.store.inner().deadline()).await?;
        let resume = match &self.info {
            Some(info) => cursor(map.group(info.kept.durability).iter()).await,
            None => cursor(map.all()).await,
        };
        drop(map);
        *self = RawWatch::new(&self.store, self.info.clone(), &resume).await?;
        Err(Refusal::Lagged { resume }.into())
    }

    fn cursor(&self) -> Cursor {
        Cursor(self.sources.iter().map(|source| (source.partition.index(), source.returned)).collect())
    }

    async fn next(&mut self) -> Result<Event, Error> {
        loop {
            if let Some(info) = &self.info {
                info.check()?;
            }
            if self.epoch != self.store.inner().epoch() {
                return self.begin_anew().await;
            }
            for _ in 0..self.sources.len() {
                self.turn = (self.turn + 1) % self.sources.len();
                let table = self.info.as_ref().map(|info| info.id);
                match self.sources[self.turn].next(table).await {
                    Ok(Some(event)) => return Ok(event),
                    Ok(None) => {}
                    Err(Failed::Lagged) => return Err(Refusal::Lagged { resume: self.cursor() }.into()),
                    Err(Failed::Other(error)) => return Err(error),
                }
            }
            // A change between the look and this line has left its permit.
            match self.sources.first() {
                Some(source) => source.partition.changed(&self.notify).await,
                None => self.notify.notified().await,
            }
        }
    }
}

enum Failed {
    Lagged,
    Other(Error),
}

impl<E: Engine> Source<E> {
    async fn next(&mut self, table: Option<TableId>) -> Result<Option<Event>, Failed> {
        if self.ready.is_empty() {
            let read = self.partition.changes_after(self.complete, READY_MAX, table).await;
            match read.map_err(Failed::Other)? {
                Ok((events, complete)) => (self.ready, self.complete) = (events.into(), complete),
                Err(Lagged(resume)) => {
                    (self.returned, self.complete) = (resume, resume);
                    return Err(Failed::Lagged);
                }
            }
        }
        let event = self.ready.pop_front();
        self.returned =
            if self.ready.is_empty() { self.complete } else { event.as_ref().map_or(0, |event| event.version) };
        Ok(event)
    }
}

async fn cursor<'a, P: crate::engine::Partition>(partitions: impl Iterator<Item = &'a PartitionHandle<P>>) -> Cursor {
    let mut all = Vec::new();
    for partition in partitions {
        all.push((partition.index(), partition.history_end().await));
    }
    Cursor(all)
}
