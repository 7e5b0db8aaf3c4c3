//! Several keys at once: batches and transactions.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use dapple_io::time::Instant;
use dapple_sched::environment::HashMap;
use futures_util::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Partition, TableId, Transactions};
use crate::error::{Error, Refusal};
use crate::map::Map;
use crate::partition::{Action, Next, PartitionHandle, Write, commit_all};
use crate::record::{NEVER, Record, ms_of};
use crate::store::Store;
use crate::table::{encode_expect, encode_value, entry};
use crate::table_info::TableInfo;
use crate::{Change, Entry, Expect, Table, Version, codec};

/// Writes of several keys, in any tables of one store, that are applied all or not at all.
///
/// A batch in one partition costs one commit, as a single write does, and shares it. One over several partitions has
/// each of them for itself meanwhile, and costs a commit in each.
///
/// ```
/// use dapple_store::{Expect, Memory, Store, StoreOptions, Table, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let users: Table<String, u32, _> = store.create("users", TableOptions::default()).await?;
/// let by_age: Table<u32, String, _> = store.create("by-age", TableOptions::default()).await?;
/// let mut batch = store.batch();
/// batch.check(&users, &"ann".to_owned(), Expect::Absent)?;
/// batch.put(&users, &"ann".to_owned(), &42)?;
/// batch.put(&by_age, &42, &"ann".to_owned())?;
/// batch.commit().await?;
/// assert_eq!(by_age.get(&42).await?, Some("ann".to_owned()));
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch<E: Transactions> {
    store: Store<E>,
    writes: Vec<Write>,
    bytes: usize,
}

/// The value of a key at the moment of a batch; [`Batch::read`] makes it.
pub struct BatchRead<V> {
    slot: Arc<Mutex<Option<Option<Record>>>>,
    value: PhantomData<fn() -> V>,
}

/// Reads and writes that happen at one moment, or not at all. [`Store::transaction`] makes it. Clones are the same one.
pub struct Transaction<E: Transactions>(Arc<Mutex<Work<E>>>);

/// The reads and writes of a transaction so far.
struct Work<E: Transactions> {
    batch: Batch<E>,
    reads: HashMap<(TableId, Bytes), Write>,
    /// The values that it has written itself, as encoded.
    own: HashMap<(TableId, Bytes), Option<Bytes>>,
}

impl<E: Transactions> Clone for Transaction<E> {
    fn clone(&self) -> Self {
        Transaction(self.0.clone())
    }
}

impl<V: DeserializeOwned> BatchRead<V> {
    /// The length of the value as it is kept, bytes; 0 if there is none.
    #[must_use]
    pub fn len(&self) -> usize {
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.iter().flatten().map(|record| record.value.len()).sum()
    }

    /// Whether there is no value, or an empty one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value, its version and its expiry; `None` if the key had none.
    ///
    /// # Errors
    /// [`Refusal::Codec`] for a value of another type; [`Refusal::Unsupported`] if the batch did not come to this
    /// read. The result of a batch that failed means nothing.
    pub fn entry(self) -> Result<Option<Entry<V>>, Error> {
        let record = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let uncommitted = || Refusal::Unsupported("the batch was not committed, so nothing was read".to_owned());
        Ok(record.ok_or_else(uncommitted)?.map(entry).transpose()?)
    }
}

impl<V> fmt::Debug for BatchRead<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchRead").finish_non_exhaustive()
    }
}

impl<E: Transactions> fmt::Debug for Batch<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("writes", &self.writes.len()).finish_non_exhaustive()
    }
}

impl<E: Transactions> fmt::Debug for Transaction<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}

impl<E: Transactions> Store<E> {
    /// An empty batch.
    pub fn batch(&self) -> Batch<E> {
        Batch { store: self.clone(), writes: Vec::new(), bytes: 0 }
    }

    /// Runs `body`, and applies its writes if no value that it read has changed meanwhile;
    /// otherwise runs it again, until the store's time limit has passed. So there is an order of
    /// all transactions and single operations in which each runs alone.
    ///
    /// `body` may run several times: keep other effects out of it. An error of `body` ends the
    /// transaction without a change. **Cancel safety:** if dropped before the commit begins, it
    /// changes nothing.
    ///
    /// # Errors
    /// Those of `body`; as [`Batch::commit`].
    ///
    /// ```
    /// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let accounts: Table<String, u64, _> = store.create("accounts", TableOptions::default()).await?;
    /// let (ann, ben) = ("ann".to_owned(), "ben".to_owned());
    /// accounts.put(&ann, &100).await?;
    /// let (accounts, ann, ben) = (&accounts, &ann, &ben);
    /// let moved = store
    ///     .transaction(|tx| async move {
    ///         let from = tx.get(accounts, ann).await?.unwrap_or(0);
    ///         let Some(rest) = from.checked_sub(30) else { return Ok(false) };
    ///         let to = tx.get(accounts, ben).await?.unwrap_or(0);
    ///         tx.put(accounts, ann, &rest)?;
    ///         tx.put(accounts, ben, &(to + 30))?;
    ///         Ok(true)
    ///     })
    ///     .await?;
    /// assert!(moved);
    /// assert_eq!(accounts.get(ben).await?, Some(30));
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn transaction<T, F>(&self, mut body: impl FnMut(Transaction<E>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = self.inner().deadline();
        loop {
            let work = Work { batch: self.batch(), reads: HashMap::default(), own: HashMap::default() };
            let transaction = Transaction(Arc::new(Mutex::new(work)));
            let result = body(transaction.clone()).await?;
            match transaction.take(self).commit(deadline).await {
                Ok(()) => return Ok(result),
                Err(Error::NotApplied(Refusal::Conflict { .. })) if Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl<E: Transactions> Batch<E> {
    /// Sets the value of a key.
    ///
    /// # Errors
    /// Key or value cannot be encoded or is too long; the table belongs to another store.
    pub fn put<K: Key, V: Value>(&mut self, table: &Table<K, V, E>, key: &K, value: &V) -> Result<(), Error> {
        self.put_at(table, key, value, NEVER)
    }

    /// Sets the value of a key until `expires`.
    ///
    /// # Errors
    /// As [`put`](Self::put); the table has no expiry.
    pub fn put_until<K: Key, V: Value>(
        &mut self,
        table: &Table<K, V, E>,
        key: &K,
        value: &V,
        expires: SystemTime,
    ) -> Result<(), Error> {
        table.check_expiry(true)?;
        self.put_at(table, key, value, ms_of(expires))
    }

    fn put_at<K: Key, V: Value>(
        &mut self,
        table: &Table<K, V, E>,
        key: &K,
        value: &V,
        expires_ms: u64,
    ) -> Result<(), Error> {
        let value = encode_value(value, self.store.inner().options.value_len_max)?;
        self.add(table, key, Action::Put { value, expires_ms, expect: None })
    }

    /// Removes a key.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn remove<K: Key, V: Value>(&mut self, table: &Table<K, V, E>, key: &K) -> Result<(), Error> {
        self.add(table, key, Action::Remove { expect: None })
    }

    /// Makes the batch fail unless `expect` holds at this point.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn check<K: Key, V: Value>(&mut self, table: &Table<K, V, E>, key: &K, expect: Expect<V>) -> Result<(), Error> {
        self.add(table, key, Action::Check { expect: encode_expect(expect)? })
    }

    /// Changes a key by a closure that runs once, as [`Table::modify`]. It sees the earlier writes
    /// of the batch.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn modify<K: Key, V: Value + 'static>(
        &mut self,
        table: &Table<K, V, E>,
        key: &K,
        change: impl FnOnce(Option<Entry<V>>) -> Change<V> + Send + 'static,
    ) -> Result<(), Error> {
        let (action, _) = table.modification(|entry| (change(entry), ()));
        self.add(table, key, action)
    }

    /// Reads a key at the moment of the batch: after its writes that were added before. Reads of one key share the memory of its
    /// value, which stays encoded until [`BatchRead::entry`].
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// ```
    /// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let users: Table<String, u32, _> = store.create("users", TableOptions::default()).await?;
    /// let mut batch = store.batch();
    /// batch.put(&users, &"ann".to_owned(), &1)?;
    /// let read = batch.read(&users, &"ann".to_owned())?;
    /// batch.put(&users, &"ann".to_owned(), &2)?;
    /// batch.commit().await?;
    /// assert_eq!(read.entry()?.map(|entry| entry.value), Some(1));
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn read<K: Key, V: Value>(&mut self, table: &Table<K, V, E>, key: &K) -> Result<BatchRead<V>, Error> {
        let slot = Arc::new(Mutex::new(None));
        let of_caller = slot.clone();
        let keep = move |record: Option<&Record>| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(record.cloned());
            Ok(Next::Keep)
        };
        self.add(table, key, Action::Modify(Mutex::new(Some(Box::new(keep)))))?;
        Ok(BatchRead { slot: of_caller, value: PhantomData })
    }

    /// The number of operations in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// The bytes of its keys and values.
    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Applies all or nothing, in the order in which they were added, and returns the version of each key. One batch is
    /// one moment: no read and no other write comes between.
    ///
    /// # Errors
    /// [`Refusal::Conflict`] of the first check that does not hold; the three cases of [`Error`], for the whole batch.
    pub async fn commit(self) -> Result<Vec<Version>, Error> {
        let deadline = self.store.inner().deadline();
        self.commit_until(deadline).await
    }

    async fn commit_until(self, deadline: Instant) -> Result<Vec<Version>, Error> {
        let len_max = self.store.inner().options.queue_bytes_max;
        if self.bytes > len_max {
            return Err(Refusal::TooLong { part: "batch", len: self.bytes, len_max }.into());
        }
        let map = self.store.inner().map(deadline).await?;
        let partitions = partitions(&map, &self.writes);
        if let [partition] = &partitions[..] {
            let reply = partition.write(group(Action::All(self.writes)), deadline).await?;
            return Ok(reply
                .parts
                .into_iter()
                .map(|part| part.map(|reply| reply.version))
                .collect::<Result<_, _>>()?);
        }
        let place = |write: &Write| {
            let index = map.of(&write.table, &write.key).index();
            partitions.iter().position(|known| known.index() == index)
        };
        let writes: Vec<(usize, Write)> =
            self.writes.into_iter().filter_map(|write| Some((place(&write)?, write))).collect();
        let replies = commit_all(partitions, writes, deadline).await?;
        Ok(replies.into_iter().map(|reply| reply.version).collect())
    }

    /// Applies each write by itself, and returns the version or error of each: cheaper than as many
    /// single writes, with the same guarantees. Writes of one key keep their order; others may be
    /// seen in any.
    ///
    /// ```
    /// use dapple_store::{Expect, Memory, Store, StoreOptions, Table, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await?;
    /// let mut batch = store.batch();
    /// for key in 0..1000 {
    ///     batch.put(&table, &key, &0)?;
    /// }
    /// batch.check(&table, &1, Expect::Absent)?;
    /// let results = batch.commit_each().await;
    /// assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1000);
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn commit_each(self) -> Vec<Result<Version, Error>> {
        let deadline = self.store.inner().deadline();
        let len = self.writes.len();
        let map = match self.store.inner().map(deadline).await {
            Ok(map) => map,
            Err(error) => return vec![Err(error); len],
        };
        let partitions = partitions(&map, &self.writes);
        let mut parts: Vec<(Vec<usize>, Vec<Write>)> = partitions.iter().map(|_| Default::default()).collect();
        for (at, write) in self.writes.into_iter().enumerate() {
            let index = map.of(&write.table, &write.key).index();
            if let Some(place) = partitions.iter().position(|known| known.index() == index) {
                parts[place].0.push(at);
                parts[place].1.push(write);
            }
        }
        let writes = partitions.iter().zip(parts).map(|(partition, (places, writes))| async move {
            (places, partition.write(group(Action::Each(writes)), deadline).await)
        });
        let mut results = vec![Ok(Version(0)); len];
        for (places, reply) in join_all(writes).await {
            match reply {
                Ok(reply) => {
                    for (at, part) in places.into_iter().zip(reply.parts) {
                        results[at] = part.map(|reply| reply.version).map_err(Error::from);
                    }
                }
                Err(error) => places.into_iter().for_each(|at| results[at] = Err(error.clone())),
            }
        }
        results
    }

    fn add<K: Key, V: Value>(&mut self, table: &Table<K, V, E>, key: &K, action: Action) -> Result<(), Error> {
        let write = self.prepared(table, key, action)?;
        self.bytes += write.len();
        self.writes.push(write);
        Ok(())
    }

    fn prepared<K: Key, V: Value>(&self, table: &Table<K, V, E>, key: &K, action: Action) -> Result<Write, Error> {
        if !table.is_of(&self.store) {
            return Err(Refusal::Unsupported("a batch takes tables of its own store only".to_owned()).into());
        }
        let key = table.key(key)?;
        Ok(table.prepared(key, action))
    }
}

impl<E: Transactions> Transaction<E> {
    /// The value of a key: written by this transaction, or from the table.
    ///
    /// # Errors
    /// As [`Table::get`]; the table belongs to another store.
    pub async fn get<K: Key, V: Value>(&self, table: &Table<K, V, E>, key: &K) -> Result<Option<V>, Error> {
        let place = (table.info().id, table.key(key)?);
        if let Some(own) = self.work().own.get(&place) {
            return Ok(own.as_ref().map(|bytes| codec::decode(bytes)).transpose()?);
        }
        let found = table.get_versioned(key, crate::Read::Linearizable).await?;
        let expect = found.as_ref().map_or(Expect::Absent, |found| Expect::Version(found.version));
        let mut work = self.work();
        // The first version counts: if a second read finds another version, the commit is refused.
        if !work.reads.contains_key(&place) {
            let check = work.batch.prepared(table, key, Action::Check { expect })?;
            work.reads.insert(place, check);
        }
        Ok(found.map(|found| found.value))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn put<K: Key, V: Value>(&self, table: &Table<K, V, E>, key: &K, value: &V) -> Result<(), Error> {
        let mut work = self.work();
        work.batch.put(table, key, value)?;
        work.own.insert((table.info().id, table.key(key)?), Some(codec::encode(value)?));
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// As [`Batch::put`].
    pub fn remove<K: Key, V: Value>(&self, table: &Table<K, V, E>, key: &K) -> Result<(), Error> {
        let mut work = self.work();
        work.batch.remove(table, key)?;
        work.own.insert((table.info().id, table.key(key)?), None);
        Ok(())
    }

    // If the caller's types panic while they are encoded, all entries are still whole.
    fn work(&self) -> MutexGuard<'_, Work<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The whole state of the attempt; clones that the body kept start empty, and are never
    /// committed.
    fn take(self, store: &Store<E>) -> Work<E> {
        let empty = Work { batch: store.batch(), reads: HashMap::default(), own: HashMap::default() };
        std::mem::replace(&mut self.work(), empty)
    }
}

impl<E: Transactions> Work<E> {
    async fn commit(mut self, deadline: Instant) -> Result<(), Error> {
        let mut writes: Vec<Write> = self.reads.into_values().collect();
        writes.append(&mut self.batch.writes);
        self.batch.writes = writes;
        self.batch.commit_until(deadline).await.map(drop)
    }
}

/// The partitions of writes, each once, in the order of their indices.
fn partitions<P: Partition>(map: &Map<P>, writes: &[Write]) -> Vec<PartitionHandle<P>> {
    let mut partitions: Vec<PartitionHandle<P>> = Vec::new();
    for write in writes {
        let partition = map.of(&write.table, &write.key);
        if !partitions.iter().any(|known| known.index() == partition.index()) {
            partitions.push(partition.clone());
        }
    }
    partitions.sort_by_key(PartitionHandle::index);
    partitions
}

/// A write that represents several.
fn group(action: Action) -> Write {
    Write::new(&TableInfo::own(), Bytes::new(), action)
}

/// A type of keys.
pub trait Key: Serialize + DeserializeOwned {}

impl<T: Serialize + DeserializeOwned> Key for T {}

/// A type of values.
pub trait Value: Serialize + DeserializeOwned {}

impl<T: Serialize + DeserializeOwned> Value for T {}
