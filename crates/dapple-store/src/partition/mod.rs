//! A partition: a color, an engine's partition, and the write combiner between them.

mod batch;
mod cache;
mod history;
mod hot;
mod log;
mod state;
mod transaction;

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use dapple_io::blocking::{BlockingError, spawn_blocking, try_spawn_blocking};
use dapple_io::time::{Instant, sleep, timeout, timeout_at};
use dapple_sched::Colored;
use dapple_sync::sync::{Notify, oneshot};
use dapple_tower::Reason;

use crate::engine::{Failure, Partition, TableId};
use crate::error::{Error, OperationId, Outcome, Refusal, unavailable};
use crate::record::Record;
use crate::table_info::TableInfo;
use crate::{PartitionStats, StoreOptions};
use batch::{Progress, Uncommitted};
use hot::HotKeys;
use state::{Abandoned, Answer, Grant, Joined, Keys, Miss, State, Taken, Turn};

pub(crate) use batch::{Action, Next, OWN, Reply, Write, put_version};
pub(crate) use history::{Event, Lagged};
pub(crate) use hot::Usage;
pub(crate) use log::{Ends, ends as log_ends, entries as log_entries};
pub(crate) use transaction::{commit_all, finish_transactions};

pub(crate) struct PartitionHandle<P: Partition> {
    inner: Arc<Inner<P>>,
}

struct Inner<P: Partition> {
    /// Unique among all partitions of the store.
    index: u32,
    /// `None` only during the drop.
    engine: Option<Arc<P>>,
    /// Whether other partitions have taken its place.
    is_retired: AtomicBool,
    state: Colored<State>,
    options: Arc<StoreOptions>,
    progress: Mutex<Progress>,
    hot: HotKeys,
}

/// A partition that is held. Dropped, it is released unchanged.
pub(crate) struct Held(Grant);

impl Held {
    /// Releases it so that no operation can use it: neither reads nor writes are answered until the
    /// store is reopened.
    pub(crate) fn stop(self, failure: Failure) {
        // Only a runtime that shuts down has dropped the combiner.
        let _ = self.0.done.send(Joined::Stopped(failure));
    }
}

impl<P: Partition> Clone for PartitionHandle<P> {
    fn clone(&self) -> Self {
        PartitionHandle { inner: self.inner.clone() }
    }
}

impl<P: Partition> PartitionHandle<P> {
    /// Takes over an open partition. Blocks.
    pub(crate) fn new(index: u32, engine: Arc<P>, options: &Arc<StoreOptions>) -> Result<Self, Failure> {
        let version = batch::stored_version(&*engine)?;
        let progress = Mutex::new(Progress { version, finished: Vec::new() });
        let state = Colored::new(State::new(options.cache_bytes, version));
        let (engine, is_retired, options) = (Some(engine), AtomicBool::new(false), options.clone());
        let inner = Inner { index, engine, is_retired, state, options, progress, hot: HotKeys::new() };
        Ok(PartitionHandle { inner: Arc::new(inner) })
    }

    /// Its number, unique among all partitions of the store.
    pub(crate) fn index(&self) -> u32 {
        self.inner.index
    }

    /// Notes that other partitions have taken its place. Its files are closed in the blocking pool.
    pub(crate) fn retire(&self) {
        // Relaxed: the count of handles orders it before the drop.
        self.inner.is_retired.store(true, Relaxed);
    }

    pub(crate) fn engine(&self) -> &P {
        self.inner.engine()
    }

    /// Reads one record. A record that has expired is returned as well.
    pub(crate) async fn read(&self, table: TableId, key: &Bytes, deadline: Instant) -> Result<Option<Record>, Error> {
        self.check_owned()?;
        self.inner.hot.used(table, key);
        let batches = loop {
            match self.inner.state.read(|state| state.lookup(table, key)).await {
                Ok(record) => return Ok(Some(record)),
                Err(Miss::Absent { batches }) => break batches,
                Err(Miss::Joined) => self.barrier(deadline).await?,
            }
        };
        let wanted = key.clone();
        let record = self.call(deadline, move |engine| load(engine, table, &wanted)).await?;
        if let Some(record) = record.clone() {
            self.inner.state.with(|state| state.fill(table, key.clone(), record, batches)).await;
        }
        Ok(record)
    }

    /// Reads several records with one message, and at most one call of the engine for each [`KEYS_PER_CALL`] of them.
    /// The results have the order of `keys`; records that have expired are returned as well.
    ///
    /// Each record is the newest one at some moment of the call; they need not all be of one moment.
    pub(crate) async fn read_many(
        &self,
        table: TableId,
        keys: Vec<Bytes>,
        deadline: Instant,
    ) -> Result<Vec<Option<Record>>, Error> {
        self.check_owned()?;
        keys.iter().for_each(|key| self.inner.hot.used(table, key));
        let (mut records, batches) = loop {
            match self.inner.state.read(|state| state.lookup_many(table, &keys)).await {
                Some(found) => break found,
                None => self.barrier(deadline).await?,
            }
        };
        let absent: Vec<usize> = (0..keys.len()).filter(|place| records[*place].is_none()).collect();
        for places in absent.chunks(KEYS_PER_CALL) {
            let wanted: Vec<Bytes> = places.iter().map(|place| keys[*place].clone()).collect();
            let loaded = self.call(deadline, move |engine| load_many(engine, table, &wanted)).await?;
            let found = places.iter().zip(&loaded).filter_map(|(place, record)| Some((&keys[*place], record.clone()?)));
            let found: Vec<_> = found.collect();
            if !found.is_empty() {
                let fill = |state: &mut State| {
                    found.into_iter().for_each(|(key, record)| state.fill(table, key.clone(), record, batches));
                };
                self.inner.state.with(fill).await;
            }
            places.iter().zip(loaded).for_each(|(place, record)| records[*place] = record);
        }
        Ok(records)
    }

    /// Queues a write and waits until the commit with it is as durable as its table.
    pub(crate) async fn write(&self, write: Write, deadline: Instant) -> Result<Reply, Error> {
        self.inner.hot.used(write.table.id, &write.key);
        let (answer, mut reply) = oneshot::channel();
        let number = self
            .inner
            .state
            .with(|state| self.enqueue(state, |state, options| state.enqueue(write, answer, options)))
            .await?;
        let id = OperationId { partition: self.inner.index, number };
        match timeout_at(deadline, &mut reply).await {
            Ok(reply) => reply.unwrap_or_else(|_| Err(lost(id))),
            Err(_) => match self.inner.state.with(|state| state.abandon(number)).await {
                Abandoned::Queue => Err(unavailable(Reason::Deadline, Duration::ZERO)),
                Abandoned::Flight => Err(Error::Unknown { id, reason: "its deadline passed during the commit".into() }),
                Abandoned::Answered => reply.await.unwrap_or_else(|_| Err(lost(id))),
            },
        }
    }

    /// Waits until all that is queued now is done.
    async fn barrier(&self, deadline: Instant) -> Result<(), Error> {
        let write = Write::new(&TableInfo::own(), Bytes::new(), Action::Nothing);
        self.write(write, deadline).await.map(drop)
    }

    /// Waits until this partition is held: all earlier operations are done, and no other operation
    /// reads or writes it before the result is dropped.
    pub(crate) async fn hold(&self, deadline: Instant) -> Result<Held, Error> {
        Ok(Held(self.join(Vec::new(), deadline).await?))
    }

    /// Makes all watchers of this partition check again.
    pub(crate) async fn wake_watchers(&self) {
        self.inner.state.with(|state| state.history.wake()).await;
    }

    /// Queues a transaction that reads or changes `keys`, and waits until it has this partition.
    async fn join(&self, keys: Keys, deadline: Instant) -> Result<Grant, Error> {
        keys.iter().for_each(|(table, key)| self.inner.hot.used(*table, key));
        let (granted, grant) = oneshot::channel();
        self.inner
            .state
            .with(|state| self.enqueue(state, |state, options| state.enqueue_join(keys, granted, options)))
            .await?;
        match timeout_at(deadline, grant).await {
            Ok(grant) => grant.map_err(|_| unavailable(Reason::Stopping, Duration::ZERO)),
            Err(_) => Err(unavailable(Reason::Deadline, Duration::ZERO)),
        }
    }

    /// The outcome of an abandoned write, after all operations that were queued before the
    /// question.
    pub(crate) async fn outcome(&self, id: OperationId, deadline: Instant) -> Result<Outcome, Error> {
        match self.barrier(deadline).await {
            Ok(()) | Err(Error::Unavailable(_)) => Ok(self.inner.state.read(|state| state.outcome(id.number)).await),
            Err(error) => Err(error),
        }
    }

    /// Has `watcher` notified after each commit, as long as another reference to it exists.
    pub(crate) async fn add_watcher(&self, watcher: Arc<Notify>) {
        self.inner.state.with(|state| state.history.add_watcher(watcher)).await;
    }

    pub(crate) async fn stats(&self) -> PartitionStats {
        let name = self.engine().name();
        let read = |state: &State| PartitionStats {
            name,
            queue_len: state.queue_len(),
            version: state.history.end(),
            is_stopped: state.check_running().is_err(),
        };
        self.inner.state.read(read).await
    }

    /// The operations of the last minutes, and those with keys of this table.
    pub(crate) fn usage(&self, table: TableId) -> Usage {
        self.inner.hot.of_table(table)
    }

    /// Waits until another process may have it.
    pub(crate) async fn lost(&self) -> Failure {
        if !self.engine().may_be_lost() {
            return pending().await;
        }
        loop {
            match self.engine().check_owned() {
                Ok(()) => sleep(LOOK_EVERY).await,
                Err(failure) => return failure,
            }
        }
    }

    /// Waits for a change that a watcher has to look at. Returns too early where the partition may be lost.
    pub(crate) async fn changed(&self, watcher: &Notify) {
        if self.engine().may_be_lost() {
            let _ = timeout(LOOK_EVERY, watcher.notified()).await;
        } else {
            watcher.notified().await;
        }
    }

    /// Refuses if the partition stopped after an error.
    pub(crate) async fn check_running(&self) -> Result<(), Error> {
        self.check_owned()?;
        self.inner.state.read(|state| state.check_running()).await
    }

    /// The version of the last commit.
    pub(crate) async fn history_end(&self) -> u64 {
        self.inner.state.read(|state| state.history.end()).await
    }

    /// The first `limit` changes of a table, or of all, after `version`, and the version up to which they are complete.
    pub(crate) async fn changes_after(
        &self,
        version: u64,
        limit: usize,
        table: Option<TableId>,
    ) -> Result<Result<(Vec<Event>, u64), Lagged>, Error> {
        self.check_owned()?;
        let is_wanted = |event: &Event| table.is_none_or(|table| table == event.table);
        let read = |state: &State| {
            let found = state.history.after(version, limit, is_wanted);
            if matches!(&found, Ok((events, _)) if events.is_empty()) {
                state.check_running()?
            }
            Ok(found)
        };
        self.inner.state.read(read).await
    }

    /// Memory holds the present state only while no other process can change the partition.
    fn check_owned(&self) -> Result<(), Error> {
        self.engine().check_owned().map_err(|failure| Refusal::Engine(failure).into())
    }

    /// Calls the engine in the blocking pool, for an operation that changes nothing.
    pub(crate) async fn call<T, F>(&self, deadline: Instant, f: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&P) -> Result<T, Failure> + Send + 'static,
    {
        let engine = self.inner.engine().clone();
        let call =
            try_spawn_blocking(move || f(&engine)).map_err(|_| unavailable(Reason::Busy, Duration::from_millis(10)))?;
        match timeout_at(deadline, call).await {
            Ok(Ok(result)) => result.map_err(|failure| Refusal::Engine(failure).into()),
            Ok(Err(error)) => Err(Refusal::Engine(self.failure_of(error)).into()),
            Err(_) => Err(unavailable(Reason::Deadline, Duration::ZERO)),
        }
    }

    fn enqueue(
        &self,
        state: &mut State,
        queue: impl FnOnce(&mut State, &StoreOptions) -> Result<u64, Error>,
    ) -> Result<u64, Error> {
        let number = queue(state, &self.inner.options)?;
        if !state.combining {
            state.combining = true;
            drop(self.inner.state.color().spawn(self.clone().combine()));
        }
        Ok(number)
    }

    /// Commits batch after batch until nothing is queued.
    async fn combine(self) {
        loop {
            self.gather().await;
            let Some(turn) = self.inner.state.with(|state| state.take_turn()).await else { return };
            let Taken { writes, mut known, mut callers } = match turn {
                Turn::Batch(taken) => taken,
                Turn::Join { number, keys, end } => {
                    // A grant that was dropped has changed nothing.
                    let end = end.await.unwrap_or(Joined::Unchanged);
                    let options = &self.inner.options;
                    self.inner.state.with(|state| state.finish_join(number, &keys, end, options)).await;
                    continue;
                }
            };
            let writes = Arc::new(writes);
            let mut done = 0;
            while done < writes.len() {
                let (inner, of_call, known) = (self.inner.clone(), writes.clone(), std::mem::take(&mut known));
                let run = move || batch::run(&**inner.engine(), &mut inner.progress(), &of_call[done..], known);
                let left = writes.len() - done;
                let outcome = spawn_blocking(run).await.unwrap_or_else(|error| self.failed(error, left));
                let stops = match &outcome.committed {
                    Err(Uncommitted::Unknown(failure)) => Some(failure.clone()),
                    _ => None,
                };
                done += self.finish(&writes[done..], &mut callers, outcome).await;
                if let Some(failure) = stops {
                    let outcome = batch::Outcome::not_applied(writes.len() - done, failure);
                    done += self.finish(&writes[done..], &mut callers, outcome).await;
                }
            }
        }
    }

    /// Answers the first callers of a batch, and returns the number of their writes.
    async fn finish(&self, writes: &[Write], callers: &mut Vec<(u64, Answer)>, outcome: batch::Outcome) -> usize {
        let len = outcome.replies.len();
        let ran = callers.drain(..len).collect();
        let (index, options) = (self.inner.index, &self.inner.options);
        self.inner.state.with(|state| state.finish(index, ran, &writes[..len], outcome, options)).await;
        len
    }

    /// Lets the callers that were just answered queue their next writes, as long as more of them do
    /// so. Otherwise the first write would get a commit of its own, and all others would wait for
    /// it.
    async fn gather(&self) {
        let mut len = 0;
        for _ in 0..GATHER_TURNS {
            dapple_sched::yield_now().await;
            let now = self.inner.state.read(|state| state.queue_len()).await;
            if now > 0 && now == len {
                return;
            }
            len = now;
        }
    }

    /// The outcome of a batch if the engine's call gave none.
    fn failed(&self, error: BlockingError, writes: usize) -> batch::Outcome {
        let reply = Reply::new(None, 0);
        batch::Outcome {
            replies: vec![Ok(reply); writes],
            changed: Default::default(),
            committed: Err(batch::Uncommitted::Unknown(self.failure_of(error))),
        }
    }

    fn failure_of(&self, error: BlockingError) -> Failure {
        let file = format!("partition {}", self.inner.index);
        match error {
            // An engine that trips over its own file.
            BlockingError::Panicked(detail) => Failure::Corrupt { file, detail },
            other => Failure::Io { file, detail: other.to_string() },
        }
    }
}

/// How often it is looked whether a partition is lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The most turns of the scheduler for which a commit waits for more writes.
const GATHER_TURNS: usize = 8;
/// The most keys that one call of the engine reads, so that other calls have their turn in the blocking pool.
const KEYS_PER_CALL: usize = 1024;

impl<P: Partition> Inner<P> {
    fn engine(&self) -> &Arc<P> {
        self.engine.as_ref().expect("a partition has its engine until it is dropped")
    }

    /// A panic in the engine stops the partition, so the progress that it may leave behind is never used.
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(|error| error.into_inner())
    }
}

impl<P: Partition> Drop for Inner<P> {
    /// Closing an engine's files may take seconds, and the last handle of a partition may go on a worker while the store
    /// serves. The partitions of a store that ends are closed at once, so the next open waits only for calls in flight.
    fn drop(&mut self) {
        let engine = self.engine.take();
        if self.is_retired.load(Relaxed) {
            // A runtime that ends, or a full pool, drops it here.
            drop(try_spawn_blocking(move || drop(engine)));
        }
    }
}

/// Reads and checks one record. Blocks.
pub(crate) fn load<P: Partition>(engine: &P, table: TableId, key: &[u8]) -> Result<Option<Record>, Failure> {
    engine.get(table, key)?.map(|bytes| checked(engine, table, key, bytes)).transpose()
}

/// Reads and checks several records. Blocks.
fn load_many<P: Partition>(engine: &P, table: TableId, keys: &[Bytes]) -> Result<Vec<Option<Record>>, Failure> {
    let found = engine.get_many(table, keys)?;
    let check = |(key, bytes): (&Bytes, Option<Vec<u8>>)| bytes.map(|bytes| checked(engine, table, key, bytes));
    keys.iter().zip(found).map(check).map(Option::transpose).collect()
}

fn checked<P: Partition>(engine: &P, table: TableId, key: &[u8], bytes: Vec<u8>) -> Result<Record, Failure> {
    match Record::decode(table, key, bytes) {
        Some(record) => Ok(record),
        None => Err(engine.corrupt("a record does not have its checksum")),
    }
}

fn lost(id: OperationId) -> Error {
    Error::Unknown { id, reason: "the runtime shut down".to_owned() }
}
