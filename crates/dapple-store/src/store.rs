//! A store: the catalog of its tables and the partitions that hold them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use dapple_io::blocking::spawn_blocking;
use dapple_io::time::{Instant, sleep, timeout_at};
use dapple_sched::environment::{HashMap, HashSet, parallelism};
use dapple_sched::{Color, Colored};
use dapple_sync::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use dapple_tower::Reason;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Engine, Failure, Partition, Place, TableId};
use crate::error::{Error, OperationId, Outcome, Refusal, unavailable};
use crate::map::{Groups, Layout, Map};
use crate::partition::{Action, PartitionHandle, Reply, Write, finish_transactions};
use crate::record::{NEVER, Record};
use crate::table_info::{Kept, TableInfo};
use crate::{Durability, Expect, Kind, OrderedTable, StoreOptions, Table, TableOptions, codec};

/// Named tables in one place, such as a directory. Clones are handles to the same store.
///
/// ```
/// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let users: Table<String, u32, _> = store.create("users", TableOptions::default()).await?;
/// users.put(&"ann".to_owned(), &42).await?;
/// assert_eq!(users.get(&"ann".to_owned()).await?, Some(42));
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
pub struct Store<E: Engine> {
    inner: Arc<Inner<E>>,
}

pub(crate) struct Inner<E: Engine> {
    catalog: PartitionHandle<E::Partition>,
    catalog_table: Arc<TableInfo>,
    pub(crate) engine: Arc<E>,
    /// Every operation holds it for reading; a change of the number of partitions waits for them.
    map: RwLock<Map<E::Partition>>,
    /// The epoch of `map`.
    epoch: AtomicU64,
    partitions: AtomicUsize,
    /// One change of the number of partitions at a time.
    pub(crate) repartitioning: Mutex<()>,
    tables: Colored<HashMap<String, Arc<TableInfo>>>,
    /// Held while the catalog changes, so that `tables` says the same to all others.
    pub(crate) catalog_change: Mutex<()>,
    pub(crate) options: Arc<StoreOptions>,
}

/// A partition as [`Store::partition_stats`] tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PartitionStats {
    /// The name of its file or other place.
    pub name: String,
    /// The writes that wait for a commit.
    pub queue_len: usize,
    /// The version of its last commit.
    pub version: u64,
    /// Whether it takes no writes, after an error.
    pub is_stopped: bool,
}

/// A table as [`Store::list`] tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableSummary {
    /// The name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Whether its keys have an order.
    pub ordered: bool,
    /// Its durability.
    pub durability: Durability,
    /// Whether its values may expire.
    pub expiry: bool,
}

/// The table of names in the catalog; its key for the numbers of tables, and for the store's own properties.
pub(crate) const NAMES: TableId = TableId(1);
const NAME_PREFIX: u8 = b'n';
pub(crate) const NEXT_ID: &[u8] = b"i";
const LAYOUT: &[u8] = b"l";
const NAME_LEN_MAX: usize = 255;
const PARTITIONS_MAX: u32 = 1024;

impl<E: Engine> Clone for Store<E> {
    fn clone(&self) -> Self {
        Store { inner: self.inner.clone() }
    }
}

impl<E: Engine> Store<E> {
    /// Opens the store of an engine, and makes it if it is not there. While another store has its files, it tries
    /// again for [`StoreOptions::in_use_limit`].
    ///
    /// # Errors
    /// The engine's [`Failure`], which names the file: damaged, in use by another process, of another version.
    pub async fn open(engine: E, options: StoreOptions) -> Result<Store<E>, Error> {
        let (engine, options) = (Arc::new(engine), Arc::new(options));
        let (began, limit) = (Instant::now(), options.in_use_limit);
        let mut pause = Duration::from_millis(1);
        loop {
            let (engine, options) = (engine.clone(), options.clone());
            let opened = match spawn_blocking(move || open(engine, options)).await {
                Ok(opened) => opened,
                Err(error) => Err(Refusal::Unsupported(format!("the store cannot be opened: {error}"))),
            };
            match opened {
                Err(Refusal::Engine(Failure::InUse { .. })) if began.elapsed() < limit => sleep(pause).await,
                opened => return Ok(Store { inner: Arc::new(opened?) }),
            }
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Gives the store's place free for another process before this returns, where an engine can do that while handles
    /// remain: in etcd it removes the key of the owner, and all operations fail from then on. Without it, a process that ends
    /// leaves the store to the next one when its lease is over. Files are free when the last handle is dropped.
    pub async fn close(self) {
        let engine = self.inner.engine.clone();
        // A runtime that ends closes nothing.
        let _ = spawn_blocking(move || engine.close()).await;
    }

    /// Waits until another process may have the store's place, and returns the reason; with an engine from which no process
    /// can take it, for ever. From then on all operations fail, so a server ends, and a spare one serves. It looks once a second.
    ///
    /// **Cancel safety:** nothing is lost if the future is dropped.
    pub async fn lost(&self) -> Failure {
        self.inner.catalog.lost().await
    }

    /// Creates a table without an order of its keys. It costs two commits of the catalog.
    ///
    /// # Errors
    /// [`Refusal::TableExists`]; the engine has no such durability; the errors of a write.
    pub async fn create<K, V>(&self, name: &str, options: TableOptions) -> Result<Table<K, V, E>, Error>
    where
        K: Serialize + DeserializeOwned,
        V: Serialize + DeserializeOwned,
    {
        Ok(Table::new(self.clone(), self.create_info(name, options, Kind::Hash).await?))
    }

    /// Creates a table with ordered keys, so that it can be read by ranges.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_ordered<K, V>(&self, name: &str, options: TableOptions) -> Result<OrderedTable<K, V, E>, Error>
    where
        K: Serialize + DeserializeOwned,
        V: Serialize + DeserializeOwned,
    {
        Ok(OrderedTable::new(self.clone(), self.create_info(name, options, Kind::Ordered).await?))
    }

    /// Opens a table that [`create`](Self::create) made.
    ///
    /// # Errors
    /// [`Refusal::NoSuchTable`], [`Refusal::WrongKind`].
    pub async fn table<K, V>(&self, name: &str) -> Result<Table<K, V, E>, Error>
    where
        K: Serialize + DeserializeOwned,
        V: Serialize + DeserializeOwned,
    {
        Ok(Table::new(self.clone(), self.open_info(name, Kind::Hash).await?))
    }

    /// Opens a table that [`create_ordered`](Self::create_ordered) made.
    ///
    /// # Errors
    /// [`Refusal::NoSuchTable`], [`Refusal::WrongKind`].
    pub async fn ordered_table<K, V>(&self, name: &str) -> Result<OrderedTable<K, V, E>, Error>
    where
        K: Serialize + DeserializeOwned,
        V: Serialize + DeserializeOwned,
    {
        Ok(OrderedTable::new(self.clone(), self.open_info(name, Kind::Ordered).await?))
    }

    /// Opens the table of that name, and creates it if it is not there. A table that is there keeps the options that it
    /// was created with. Costs two commits of the catalog if the table is not there. If it is dropped, the table may be
    /// created or not.
    ///
    /// # Errors
    /// [`Refusal::WrongKind`]; as [`create`](Self::create).
    ///
    /// ```
    /// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let users: Table<String, u32, _> = store.table_or_create("users", TableOptions::default()).await?;
    /// users.put(&"ann".to_owned(), &42).await?;
    /// let same: Table<String, u32, _> = store.table_or_create("users", TableOptions::default()).await?;
    /// assert_eq!(same.get(&"ann".to_owned()).await?, Some(42));
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn table_or_create<K, V>(&self, name: &str, options: TableOptions) -> Result<Table<K, V, E>, Error>
    where
        K: Serialize + DeserializeOwned,
        V: Serialize + DeserializeOwned,
    {
        Ok(Table::new(self.clone(), self.open_or_create_info(name, options, Kind::Hash).await?))
    }

    /// As [`table_or_create`](Self::table_or_create), for a table with ordered keys.
    ///
    /// # Errors
    /// As [`table_or_create`](Self::table_or_create).
    pub async fn ordered_table_or_create<K, V>(
        &self,
        name: &str,
        options: TableOptions,
    ) -> Result<OrderedTable<K, V, E>, Error>
    where
        K: Serialize + DeserializeOwned,
        V: Serialize + DeserializeOwned,
    {
        Ok(OrderedTable::new(self.clone(), self.open_or_create_info(name, options, Kind::Ordered).await?))
    }

    /// Destroys a table with all its data. Operations of handles that are open fail from then on.
    ///
    /// # Errors
    /// [`Refusal::NoSuchTable`]; the errors of a write. Data of a table that is destroyed is removed at the next open
    /// if it could not be removed now.
    pub async fn destroy(&self, name: &str) -> Result<(), Error> {
        let (store, name) = (self.clone(), name.to_owned());
        to_the_end(async move { store.destroy_now(&name).await }).await
    }

    async fn destroy_now(&self, name: &str) -> Result<(), Error> {
        let inner = &self.inner;
        let changing = inner.catalog_change.lock().await;
        let info = self.find(name).await?;
        let expect = Some(Expect::Value(codec::encode(&info.kept)?));
        match inner.catalog_write(name_key(name), Action::Remove { expect }).await {
            Err(Error::NotApplied(Refusal::Conflict { .. })) => {
                return Err(Refusal::NoSuchTable(name.to_owned()).into());
            }
            result => result?,
        };
        info.destroy();
        let id = info.id;
        let owned = name.to_owned();
        inner
            .tables
            .with(move |tables| {
                if tables.get(&owned).is_some_and(|found| found.id == id) {
                    tables.remove(&owned);
                }
            })
            .await;
        drop(changing);
        let map = inner.map(inner.deadline()).await?;
        for partition in map.group(info.kept.durability) {
            let write = Write::new(&info, Bytes::new(), Action::Drop);
            partition.write(write, inner.deadline()).await?;
        }
        Ok(())
    }

    /// The tables, in the order of their names.
    pub async fn list(&self) -> Vec<TableSummary> {
        let mut all: Vec<TableSummary> =
            self.inner.tables.read(|tables| tables.values().map(|info| info.summary()).collect()).await;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The outcome of a write that ended with [`Error::Unknown`], after all writes that waited at
    /// the same time.
    ///
    /// # Errors
    /// The store cannot be asked now.
    pub async fn outcome(&self, id: OperationId) -> Result<Outcome, Error> {
        let inner = &self.inner;
        let all = inner.all_partitions(inner.deadline()).await?;
        let Some(partition) = all.iter().find(|partition| partition.index() == id.partition) else {
            return Ok(Outcome::Unknown);
        };
        partition.outcome(id, inner.deadline()).await
    }

    /// Reads all files and checks them: the engine's own checksums, and those of all records. No other operation runs
    /// meanwhile in the partition that is checked.
    ///
    /// # Errors
    /// [`Failure::Corrupt`] names the file.
    pub async fn verify(&self) -> Result<(), Error> {
        let all = self.inner.all_partitions(self.inner.deadline()).await?;
        let checked = spawn_blocking(move || all.iter().try_for_each(|partition| verify_partition(partition.engine())));
        match checked.await {
            Ok(result) => Ok(result.map_err(Refusal::Engine)?),
            Err(error) => Err(Refusal::Unsupported(format!("the store cannot be checked: {error}")).into()),
        }
    }

    /// The state of each partition, for metrics.
    pub async fn partition_stats(&self) -> Vec<PartitionStats> {
        let mut all = Vec::new();
        // Waits at most for the end of a change of the number of partitions.
        let map = self.inner.map.read().await;
        for partition in std::iter::once(&self.inner.catalog).chain(map.all()) {
            all.push(partition.stats().await);
        }
        all
    }

    /// The number of partitions of each durability.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.inner.partitions.load(SeqCst)
    }

    pub(crate) fn is_same(&self, other: &Store<E>) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn inner(&self) -> &Inner<E> {
        &self.inner
    }

    /// The name of a table that is there.
    pub(crate) async fn name_of(&self, id: TableId) -> Option<String> {
        let find = |tables: &HashMap<String, Arc<TableInfo>>| {
            tables.values().find(|info| info.id == id).map(|info| info.name.clone())
        };
        self.inner.tables.read(find).await
    }

    /// All that is in the catalog.
    pub(crate) async fn infos(&self) -> Vec<Arc<TableInfo>> {
        self.inner.tables.read(|tables| tables.values().cloned().collect()).await
    }

    pub(crate) async fn find(&self, name: &str) -> Result<Arc<TableInfo>, Error> {
        let found = self.inner.tables.read(|tables| tables.get(name).cloned()).await;
        found.ok_or_else(|| Refusal::NoSuchTable(name.to_owned()).into())
    }

    pub(crate) async fn open_info(&self, name: &str, kind: Kind) -> Result<Arc<TableInfo>, Error> {
        let info = self.find(name).await?;
        if info.kept.kind == kind {
            return Ok(info);
        }
        let is = info.kept.kind.word();
        Err(Refusal::WrongKind { table: name.to_owned(), is, wanted: kind.word() }.into())
    }

    pub(crate) async fn open_or_create_info(
        &self,
        name: &str,
        options: TableOptions,
        kind: Kind,
    ) -> Result<Arc<TableInfo>, Error> {
        loop {
            match self.open_info(name, kind).await {
                Err(Error::NotApplied(Refusal::NoSuchTable(_))) => {}
                opened => return opened,
            }
            match self.create_info(name, options, kind).await {
                // Another task created it meanwhile.
                Err(Error::NotApplied(Refusal::TableExists(_))) => {}
                created => return created,
            }
        }
    }

    pub(crate) async fn create_info(
        &self,
        name: &str,
        options: TableOptions,
        kind: Kind,
    ) -> Result<Arc<TableInfo>, Error> {
        check_name(name)?;
        let durability = options.durability.unwrap_or(E::DURABILITIES[0]);
        if !E::DURABILITIES.contains(&durability) {
            let text = format!("the engine has no durability {durability:?}; it has {:?}", E::DURABILITIES);
            return Err(Refusal::Unsupported(text).into());
        }
        let kept = Kept { id: 0, kind, durability, expiry: options.expiry };
        let (store, name) = (self.clone(), name.to_owned());
        to_the_end(async move { store.create_now(&name, kept).await }).await
    }

    async fn create_now(&self, name: &str, kept: Kept) -> Result<Arc<TableInfo>, Error> {
        let inner = &self.inner;
        let _changing = inner.catalog_change.lock().await;
        // The number is durable before the table is, so no later table gets it.
        let reply = inner.catalog_write(Bytes::from_static(NEXT_ID), Action::Increment { by: 1 }).await?;
        let id = u64::try_from(reply.number).map_err(|_| Refusal::Overflow)?;
        let kept = Kept { id: FIRST_ID + id, ..kept };
        let value = codec::encode(&kept)?;
        let put = Action::Put { value, expires_ms: NEVER, expect: Some(Expect::Absent) };
        match inner.catalog_write(name_key(name), put).await {
            Err(Error::NotApplied(Refusal::Conflict { .. })) => {
                return Err(Refusal::TableExists(name.to_owned()).into());
            }
            result => result?,
        };
        let info = Arc::new(TableInfo::new(name, kept));
        let entry = (name.to_owned(), info.clone());
        inner.tables.with(move |tables| tables.insert(entry.0, entry.1)).await;
        Ok(info)
    }
}

/// The numbers below belong to the store.
const FIRST_ID: u64 = 16;

impl<E: Engine> Inner<E> {
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.options.limit
    }

    /// The map of partitions, for one operation. An operation takes it once: a change of the map
    /// waits for all operations that have it, and later ones wait for the change.
    pub(crate) async fn map(&self, deadline: Instant) -> Result<RwLockReadGuard<'_, Map<E::Partition>>, Error> {
        if let Ok(map) = self.map.try_read() {
            return Ok(map);
        }
        let map = timeout_at(deadline, self.map.read()).await;
        map.map_err(|_| unavailable(Reason::Deadline, Duration::ZERO))
    }

    /// The map, when no operation is in progress.
    pub(crate) async fn map_alone(&self, deadline: Instant) -> Result<RwLockWriteGuard<'_, Map<E::Partition>>, Error> {
        let map = timeout_at(deadline, self.map.write()).await;
        map.map_err(|_| unavailable(Reason::Deadline, Duration::ZERO))
    }

    /// The epoch of the map: code that remembers partitions checks it to see whether they still
    /// exist.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// Replaces the map, which the caller has alone.
    pub(crate) fn set_map(&self, map: &mut Map<E::Partition>, next: Map<E::Partition>) {
        self.epoch.store(next.epoch, SeqCst);
        self.partitions.store(next.layout.partitions as usize, SeqCst);
        *map = next;
    }

    async fn all_partitions(&self, deadline: Instant) -> Result<Vec<PartitionHandle<E::Partition>>, Error> {
        let map = self.map(deadline).await?;
        Ok(std::iter::once(&self.catalog).chain(map.all()).cloned().collect())
    }

    /// Writes the layout of the store: the commit point of a change of the number of partitions.
    pub(crate) async fn put_layout(&self, layout: &Layout) -> Result<(), Error> {
        let put = Action::Put { value: layout.encode()?, expires_ms: NEVER, expect: None };
        self.catalog_write(Bytes::from_static(LAYOUT), put).await.map(drop)
    }

    async fn catalog_write(&self, key: Bytes, action: Action) -> Result<Reply, Error> {
        self.catalog.write(Write::new(&self.catalog_table, key, action), self.deadline()).await
    }
}

/// Runs a change of the catalog to its end, even if the caller goes away: otherwise half of it
/// would be visible until the next open.
pub(crate) async fn to_the_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match Color::new().spawn(change).await {
        Ok(result) => result,
        Err(error) => Err(Refusal::Unsupported(format!("the catalog cannot be changed: {error}")).into()),
    }
}

fn check_name(name: &str) -> Result<(), Refusal> {
    if name.len() > NAME_LEN_MAX {
        return Err(Refusal::TooLong { part: "name", len: name.len(), len_max: NAME_LEN_MAX });
    }
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(Refusal::Unsupported(format!(
            "{name:?} cannot be the name of a table: it is empty or has control characters"
        )));
    }
    Ok(())
}

pub(crate) fn name_key(name: &str) -> Bytes {
    [&[NAME_PREFIX], name.as_bytes()].concat().into()
}

/// Opens catalog and partitions, and finishes the removal of destroyed tables. Blocks.
fn open<E: Engine>(engine: Arc<E>, mut options: Arc<StoreOptions>) -> Result<Inner<E>, Refusal> {
    if engine.value_len_max() < options.value_len_max {
        Arc::make_mut(&mut options).value_len_max = engine.value_len_max();
    }
    engine.check(Place::Catalog)?;
    engine.remove_unfinished(Place::Catalog)?;
    let catalog = engine.open(Place::Catalog)?;
    let kept = kept_layout(&catalog)?;
    let mut layout = kept.map_or_else(|| new_layout(&options), Ok)?;
    let tables = read_names(&catalog)?;
    let known: HashSet<TableId> = tables.values().map(|info| info.id).collect();
    match kept {
        Some(_) => layout.places::<E>().try_for_each(|place| engine.check(place))?,
        None => layout.places::<E>().try_for_each(|place| engine.remove_unfinished(place))?,
    }
    // The old data goes only when all of the new data is there.
    if layout.stale.is_some() {
        remove_stale(&*engine, &layout)?;
        layout.stale = None;
        write_layout(&catalog, layout.encode()?)?;
    }
    let opened = open_partitions(&*engine, &layout)?;
    if kept.is_none() {
        // From here on every partition has to be there.
        write_layout(&catalog, layout.encode()?)?;
    }
    let all: Vec<_> = opened.iter().flat_map(|(_, group)| group).map(|(index, engine)| (*index, &**engine)).collect();
    finish_transactions(&all)?;
    for (_, partition) in &all {
        remove_destroyed(*partition, &known)?;
    }
    let groups = handles(opened, &options)?;
    let kept = Kept { id: NAMES.0, kind: Kind::Hash, durability: E::DURABILITIES[0], expiry: false };
    Ok(Inner {
        catalog: PartitionHandle::new(0, Arc::new(catalog), &options)?,
        catalog_table: Arc::new(TableInfo::new("the catalog", kept)),
        engine,
        map: RwLock::new(Map { groups, layout, epoch: 0 }),
        epoch: AtomicU64::new(0),
        partitions: AtomicUsize::new(layout.partitions as usize),
        repartitioning: Mutex::new(()),
        tables: Colored::new(tables),
        catalog_change: Mutex::new(()),
        options,
    })
}

/// Partitions with their numbers, by durability.
pub(crate) type Opened<P> = Vec<(Durability, Vec<(u32, Arc<P>)>)>;

/// Opens the partitions of a layout. Blocks.
pub(crate) fn open_partitions<E: Engine>(engine: &E, layout: &Layout) -> Result<Opened<E::Partition>, Failure> {
    let mut opened = Vec::new();
    for (at, &durability) in (0..).zip(E::DURABILITIES) {
        let open = |(number, place)| Ok((layout.index(at, number), Arc::new(engine.open(place)?)));
        let partitions = (0..).zip(layout.places_of(durability)).map(open).collect::<Result<_, _>>()?;
        opened.push((durability, partitions));
    }
    Ok(opened)
}

/// Makes colors of open partitions. Blocks.
pub(crate) fn handles<P: Partition>(opened: Opened<P>, options: &Arc<StoreOptions>) -> Result<Groups<P>, Failure> {
    let mut groups = Vec::new();
    for (durability, group) in opened {
        let handles = group.into_iter().map(|(index, partition)| PartitionHandle::new(index, partition, options));
        groups.push((durability, handles.collect::<Result<_, _>>()?));
    }
    Ok(groups)
}

/// Removes the partitions of the map before. Blocks.
pub(crate) fn remove_stale<E: Engine>(engine: &E, layout: &Layout) -> Result<(), Failure> {
    layout.before().map_or(Ok(()), |before| before.places::<E>().try_for_each(|place| engine.remove(place)))
}

/// Reads the properties of the store; a new one has none.
pub(crate) fn kept_layout<P: Partition>(catalog: &P) -> Result<Option<Layout>, Refusal> {
    let record = crate::partition::load(catalog, NAMES, LAYOUT)?;
    record.map(|record| Layout::decode(catalog, &record.value)).transpose()
}

fn new_layout(options: &StoreOptions) -> Result<Layout, Refusal> {
    let partitions = match options.partitions {
        0 => u32::try_from(parallelism()).unwrap_or(u32::MAX).min(PARTITIONS_MAX),
        partitions => partitions,
    };
    check_partitions(partitions)?;
    Ok(Layout::new(partitions))
}

pub(crate) fn check_partitions(partitions: u32) -> Result<(), Refusal> {
    if (1..=PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    Err(Refusal::Unsupported(format!("a store has 1 to {PARTITIONS_MAX} partitions, not {partitions}")))
}

/// Writes a layout into a catalog with no other writer. Blocks.
pub(crate) fn write_layout<P: Partition>(catalog: &P, value: Bytes) -> Result<(), Failure> {
    let record = Record { version: 0, expires_ms: NEVER, value };
    catalog.commit(&[crate::engine::Change::Put(NAMES, LAYOUT.to_vec(), record.encode(NAMES, LAYOUT))])
}

fn read_names<P: Partition>(catalog: &P) -> Result<HashMap<String, Arc<TableInfo>>, Refusal> {
    use std::ops::Bound::{Excluded, Included};
    let range = (Included(&[NAME_PREFIX][..]), Excluded(&[NAME_PREFIX + 1][..]));
    let mut tables = HashMap::default();
    for (key, bytes) in catalog.scan(NAMES, range, usize::MAX)? {
        let record = Record::decode(NAMES, &key, bytes).ok_or_else(|| catalog.corrupt("a table's checksum differs"))?;
        let name = String::from_utf8_lossy(&key[1..]).into_owned();
        let info = TableInfo::new(&name, codec::decode(&record.value)?);
        tables.insert(name, Arc::new(info));
    }
    Ok(tables)
}

/// Removes the data of tables that the catalog has forgotten.
fn remove_destroyed<P: Partition>(partition: &P, known: &HashSet<TableId>) -> Result<(), Failure> {
    let gone = partition.tables()?.into_iter().filter(|table| table.0 >= FIRST_ID && !known.contains(table));
    let changes: Vec<_> = gone.map(crate::engine::Change::DropTable).collect();
    if changes.is_empty() { Ok(()) } else { partition.commit(&changes) }
}

fn verify_partition<P: Partition>(partition: &P) -> Result<(), Failure> {
    const PAGE: usize = 1024;
    partition.verify()?;
    for table in partition.tables()?.into_iter().filter(|table| *table != crate::partition::OWN) {
        let mut from = std::ops::Bound::Unbounded;
        loop {
            let entries =
                partition.scan(table, (from.as_ref().map(Vec::as_slice), std::ops::Bound::Unbounded), PAGE)?;
            let Some((last, _)) = entries.last().cloned() else { break };
            for (key, bytes) in entries {
                if Record::decode(table, &key, bytes).is_none() {
                    return Err(partition.corrupt("a record does not have its checksum"));
                }
            }
            from = std::ops::Bound::Excluded(last);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_does_not_decide_the_partitions_of_a_simulated_store() {
        let of_machine = new_layout(&StoreOptions::default()).unwrap().partitions;
        let mut world = dapple_sched::environment::Simulated::new(std::time::SystemTime::UNIX_EPOCH, 1);
        let simulated = world.around(|| {
            let workers = of_machine as usize + 1;
            let runtime = dapple_sched::Runtime::builder().workers(workers).build_stepped(1).unwrap();
            let _entered = runtime.handle().enter();
            new_layout(&StoreOptions::default()).unwrap().partitions
        });
        assert_eq!(simulated, of_machine + 1, "one for each worker");
    }
}
