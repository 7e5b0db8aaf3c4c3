//! Writes over large values: the values before them are read, and take memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use dapple_store::engine::{
    Change, Engine, Entry, Failure, KeyRange, MemoryPartition, Partition, Place, TableId, Transactions,
};
use dapple_store::{Durability, Error, Memory, Refusal, Store, Table, TableOptions};
use futures_util::future::join_all;

use crate::support::{options, run};

/// The engine in memory; it notes the most bytes that were read between two commits.
struct Noting(Arc<AtomicUsize>);

struct NotingPartition {
    inner: MemoryPartition,
    since_commit: AtomicUsize,
    most: Arc<AtomicUsize>,
}

impl Engine for Noting {
    type Partition = NotingPartition;
    const DURABILITIES: &'static [Durability] = Memory::DURABILITIES;

    fn open(&self, place: Place) -> Result<NotingPartition, Failure> {
        Ok(NotingPartition { inner: Memory.open(place)?, since_commit: AtomicUsize::new(0), most: self.0.clone() })
    }
}

impl Transactions for Noting {}

impl Partition for NotingPartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let found = self.inner.get(table, key)?;
        let len = found.as_ref().map_or(0, Vec::len);
        self.most.fetch_max(self.since_commit.fetch_add(len, SeqCst) + len, SeqCst);
        Ok(found)
    }

    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure> {
        self.inner.scan(table, range, limit)
    }

    fn len(&self, table: TableId) -> Result<u64, Failure> {
        self.inner.len(table)
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        self.inner.tables()
    }

    fn commit(&self, changes: &[Change]) -> Result<(), Failure> {
        self.since_commit.store(0, SeqCst);
        self.inner.commit(changes)
    }

    fn recover(&self) -> Result<(), Failure> {
        self.inner.recover()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn verify(&self) -> Result<(), Failure> {
        self.inner.verify()
    }
}

const LEN: usize = 4 << 20;
const KEYS: u32 = 80;

async fn filled(most: &Arc<AtomicUsize>) -> (Store<Noting>, Table<u32, Vec<u8>, Noting>) {
    let mut options = options(1);
    options.cache_bytes = 0;
    let store = Store::open(Noting(most.clone()), options).await.unwrap();
    let table: Table<u32, Vec<u8>, _> = store.create("t", TableOptions::default()).await.unwrap();
    for key in 0..KEYS {
        table.put(&key, &vec![7; LEN]).await.unwrap();
    }
    most.store(0, SeqCst);
    (store, table)
}

#[test]
fn many_writes_over_large_values_read_a_few_of_them_at_a_time() {
    let most = Arc::new(AtomicUsize::new(0));
    run(async {
        let (_store, table) = filled(&most).await;
        let writes = join_all((0..KEYS).map(|key| {
            let table = table.clone();
            async move { table.put(&key, &vec![key as u8]).await }
        }));
        for written in writes.await {
            assert_eq!(written.unwrap().previous.unwrap().value.len(), LEN);
        }
        assert!(most.load(SeqCst) <= 40 << 20, "{most:?}");
        for key in 0..KEYS {
            assert_eq!(table.get(&key).await.unwrap(), Some(vec![key as u8]));
        }
    });
}

#[test]
fn a_batch_over_more_values_than_memory_should_take_is_refused_as_a_whole() {
    let most = Arc::new(AtomicUsize::new(0));
    run(async {
        let (store, table) = filled(&most).await;
        let mut batch = store.batch();
        (0..KEYS).try_for_each(|key| batch.put(&table, &key, &Vec::new())).unwrap();
        let refused = batch.commit().await.map(drop).unwrap_err();
        assert!(matches!(refused, Error::NotApplied(Refusal::TooLong { .. })), "{refused:?}");
        assert!(most.load(SeqCst) <= 264 << 20, "{most:?}");
        for key in 0..KEYS {
            assert_eq!(table.get(&key).await.unwrap().unwrap().len(), LEN);
        }
    });
}
