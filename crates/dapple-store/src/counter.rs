//! Counters: one number with a name.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::engine::Engine;
use crate::error::Error;
use crate::partition::{Action, Write};
use crate::store::Store;
use crate::table_info::TableInfo;
use crate::{Kind, TableOptions, codec};

/// A number that tasks add to. Adds of many tasks share commits. Clones are handles to the same counter.
///
/// ```
/// use dapple_store::{Memory, Store, StoreOptions, TableOptions};
///
/// # let runtime = dapple_io::runtime_builder().build().unwrap();
/// # runtime.block_on(async {
/// let store = Store::open(Memory, StoreOptions::default()).await?;
/// let visits = store.create_counter("visits", TableOptions::default()).await?;
/// assert_eq!(visits.add(2).await?, 2);
/// assert_eq!(visits.add(-1).await?, 1);
/// assert_eq!(visits.get().await?, 1);
/// # Ok::<(), dapple_store::Error>(())
/// # }).unwrap();
/// ```
pub struct Counter<E: Engine> {
    store: Store<E>,
    info: Arc<TableInfo>,
}

impl<E: Engine> Clone for Counter<E> {
    fn clone(&self) -> Self {
        Counter { store: self.store.clone(), info: self.info.clone() }
    }
}

impl<E: Engine> fmt::Debug for Counter<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("name", &self.info.name).finish_non_exhaustive()
    }
}

impl<E: Engine> Store<E> {
    /// Creates a counter with the number 0.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn create_counter(&self, name: &str, options: TableOptions) -> Result<Counter<E>, Error> {
        let info = self.create_info(name, options, Kind::Counter).await?;
        Ok(Counter { store: self.clone(), info })
    }

    /// Opens a counter that [`create_counter`](Self::create_counter) made.
    ///
    /// # Errors
    /// [`Refusal::NoSuchTable`](crate::Refusal::NoSuchTable), [`Refusal::WrongKind`](crate::Refusal::WrongKind).
    pub async fn counter(&self, name: &str) -> Result<Counter<E>, Error> {
        let info = self.open_info(name, Kind::Counter).await?;
        Ok(Counter { store: self.clone(), info })
    }
}

impl<E: Engine> Counter<E> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Adds `by` and returns the sum. **Cancel safety:** if dropped while it waits, it adds
    /// nothing; if dropped later, it may add.
    ///
    /// # Errors
    /// [`Refusal::Overflow`](crate::Refusal::Overflow), and then nothing is added; the three cases of [`Error`].
    pub async fn add(&self, by: i64) -> Result<i64, Error> {
        self.info.check()?;
        let inner = self.store.inner();
        let write = Write::new(&self.info, Bytes::new(), Action::Increment { by });
        let deadline = inner.deadline();
        Ok(inner.map(deadline).await?.of(&self.info, b"").write(write, deadline).await?.number)
    }

    /// The number.
    ///
    /// # Errors
    /// The counter was destroyed; the engine cannot read; the time limit passed.
    pub async fn get(&self) -> Result<i64, Error> {
        self.info.check()?;
        let inner = self.store.inner();
        let deadline = inner.deadline();
        let map = inner.map(deadline).await?;
        let record = map.of(&self.info, b"").read(self.info.id, &Bytes::new(), deadline).await?;
        self.info.check()?;
        Ok(record.map_or(Ok(0), |record| codec::decode(&record.value))?)
    }
}
