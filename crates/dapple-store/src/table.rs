//! Tables: typed operations on one key, and enumeration.

use std::cmp::Reverse;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dapple_io::time::Instant;
use dapple_sched::Color;
use futures_util::future::try_join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::entries::Entries;
use crate::error::{Error, Refusal};
use crate::lock::{Fence, Lock, Token};
use crate::partition::{Action, Next, Reply, Write};
use crate::record::{NEVER, Record, ms_of, now_ms};
use crate::store::Store;
use crate::table_info::TableInfo;
use crate::{Expect, Kind, Read, Version, Versioned, codec};

/// A hash table on an engine: keys without an order, one version for each value. Clones are handles to the same table.
///
/// Every operation has the time limit of [`StoreOptions`](crate::StoreOptions), or of [`with_limit`](Self::with_limit).
/// **Cancel safety:** a dropped read has no effect. A dropped write that still waited is not applied; one in a commit is.
///
/// ```
/// use dapple_store::{Expect, Memory, Store, StoreOptions, Table, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let users: Table<String, u32, _> = store.create("users", TableOptions::default()).await?;
/// let ann = "ann".to_owned();
/// let first = users.put(&ann, &42).await?;
/// assert_eq!(first.previous, None);
/// users.cas(&ann, Expect::Version(first.version), &43).await?;
/// assert_eq!(users.remove(&ann).await?.map(|old| old.value), Some(43));
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
pub struct Table<K, V, E: Engine> {
    store: Store<E>,
    info: Arc<TableInfo>,
    limit: Option<Duration>,
    fence: Option<Fence>,
    types: PhantomData<fn(K) -> V>,
}

/// A table with ordered keys: all of [`Table`], and ranges.
///
/// The order is that of the type: numbers by value, text and bytes by bytes, tuples and structs by their fields.
///
/// ```
/// use dapple_store::{Memory, OrderedTable, Store, StoreOptions, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let log: OrderedTable<u64, String, _> = store.create_ordered("log", TableOptions::default()).await?;
/// for number in [300, 2, 10] {
///     log.put(&number, &format!("entry {number}")).await?;
/// }
/// let mut range = log.range(3..)?;
/// assert_eq!(range.next().await?.map(|(key, _)| key), Some(10));
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
pub struct OrderedTable<K, V, E: Engine>(Table<K, V, E>);

/// A value, its version, and the time at which it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<V> {
    /// The value.
    pub value: V,
    /// The version that it got when it was written.
    pub version: Version,
    /// The time of expiry, to the millisecond; `None` if it does not expire.
    pub expires: Option<SystemTime>,
}

/// A key with many operations; see [`Table::hot_keys`].
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey<K> {
    /// The key.
    pub key: K,
    /// Its share of the operations, 0 to 1.
    pub share: f64,
}

/// The most hot keys that a table tells of, and the part of all operations that makes a key hot: one of this many.
const HOT_KEYS: usize = 20;
const HOT_SHARE: u64 = 1_000;

/// The change that a closure of [`Table::modify`] asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// Nothing changes.
    Keep,
    /// The key gets this value.
    Put {
        /// The value.
        value: V,
        /// The time at which it expires, if it does.
        expires: Option<SystemTime>,
    },
    /// The key loses its value.
    Remove,
}

/// The result of a write that was applied: its version, and the value that it replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written<V> {
    /// The version of the key from now on.
    pub version: Version,
    /// The value before.
    pub previous: Option<Versioned<V>>,
}

impl<K, V, E: Engine> Clone for Table<K, V, E> {
    fn clone(&self) -> Self {
        let (store, info, fence) = (self.store.clone(), self.info.clone(), self.fence.clone());
        Table { store, info, limit: self.limit, fence, types: PhantomData }
    }
}

impl<K, V, E: Engine> Clone for OrderedTable<K, V, E> {
    fn clone(&self) -> Self {
        OrderedTable(self.0.clone())
    }
}

impl<K, V, E: Engine> fmt::Debug for Table<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.info.name).finish_non_exhaustive()
    }
}

impl<K, V, E: Engine> fmt::Debug for OrderedTable<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderedTable").field("name", &self.0.info.name).finish_non_exhaustive()
    }
}

impl<K, V, E: Engine> std::ops::Deref for OrderedTable<K, V, E> {
    type Target = Table<K, V, E>;

    fn deref(&self) -> &Table<K, V, E> {
        &self.0
    }
}

impl<K, V, E> Table<K, V, E>
where
    K: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
    E: Engine,
{
    pub(crate) fn new(store: Store<E>, info: Arc<TableInfo>) -> Self {
        Table { store, info, limit: None, fence: None, types: PhantomData }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// A handle with a limit of `limit` for each operation.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// A handle that writes only until `lock` has a newer holder than that of `token`; after that,
    /// writes are refused with [`Refusal::Fenced`]. Its reads are not checked.
    ///
    /// # Errors
    /// The lock belongs to another store.
    pub fn guarded(&self, lock: &Lock<E>, token: Token) -> Result<Self, Error> {
        if !lock.is_of(&self.store) {
            return Err(Refusal::Unsupported("a table is guarded by locks of its own store only".to_owned()).into());
        }
        Ok(Table { fence: Some(lock.fence(token)), ..self.clone() })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The table was destroyed; the engine cannot read; the time limit passed.
    pub async fn get(&self, key: &K) -> Result<Option<V>, Error> {
        Ok(self.get_versioned(key, Read::Linearizable).await?.map(|found| found.value))
    }

    /// The value of a key and its version, with the consistency that `read` asks for.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_versioned(&self, key: &K, read: Read) -> Result<Option<Versioned<V>>, Error> {
        // The engines of one machine have one copy of the data: every read is linearizable.
        let (Read::Linearizable | Read::AtLeast(_) | Read::Stale { .. }) = read;
        Ok(self.live(key).await?.map(versioned).transpose()?)
    }

    /// The values of several keys, in the order of `keys`: the reads of a [`get`](Self::get) each, with one message for
    /// each partition instead of one for each key.
    ///
    /// Each value is as linearizable as that of `get`, but the values need not all be of one moment: a
    /// [`Transaction`](crate::Transaction) sees such. A key may occur more than once. Costs the memory of all values.
    ///
    /// # Errors
    /// As [`get`](Self::get), for all of them: the operation has one time limit, and no values if one of them is missing
    /// because of an error.
    ///
    /// ```
    /// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let ages: Table<String, u32, _> = store.create("ages", TableOptions::default()).await?;
    /// let [ann, ben, eve] = ["ann", "ben", "eve"].map(str::to_owned);
    /// ages.put(&ann, &42).await?;
    /// ages.put(&eve, &7).await?;
    /// assert_eq!(ages.get_many([&eve, &ben, &ann]).await?, [Some(7), None, Some(42)]);
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn get_many<'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Result<Vec<Option<V>>, Error>
    where
        K: 'a,
    {
        let records = self.live_many(self.keys(keys)?).await?;
        let value = |record: Option<Record>| record.map(|record| codec::decode(&record.value)).transpose();
        Ok(records.into_iter().map(value).collect::<Result<_, Refusal>>()?)
    }

    /// The values of several keys with their versions and times of expiry, as [`get_many`](Self::get_many).
    ///
    /// # Errors
    /// As [`get_many`](Self::get_many).
    pub async fn entry_many<'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Result<Vec<Option<Entry<V>>>, Error>
    where
        K: 'a,
    {
        let records = self.live_many(self.keys(keys)?).await?;
        Ok(records.into_iter().map(|record| record.map(entry).transpose()).collect::<Result<_, Refusal>>()?)
    }

    /// Whether the key has a value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn contains(&self, key: &K) -> Result<bool, Error> {
        Ok(self.live(key).await?.is_some())
    }

    /// The time left until the value of a key expires; `None` if it has none, or does not expire.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn expires_in(&self, key: &K) -> Result<Option<Duration>, Error> {
        let record = self.live(key).await?.filter(|record| record.expires_ms != NEVER);
        Ok(record.map(|record| Duration::from_millis(record.expires_ms.saturating_sub(now_ms()))))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// The three cases of [`Error`]; key or value too long.
    pub async fn put(&self, key: &K, value: &V) -> Result<Written<V>, Error> {
        self.put_if(key, value, NEVER, None).await
    }

    /// Sets the value of a key until `expires`. The table must have [`expiry`](crate::TableOptions::expiry).
    ///
    /// # Errors
    /// As [`put`](Self::put); the table has no expiry.
    pub async fn put_until(&self, key: &K, value: &V, expires: SystemTime) -> Result<Written<V>, Error> {
        self.check_expiry(true)?;
        self.put_if(key, value, ms_of(expires), None).await
    }

    pub(crate) fn check_expiry(&self, is_wanted: bool) -> Result<(), Refusal> {
        if !is_wanted || self.info.kept.expiry {
            return Ok(());
        }
        Err(Refusal::Unsupported(format!("table `{}` was created without expiry", self.info.name)))
    }

    /// The value of a key with its version and time of expiry.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn entry(&self, key: &K) -> Result<Option<Entry<V>>, Error> {
        Ok(self.live(key).await?.map(entry).transpose()?)
    }

    /// Sets value and time of expiry of a key if `expect` holds; `None` means a value that does not
    /// expire.
    ///
    /// # Errors
    /// As [`cas`](Self::cas) and [`put_until`](Self::put_until).
    pub async fn cas_until(
        &self,
        key: &K,
        expect: Expect<V>,
        value: &V,
        expires: Option<SystemTime>,
    ) -> Result<Written<V>, Error> {
        self.check_expiry(expires.is_some())?;
        self.put_if(key, value, expires.map_or(NEVER, ms_of), Some(encode_expect(expect)?)).await
    }

    /// Removes the values that have expired, which no operation sees any more, and returns their number. Reads the whole
    /// table.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn remove_expired(&self) -> Result<u64, Error> {
        let mut entries = self.raw_entries(Bound::Unbounded, Bound::Unbounded);
        let mut removed = 0;
        while let Some((key, record)) = entries.next_kept().await? {
            if record.is_live(now_ms()) {
                continue;
            }
            match self.write(key.into(), Action::Remove { expect: Some(Expect::Absent) }).await {
                Ok(_) => removed += 1,
                // The key has a new value.
                Err(Error::NotApplied(Refusal::Conflict { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Sets the value of a key if `expect` holds.
    ///
    /// # Errors
    /// [`Refusal::Conflict`] with the current version; as [`put`](Self::put).
    pub async fn cas(&self, key: &K, expect: Expect<V>, value: &V) -> Result<Written<V>, Error> {
        let expect = encode_expect(expect)?;
        self.put_if(key, value, NEVER, Some(expect)).await
    }

    /// Removes a key and returns its value.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn remove(&self, key: &K) -> Result<Option<Versioned<V>>, Error> {
        let reply = self.write(self.key(key)?, Action::Remove { expect: None }).await?;
        Ok(reply.previous.map(versioned).transpose()?)
    }

    /// Removes a key if `expect` holds.
    ///
    /// # Errors
    /// [`Refusal::Conflict`] with the current version; as [`put`](Self::put).
    pub async fn remove_if(&self, key: &K, expect: Expect<V>) -> Result<Option<Versioned<V>>, Error> {
        let expect = Some(encode_expect(expect)?);
        let reply = self.write(self.key(key)?, Action::Remove { expect }).await?;
        Ok(reply.previous.map(versioned).transpose()?)
    }

    /// Replaces the value of a key by the result of `change`; `None` removes it. `change` runs again whenever another
    /// write came between.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn update(&self, key: &K, mut change: impl FnMut(Option<V>) -> Option<V>) -> Result<Option<V>, Error> {
        let deadline = self.deadline();
        loop {
            let found = self.get_versioned(key, Read::Linearizable).await?;
            let expect = found.as_ref().map_or(Expect::Absent, |found| Expect::Version(found.version));
            let next = change(found.map(|found| found.value));
            let result = match &next {
                Some(value) => self.cas(key, expect, value).await.map(drop),
                None if matches!(expect, Expect::Absent) => Ok(()),
                None => self.remove_if(key, expect).await.map(drop),
            };
            match result {
                Ok(()) => return Ok(next),
                Err(Error::NotApplied(Refusal::Conflict { .. })) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs `change` once, between all other writes of the key, and returns its result when the
    /// write is durable. Unlike [`update`](Self::update) it never has to retry, so many callers may
    /// change one key.
    ///
    /// `change` runs in the blocking pool and delays the other writes of its partition: keep it short.
    ///
    /// # Errors
    /// [`Refusal::Panicked`], and then nothing is changed; as [`put`](Self::put).
    ///
    /// ```
    /// use dapple_store::{Change, Memory, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let stock: Table<String, u32, _> = store.create("stock", TableOptions::default()).await?;
    /// stock.put(&"pens".to_owned(), &1).await?;
    /// let take_one = |entry: Option<dapple_store::Entry<u32>>| match entry.map_or(0, |entry| entry.value) {
    ///     0 => (Change::Keep, false),
    ///     left => (Change::Put { value: left - 1, expires: None }, true),
    /// };
    /// assert!(stock.modify(&"pens".to_owned(), take_one).await?);
    /// assert!(!stock.modify(&"pens".to_owned(), take_one).await?);
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn modify<R: Send + 'static>(
        &self,
        key: &K,
        change: impl FnOnce(Option<Entry<V>>) -> (Change<V>, R) + Send + 'static,
    ) -> Result<R, Error> {
        let (action, result) = self.modification(change);
        self.write(self.key(key)?, action).await?;
        let returned = result.lock().unwrap_or_else(PoisonError::into_inner).take();
        returned.ok_or_else(|| Refusal::Panicked.into())
    }

    /// The action that runs `change`, and the slot for its result.
    pub(crate) fn modification<R: Send + 'static>(
        &self,
        change: impl FnOnce(Option<Entry<V>>) -> (Change<V>, R) + Send + 'static,
    ) -> (Action, Arc<Mutex<Option<R>>>) {
        let result = Arc::new(Mutex::new(None));
        let of_caller = result.clone();
        let has_expiry = self.info.kept.expiry;
        let value_len_max = self.store.inner().options.value_len_max;
        let modification = move |record: Option<&Record>| {
            let (change, returned) = change(record.cloned().map(entry).transpose()?);
            let next = match change {
                Change::Keep => Next::Keep,
                Change::Remove => Next::Remove,
                Change::Put { expires: Some(_), .. } if !has_expiry => {
                    return Err(Refusal::Unsupported("the table was created without expiry".to_owned()));
                }
                Change::Put { value, expires } => {
                    let value = encode_value(&value, value_len_max)?;
                    Next::Put { value, expires_ms: expires.map_or(NEVER, ms_of) }
                }
            };
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(returned);
            Ok(next)
        };
        (Action::Modify(Mutex::new(Some(Box::new(modification)))), of_caller)
    }

    /// The write of an action, with its guards.
    pub(crate) fn prepared(&self, key: Bytes, action: Action) -> Write {
        Write { fence: self.fence.clone(), ..Write::new(&self.info, key, action) }
    }

    pub(crate) fn info(&self) -> &Arc<TableInfo> {
        &self.info
    }

    pub(crate) fn store(&self) -> &Store<E> {
        &self.store
    }

    pub(crate) fn is_of(&self, store: &Store<E>) -> bool {
        self.store.is_same(store)
    }

    /// The keys with the most operations in the last minutes, at most 20, the greatest share first. Each has a thousandth
    /// or more of the operations on tables of this durability. The shares are estimates from one operation of 16, and too
    /// low rather than too high.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// ```
    /// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let users: Table<String, u32, _> = store.create("users", TableOptions::default()).await?;
    /// for number in 0..1_000 {
    ///     users.get(&if number % 2 == 0 { "ann".to_owned() } else { format!("user {number}") }).await?;
    /// }
    /// let hot = users.hot_keys().await?;
    /// assert_eq!(hot[0].key, "ann");
    /// assert!(hot[0].share > 0.3);
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn hot_keys(&self) -> Result<Vec<HotKey<K>>, Error>
    where
        K: DeserializeOwned,
    {
        self.info.check()?;
        let map = self.store.inner().map(self.deadline()).await?;
        let (mut all, mut counts) = (0, Vec::new());
        for partition in map.group(self.info.kept.durability) {
            let (operations, keys) = partition.usage(self.info.id);
            all += operations;
            counts.extend(keys);
        }
        counts.retain(|(_, count)| *count > 0 && count.saturating_mul(HOT_SHARE) >= all);
        counts.sort_by_key(|(_, count)| Reverse(*count));
        counts.truncate(HOT_KEYS);
        let is_ordered = self.info.kept.kind == crate::Kind::Ordered;
        let hot = |(key, count): (Bytes, u64)| {
            let key = if is_ordered { codec::decode_ordered_key(&key)? } else { codec::decode(&key)? };
            Ok(HotKey { key, share: count as f64 / all as f64 })
        };
        counts.into_iter().map(hot).collect()
    }

    /// The number of keys. Reads all of a table that has expiry.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn count(&self) -> Result<u64, Error> {
        self.info.check()?;
        let mut count = 0;
        if self.info.kept.expiry {
            let mut entries = self.raw_entries(Bound::Unbounded, Bound::Unbounded);
            while entries.next().await?.is_some() {
                count += 1;
            }
            return Ok(count);
        }
        let id = self.info.id;
        let map = self.store.inner().map(self.deadline()).await?;
        for partition in map.group(self.info.kept.durability) {
            count += partition.call(self.deadline(), move |engine| crate::engine::Partition::len(engine, id)).await?;
        }
        Ok(count)
    }

    /// Enumerates all keys, in an order of the store's own. A key that is there throughout is returned exactly once,
    /// whatever changes meanwhile.
    #[must_use]
    pub fn iter(&self) -> Iter<K, V, E> {
        Iter { entries: self.raw_entries(Bound::Unbounded, Bound::Unbounded), types: PhantomData }
    }

    /// Runs `operation` in `color`, then `done` with its result, in the same color: the split-phase form of every
    /// operation.
    pub fn submit<T, F>(
        &self,
        color: Color,
        operation: impl FnOnce(Self) -> F,
        done: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) where
        F: Future<Output = Result<T, Error>> + Send + 'static,
        T: Send + 'static,
    {
        let operation = operation(self.clone());
        drop(color.spawn(async move { done(operation.await) }));
    }

    async fn live(&self, key: &K) -> Result<Option<Record>, Error> {
        self.info.check()?;
        let key = self.key(key)?;
        let deadline = self.deadline();
        let map = self.store.inner().map(deadline).await?;
        let record = map.of(&self.info, &key).read(self.info.id, &key, deadline).await?;
        drop(map);
        self.info.check()?;
        Ok(record.filter(|record| record.is_live(now_ms())))
    }

    /// The records of several keys, in their order.
    async fn live_many(&self, keys: Vec<Bytes>) -> Result<Vec<Option<Record>>, Error> {
        self.info.check()?;
        let deadline = self.deadline();
        let map = self.store.inner().map(deadline).await?;
        let partitions = map.group(self.info.kept.durability);
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); partitions.len()];
        for (place, key) in keys.iter().enumerate() {
            places[crate::map::place(&self.info, key, partitions.len())].push(place);
        }
        let asked = partitions.iter().zip(places).filter(|(_, places)| !places.is_empty());
        let reads = asked.map(|(partition, places)| async {
            let wanted = places.iter().map(|place| keys[*place].clone()).collect();
            partition.read_many(self.info.id, wanted, deadline).await.map(|records| (places, records))
        });
        let mut found = vec![None; keys.len()];
        for (places, records) in try_join_all(reads).await? {
            places.into_iter().zip(records).for_each(|(place, record)| found[place] = record);
        }
        drop(map);
        self.info.check()?;
        let now_ms = now_ms();
        Ok(found.into_iter().map(|record| record.filter(|record| record.is_live(now_ms))).collect())
    }

    async fn put_if(
        &self,
        key: &K,
        value: &V,
        expires_ms: u64,
        expect: Option<Expect<Bytes>>,
    ) -> Result<Written<V>, Error> {
        let value = encode_value(value, self.store.inner().options.value_len_max)?;
        let reply = self.write(self.key(key)?, Action::Put { value, expires_ms, expect }).await?;
        let previous = reply.previous.map(versioned).transpose()?;
        Ok(Written { version: reply.version, previous })
    }

    async fn write(&self, key: Bytes, action: Action) -> Result<Reply, Error> {
        self.info.check()?;
        let deadline = self.deadline();
        let map = self.store.inner().map(deadline).await?;
        map.of(&self.info, &key).write(self.prepared(key, action), deadline).await
    }

    fn raw_entries(&self, from: Bound<Bytes>, to: Bound<Bytes>) -> Entries<E> {
        Entries::new(&self.store, &self.info, (from, to), self.limit.unwrap_or(self.store.inner().options.limit))
    }

    pub(crate) fn key(&self, key: &K) -> Result<Bytes, Refusal> {
        let bytes = if self.info.kept.kind == Kind::Ordered { codec::ordered_key(key)? } else { codec::encode(key)? };
        let len_max = self.store.inner().options.key_len_max;
        if bytes.len() > len_max {
            return Err(Refusal::TooLong { part: "key", len: bytes.len(), len_max });
        }
        Ok(bytes)
    }

    fn keys<'a>(&self, keys: impl IntoIterator<Item = &'a K>) -> Result<Vec<Bytes>, Refusal>
    where
        K: 'a,
    {
        keys.into_iter().map(|key| self.key(key)).collect()
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limit.unwrap_or(self.store.inner().options.limit)
    }
}

impl<K, E> Table<K, i64, E>
where
    K: Serialize + DeserializeOwned,
    E: Engine,
{
    /// Adds `by` to the number of a key, 0 if there is none, and returns the sum.
    ///
    /// # Errors
    /// [`Refusal::Overflow`]; as [`put`](Self::put).
    pub async fn increment(&self, key: &K, by: i64) -> Result<i64, Error> {
        Ok(self.write(self.key(key)?, Action::Increment { by }).await?.number)
    }
}

impl<K, V, E> OrderedTable<K, V, E>
where
    K: Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
    E: Engine,
{
    pub(crate) fn new(store: Store<E>, info: Arc<TableInfo>) -> Self {
        OrderedTable(Table::new(store, info))
    }

    /// A handle with a limit of `limit` for each operation.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        OrderedTable(self.0.with_limit(limit))
    }

    /// As [`Table::guarded`].
    ///
    /// # Errors
    /// As [`Table::guarded`].
    pub fn guarded(&self, lock: &Lock<E>, token: Token) -> Result<Self, Error> {
        Ok(OrderedTable(self.0.guarded(lock, token)?))
    }

    /// Enumerates the keys of a range in their order. A key that is there throughout is returned exactly once.
    ///
    /// # Errors
    /// A bound cannot be encoded.
    pub fn range(&self, range: impl RangeBounds<K>) -> Result<Iter<K, V, E>, Error> {
        let encode = |bound: Bound<&K>| match bound {
            Bound::Included(key) => self.key(key).map(Bound::Included),
            Bound::Excluded(key) => self.key(key).map(Bound::Excluded),
            Bound::Unbounded => Ok(Bound::Unbounded),
        };
        let (from, to) = (encode(range.start_bound())?, encode(range.end_bound())?);
        Ok(Iter { entries: self.raw_entries(from, to), types: PhantomData })
    }
}

/// An enumeration of a table. It reads page after page, so it costs the memory of one page for each partition.
pub struct Iter<K, V, E: Engine> {
    entries: Entries<E>,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V, E: Engine> fmt::Debug for Iter<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

impl<K: DeserializeOwned, V: DeserializeOwned, E: Engine> Iter<K, V, E> {
    /// The next key with its value; `None` at the end. **Cancel safety:** nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// As [`Table::get`]. The enumeration continues at the same key if it is asked again.
    pub async fn next(&mut self) -> Result<Option<(K, Versioned<V>)>, Error> {
        let Some((key, record)) = self.entries.next().await? else { return Ok(None) };
        let key = if self.entries.is_ordered() { codec::decode_ordered_key(&key)? } else { codec::decode(&key)? };
        Ok(Some((key, versioned(record)?)))
    }
}

fn versioned<V: DeserializeOwned>(record: Record) -> Result<Versioned<V>, Refusal> {
    Ok(Versioned { value: codec::decode(&record.value)?, version: Version(record.version) })
}

pub(crate) fn entry<V: DeserializeOwned>(record: Record) -> Result<Entry<V>, Refusal> {
    let expires = (record.expires_ms != NEVER).then(|| UNIX_EPOCH + Duration::from_millis(record.expires_ms));
    let Versioned { value, version } = versioned(record)?;
    Ok(Entry { value, version, expires })
}

pub(crate) fn encode_value<V: Serialize>(value: &V, len_max: usize) -> Result<Bytes, Refusal> {
    let value = codec::encode(value)?;
    let len = value.len();
    if len > len_max { Err(Refusal::TooLong { part: "value", len, len_max }) } else { Ok(value) }
}

pub(crate) fn encode_expect<V: Serialize>(expect: Expect<V>) -> Result<Expect<Bytes>, Refusal> {
    Ok(match expect {
        Expect::Absent => Expect::Absent,
        Expect::Version(version) => Expect::Version(version),
        Expect::Value(value) => Expect::Value(codec::encode(&value)?),
    })
}
