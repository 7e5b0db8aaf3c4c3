//! Loading many entries in the order of their keys.

use std::pin::{Pin, pin};

use bytes::Bytes;
use futures_util::future::join;
use futures_util::{Stream, StreamExt};

use crate::engine::Transactions;
use crate::error::{Error, Refusal};
use crate::table::OrderedTable;
use crate::transaction::{Batch, Key, Value};

/// A page has at most so many entries, or some bytes more than this.
const PAGE: usize = 4096;
const PAGE_BYTES: usize = 1 << 20;

impl<K: Key, V: Value, E: Transactions> OrderedTable<K, V, E> {
    /// Puts the entries of a stream with growing keys and returns their number.
    ///
    /// It gathers one page while it commits the one before, so it needs the memory of two pages of 4,096 entries or 1 MiB
    /// of values. Keys in order change fewer pages of a file than keys without an order. `progress` is called after each
    /// commit, with the number of entries that are as durable as the table. **Cancel safety:** entries of the page in a
    /// commit may be there or not, all before them are there, and none behind.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`] for a key that is not greater than the one before; those of [`Batch::commit_each`]. Entries
    /// of pages before stay, and some of the page that failed.
    ///
    /// ```
    /// use dapple_store::{Memory, OrderedTable, Store, StoreOptions, TableOptions};
    /// use futures_util::stream;
    ///
    /// # let runtime = dapple_io::runtime_builder().build().unwrap();
    /// # runtime.block_on(async {
    /// let store = Store::open(Memory, StoreOptions::default()).await?;
    /// let squares: OrderedTable<u64, u64, _> = store.create_ordered("squares", TableOptions::default()).await?;
    /// let loaded = squares.bulk_load(stream::iter((0..10_000).map(|n| (n, n * n))), |_| {}).await?;
    /// assert_eq!((loaded, squares.get(&99).await?), (10_000, Some(9801)));
    /// # Ok::<(), dapple_store::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn bulk_load(
        &self,
        entries: impl Stream<Item = (K, V)>,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, Error> {
        let mut entries = pin!(entries);
        let (mut loaded, mut last) = (0, None);
        let mut page = self.page(entries.as_mut(), &mut last).await;
        loop {
            let (batch, problem) = page;
            let len = batch.len() as u64;
            if problem.is_some() || len == 0 {
                commit(batch).await?;
                let Some(problem) = problem else { return Ok(loaded) };
                progress(loaded + len);
                return Err(problem);
            }
            let (committed, next) = join(commit(batch), self.page(entries.as_mut(), &mut last)).await;
            committed?;
            loaded += len;
            progress(loaded);
            page = next;
        }
    }

    /// Gathers a page; an error is about the entry behind its last one.
    async fn page(
        &self,
        mut entries: Pin<&mut impl Stream<Item = (K, V)>>,
        last: &mut Option<Bytes>,
    ) -> (Batch<E>, Option<Error>) {
        let mut batch = self.store().batch();
        while batch.len() < PAGE && batch.bytes_len() < PAGE_BYTES {
            let Some((key, value)) = entries.next().await else { break };
            match self.key(&key) {
                Ok(encoded) if last.as_ref().is_none_or(|last| *last < encoded) => *last = Some(encoded),
                Ok(_) => {
                    let text = "a bulk load takes each key once, in growing order".to_owned();
                    return (batch, Some(Refusal::Unsupported(text).into()));
                }
                Err(refusal) => return (batch, Some(refusal.into())),
            }
            if let Err(error) = batch.put(self, &key, &value) {
                return (batch, Some(error));
            }
        }
        (batch, None)
    }
}

/// Applies the puts of a page.
async fn commit<E: Transactions>(batch: Batch<E>) -> Result<(), Error> {
    batch.commit_each().await.into_iter().try_for_each(|result| result.map(drop))
}
