//! Logs: entries that are appended at one end, read from any position, and trimmed at the other end.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use dapple_io::time::Instant;
use dapple_sync::sync::Notify;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::Engine;
use crate::error::{Error, Refusal};
use crate::partition::{Action, Write, log_ends, log_entries};
use crate::store::Store;
use crate::table::encode_value;
use crate::table_info::TableInfo;
use crate::{Kind, TableOptions, codec};

/// A log on an engine. Positions count entries from 0. Clones are handles to the same log.
///
/// A log is in one partition, so its entries have one order, and appends of many tasks share
/// commits. Every operation but the wait of a [`tail`](Self::tail) has the store's time limit.
/// **Cancel safety:** if an append is dropped while it still waits, it is not applied; if a commit
/// has it, it is.
///
/// ```
/// use dapple_store::{Log, Memory, Store, StoreOptions, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let log: Log<String, _> = store.create_log("events", TableOptions::default()).await?;
/// let position = log.append(&"started".to_owned()).await?;
/// let mut tail = log.tail(position);
/// assert_eq!(tail.next().await?, (0, "started".to_owned()));
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
pub struct Log<V, E: Engine> {
    store: Store<E>,
    info: Arc<TableInfo>,
    types: PhantomData<fn() -> V>,
}

/// The entries of a log that are there.
pub struct LogIter<V, E: Engine> {
    log: Log<V, E>,
    /// The position of the first of `ready`.
    position: u64,
    ready: VecDeque<Bytes>,
}

/// The entries of a log, including later ones.
pub struct Tail<V, E: Engine> {
    entries: LogIter<V, E>,
    /// `None` until the first wait; with the epoch of its partition's map.
    notify: Option<(u64, Arc<Notify>)>,
}

/// Entries are read this many at a time.
const PAGE: usize = 256;

impl<V, E: Engine> Clone for Log<V, E> {
    fn clone(&self) -> Self {
        Log { store: self.store.clone(), info: self.info.clone(), types: PhantomData }
    }
}

impl<V, E: Engine> fmt::Debug for Log<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("name", &self.info.name).finish_non_exhaustive()
    }
}

impl<V, E: Engine> fmt::Debug for LogIter<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogIter").field("position", &self.position).finish_non_exhaustive()
    }
}

impl<V, E: Engine> fmt::Debug for Tail<V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail").field("position", &self.entries.position).finish_non_exhaustive()
    }
}

impl<E: Engine> Store<E> {
    /// Creates a log.
    ///
    /// # Errors
    /// As [`create`](Self::create); [`expiry`](TableOptions::expiry) is refused.
    pub async fn create_log<V>(&self, name: &str, options: TableOptions) -> Result<Log<V, E>, Error>
    where
        V: Serialize + DeserializeOwned,
    {
        check_options(options)?;
        let info = self.create_info(name, options, Kind::Log).await?;
        Ok(Log { store: self.clone(), info, types: PhantomData })
    }

    /// Opens a log, or creates it with these options if there is none of this name.
    ///
    /// # Errors
    /// As [`table_or_create`](Self::table_or_create) and [`create_log`](Self::create_log).
    ///
    /// ```
    /// use dapple_store::{Log, Memory, Store, StoreOptions, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let events: Log<String, _> = store.log_or_create("events", TableOptions::default()).await?;
    /// events.append(&"started".to_owned()).await?;
    /// let same: Log<String, _> = store.log_or_create("events", TableOptions::default()).await?;
    /// assert_eq!(same.end().await?, 1);
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn log_or_create<V>(&self, name: &str, options: TableOptions) -> Result<Log<V, E>, Error>
    where
        V: Serialize + DeserializeOwned,
    {
        check_options(options)?;
        let info = self.open_or_create_info(name, options, Kind::Log).await?;
        Ok(Log { store: self.clone(), info, types: PhantomData })
    }

    /// Opens a log that [`create_log`](Self::create_log) made.
    ///
    /// # Errors
    /// [`Refusal::NoSuchTable`], [`Refusal::WrongKind`].
    pub async fn log<V>(&self, name: &str) -> Result<Log<V, E>, Error>
    where
        V: Serialize + DeserializeOwned,
    {
        let info = self.open_info(name, Kind::Log).await?;
        Ok(Log { store: self.clone(), info, types: PhantomData })
    }
}

fn check_options(options: TableOptions) -> Result<(), Refusal> {
    if options.expiry {
        return Err(Refusal::Unsupported("entries of a log do not expire; trim it".to_owned()));
    }
    Ok(())
}

impl<V, E> Log<V, E>
where
    V: Serialize + DeserializeOwned,
    E: Engine,
{
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Appends an entry and returns its position. It has the log's durability then.
    ///
    /// # Errors
    /// The three cases of [`Error`]; the entry is too long.
    pub async fn append(&self, entry: &V) -> Result<u64, Error> {
        self.append_all(std::slice::from_ref(entry)).await
    }

    /// Appends adjacent entries, all or none, and returns the position of the first.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn append_all(&self, entries: &[V]) -> Result<u64, Error> {
        let options = &self.store.inner().options;
        let encode = |entry| encode_value(entry, options.value_len_max);
        let values: Vec<Bytes> = entries.iter().map(encode).collect::<Result<_, _>>()?;
        let (len, len_max) = (values.iter().map(Bytes::len).sum(), options.queue_bytes_max);
        if len > len_max {
            return Err(Refusal::TooLong { part: "batch", len, len_max }.into());
        }
        self.write(Action::Append { values }).await
    }

    /// Removes the entries below `position`, and returns the first position that is left. It runs
    /// in steps, each of which is durable; a later entry is never removed before an earlier one.
    ///
    /// # Errors
    /// The three cases of [`Error`], for the step that failed.
    pub async fn trim(&self, position: u64) -> Result<u64, Error> {
        let wanted = position.min(self.end().await?);
        loop {
            let first = self.write(Action::Trim { to: wanted }).await?;
            if first >= wanted {
                return Ok(first);
            }
        }
    }

    /// The position of the first entry that is left.
    ///
    /// # Errors
    /// The log was destroyed; the engine cannot read; the time limit passed.
    pub async fn first(&self) -> Result<u64, Error> {
        Ok(self.ends().await?.first)
    }

    /// The position that the next entry will have.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub async fn end(&self) -> Result<u64, Error> {
        Ok(self.ends().await?.next)
    }

    /// The position of the first entry for which `is_before` is false, or the end, if the entries for which it is true come before
    /// all others: in a log of entries with growing times, the first entry of a time. It reads as many entries as the
    /// number of entries has binary digits.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    ///
    /// ```
    /// use dapple_store::{Log, Memory, Store, StoreOptions, TableOptions};
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let times: Log<u64, _> = store.create_log("times", TableOptions::default()).await?;
    /// times.append_all(&[10, 20, 20, 40]).await?;
    /// assert_eq!(times.partition_point(|time| *time < 20).await?, 1);
    /// assert_eq!(times.partition_point(|time| *time < 99).await?, 4);
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn partition_point(&self, mut is_before: impl FnMut(&V) -> bool) -> Result<u64, Error> {
        let ends = self.ends().await?;
        let (mut low, mut high) = (ends.first, ends.next);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.read(middle).next().await {
                Ok(Some((_, entry))) if is_before(&entry) => low = middle + 1,
                Ok(_) => high = middle,
                Err(Error::NotApplied(Refusal::Trimmed { first })) => low = first,
                Err(error) => return Err(error),
            }
        }
        Ok(low)
    }

    /// Reads the entries from `position` on, up to the last one that is there.
    #[must_use]
    pub fn read(&self, position: u64) -> LogIter<V, E> {
        LogIter { log: self.clone(), position, ready: VecDeque::new() }
    }

    /// Reads the entries from `position` on, then waits for each further one, without polling.
    #[must_use]
    pub fn tail(&self, position: u64) -> Tail<V, E> {
        Tail { entries: self.read(position), notify: None }
    }

    async fn ends(&self) -> Result<crate::partition::Ends, Error> {
        self.info.check()?;
        let id = self.info.id;
        let deadline = self.deadline();
        let map = self.store.inner().map(deadline).await?;
        map.of(&self.info, b"").call(deadline, move |engine| log_ends(engine, id)).await
    }

    async fn write(&self, action: Action) -> Result<u64, Error> {
        self.info.check()?;
        let deadline = self.deadline();
        let map = self.store.inner().map(deadline).await?;
        let write = Write::new(&self.info, Bytes::new(), action);
        let reply = map.of(&self.info, b"").write(write, deadline).await?;
        // Positions are numbers of entries.
        Ok(u64::try_from(reply.number).unwrap_or(0))
    }

    fn deadline(&self) -> Instant {
        self.store.inner().deadline()
    }
}

impl<V, E> LogIter<V, E>
where
    V: Serialize + DeserializeOwned,
    E: Engine,
{
    /// The next entry with its position; `None` if the log ends now. If asked again, it sees the
    /// entries appended since. **Cancel safety:** nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// [`Refusal::Trimmed`]; the next call continues at the first entry that is left. As
    /// [`Log::first`].
    pub async fn next(&mut self) -> Result<Option<(u64, V)>, Error> {
        self.log.info.check()?;
        if self.ready.is_empty() {
            let (id, from) = (self.log.info.id, self.position);
            let read = move |engine: &E::Partition| log_entries(engine, id, from, PAGE);
            let deadline = self.log.deadline();
            let map = self.log.store.inner().map(deadline).await?;
            match map.of(&self.log.info, b"").call(deadline, read).await? {
                Ok(values) => self.ready = values.into(),
                Err(first) => {
                    self.position = first;
                    return Err(Refusal::Trimmed { first }.into());
                }
            }
        }
        let Some(value) = self.ready.pop_front() else { return Ok(None) };
        let position = self.position;
        self.position += 1;
        Ok(Some((position, codec::decode(&value)?)))
    }
}

impl<V, E> Tail<V, E>
where
    V: Serialize + DeserializeOwned,
    E: Engine,
{
    /// The next entry with its position; waits for it without a limit. **Cancel safety:** nothing is lost if the future is
    /// dropped.
    ///
    /// # Errors
    /// [`Refusal::Trimmed`]; the next call continues at the first entry that is left. As
    /// [`Log::first`].
    pub async fn next(&mut self) -> Result<(u64, V), Error> {
        loop {
            if let Some(found) = self.entries.next().await? {
                return Ok(found);
            }
            let log = &self.entries.log;
            let inner = log.store.inner();
            match &self.notify {
                // An append between the check and this line leaves a permit, and so does a new map.
                Some((epoch, notify)) if *epoch == inner.epoch() => {
                    let partition = inner.map(log.deadline()).await?.of(&log.info, b"").clone();
                    partition.changed(notify).await;
                }
                _ => {
                    let notify = Arc::new(Notify::new());
                    let map = inner.map(log.deadline()).await?;
                    map.of(&log.info, b"").add_watcher(notify.clone()).await;
                    self.notify = Some((map.epoch, notify));
                }
            }
            let map = inner.map(log.deadline()).await?;
            map.of(&log.info, b"").check_running().await?;
        }
    }
}
