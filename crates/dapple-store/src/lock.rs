//! Locks: one holder at a time, and a number for each holder that tables check.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use dapple_io::time::{Instant, timeout, timeout_at};
use dapple_sched::Color;
use dapple_sync::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use dapple_tower::Reason;
use serde::{Deserialize, Serialize};

use crate::engine::Engine;
use crate::error::{Error, Refusal, unavailable};
use crate::partition::{Action, Write};
use crate::store::Store;
use crate::table_info::TableInfo;
use crate::{Kind, TableOptions, codec};

/// A lock with a name. Clones, and handles that others open, are the same lock.
///
/// Waiting costs no polling, and waiters get the lock in the order in which they came. The lock
/// ends with its holder: when the guard is dropped, when its lease ends, when the process ends.
/// Each holder has a greater [`Token`] than all before, also over restarts. If a table is
/// [guarded](crate::Table::guarded) by a token, it refuses writes once a later holder has the lock.
/// So a holder that paused for long cannot overwrite the writes of the next one.
///
/// ```
/// use std::time::Duration;
/// use dapple_store::{Memory, Store, StoreOptions, Table, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let users: Table<u32, u32, _> = store.create("users", TableOptions::default()).await?;
/// let lock = store.create_lock("editor", TableOptions::default()).await?;
/// let first = lock.acquire(Duration::from_secs(1)).await?;
/// let users_of_first = users.guarded(&lock, first.token())?;
/// users_of_first.put(&1, &1).await?;
/// drop(first);
/// let _second = lock.acquire(Duration::from_secs(1)).await?;
/// assert!(users_of_first.put(&1, &2).await.is_err());
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
pub struct Lock<E: Engine> {
    store: Store<E>,
    info: Arc<TableInfo>,
}

/// The number of one holder of a lock. It can be sent to others, which then write as that holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token(pub u64);

/// The lock, held. Dropped, it is free.
#[derive(Debug)]
pub struct LockGuard {
    token: Token,
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
    /// Dropped with the guard, so that the task of its lease ends.
    _lease: Option<oneshot::Sender<()>>,
}

/// The part of a lock that all of its handles share.
#[derive(Debug)]
pub(crate) struct LockState {
    turn: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// The greatest token that a holder has got.
    newest: AtomicU64,
}

/// The token that guards a write.
#[derive(Clone)]
pub(crate) struct Fence {
    lock: Arc<TableInfo>,
    token: Token,
}

impl Default for LockState {
    fn default() -> Self {
        LockState { turn: Arc::new(Semaphore::new(1)), waiting: AtomicUsize::new(0), newest: AtomicU64::new(0) }
    }
}

impl Fence {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        self.lock.check()?;
        let newest = Token(self.lock.lock.newest.load(SeqCst));
        if self.token == newest { Ok(()) } else { Err(Refusal::Fenced { token: self.token, newest }) }
    }
}

impl<E: Engine> Clone for Lock<E> {
    fn clone(&self) -> Self {
        Lock { store: self.store.clone(), info: self.info.clone() }
    }
}

impl<E: Engine> fmt::Debug for Lock<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", &self.info.name).finish_non_exhaustive()
    }
}

impl<E: Engine> Store<E> {
    /// Creates a lock. Its tokens have the durability of `options`.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_lock(&self, name: &str, options: TableOptions) -> Result<Lock<E>, Error> {
        let info = self.create_info(name, options, Kind::Lock).await?;
        Ok(Lock { store: self.clone(), info })
    }

    /// Opens a lock that [`create_lock`](Self::create_lock) made.
    ///
    /// # Errors
    /// [`Refusal::NoSuchTable`], [`Refusal::WrongKind`]; the last token cannot be read.
    pub async fn lock(&self, name: &str) -> Result<Lock<E>, Error> {
        let info = self.open_info(name, Kind::Lock).await?;
        let deadline = self.inner().deadline();
        let map = self.inner().map(deadline).await?;
        let record = map.of(&info, b"").read(info.id, &Bytes::new(), deadline).await?;
        drop(map);
        let token: i64 = record.map_or(Ok(0), |record| codec::decode(&record.value))?;
        info.lock.newest.fetch_max(token.unsigned_abs(), SeqCst);
        Ok(Lock { store: self.clone(), info })
    }
}

impl<E: Engine> Lock<E> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Waits at most `limit` for the lock, and holds it until the guard is dropped. Costs one commit.
    ///
    /// **Cancel safety:** a waiter that is dropped leaves the queue.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: the limit passed, or as many wait as the store's queues may hold. The errors of a write.
    pub async fn acquire(&self, limit: Duration) -> Result<LockGuard, Error> {
        let deadline = Instant::now() + limit;
        self.info.check()?;
        let state = &self.info.lock;
        let waiting = Waiting::new(&state.waiting);
        let len = waiting.len;
        if len > self.store.inner().options.queue_len_max {
            return Err(unavailable(Reason::Full { len }, Duration::from_millis(10)));
        }
        let permit = match timeout_at(deadline, state.turn.clone().acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(Refusal::Destroyed(self.info.name.clone()).into()),
            Err(_) => return Err(unavailable(Reason::Deadline, Duration::ZERO)),
        };
        let write = Write::new(&self.info, Bytes::new(), Action::Increment { by: 1 });
        let reply = self.store.inner().map(deadline).await?.of(&self.info, b"").write(write, deadline).await?;
        let token = Token(reply.number.unsigned_abs());
        state.newest.fetch_max(token.0, SeqCst);
        Ok(LockGuard { token, permit: Arc::new(Mutex::new(Some(permit))), _lease: None })
    }

    /// As [`acquire`](Self::acquire), but the lock is free again after `lease`, even if the guard
    /// still exists.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_for(&self, lease: Duration, limit: Duration) -> Result<LockGuard, Error> {
        let mut guard = self.acquire(limit).await?;
        let (ended, end) = oneshot::channel::<()>();
        let permit = guard.permit.clone();
        drop(Color::new().spawn(async move {
            // Ends early if the guard is dropped.
            let _ = timeout(lease, end).await;
            release(&permit);
        }));
        guard._lease = Some(ended);
        Ok(guard)
    }

    pub(crate) fn fence(&self, token: Token) -> Fence {
        Fence { lock: self.info.clone(), token }
    }

    pub(crate) fn is_of(&self, store: &Store<E>) -> bool {
        self.store.is_same(store)
    }
}

impl LockGuard {
    /// The number of this holder.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether its lease has not ended. The answer may change at any moment; only a table that is
    /// guarded by the token is safe.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        release(&self.permit);
    }
}

fn release(permit: &Mutex<Option<OwnedSemaphorePermit>>) {
    drop(permit.lock().unwrap_or_else(PoisonError::into_inner).take());
}

/// One waiter, counted.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    len: usize,
}

impl Waiting<'_> {
    fn new(count: &AtomicUsize) -> Waiting<'_> {
        Waiting { count, len: count.fetch_add(1, SeqCst) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, SeqCst);
    }
}
