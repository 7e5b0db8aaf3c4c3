//! Batches and transactions, and the state after a crash in the middle of one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_store::engine::{
    Change, Engine, Entry, Failure, KeyRange, MemoryPartition, Partition, Place, TableId, Transactions,
};
use dapple_store::{Durability, Error, Expect, Memory, Refusal, Store, StoreOptions, Table, TableOptions};

use crate::support::{in_memory, on_disk, options, run};

#[cfg(feature = "fjall")]
async fn on_fjall(directory: &tempfile::TempDir) -> Store<dapple_store::Fjall> {
    let engine = dapple_store::Fjall::new(directory.path().join("fjall"));
    Store::open(engine, options(3)).await.unwrap()
}

async fn all_or_nothing<E: Transactions>(store: Store<E>) {
    let table: Table<u32, u32, E> = store.create("t", TableOptions::default()).await.unwrap();
    let mut batch = store.batch();
    for key in 0..20 {
        batch.put(&table, &key, &1).unwrap();
    }
    let versions = batch.commit().await.unwrap();
    assert_eq!(table.get_versioned(&7, Default::default()).await.unwrap().unwrap().version, versions[7]);

    for checked in [3, 17] {
        let mut batch = store.batch();
        for key in 0..20 {
            batch.put(&table, &key, &2).unwrap();
        }
        batch.check(&table, &checked, Expect::Absent).unwrap();
        assert!(matches!(batch.commit().await, Err(Error::NotApplied(Refusal::Conflict { .. }))));
    }
    // The same in one partition, with others that succeed.
    let mut refused = store.batch();
    refused.put(&table, &3, &2).unwrap();
    refused.remove(&table, &3).unwrap();
    refused.check(&table, &3, Expect::Value(1)).unwrap();
    assert_eq!(refused.commit().await, Err(Refusal::Conflict { current: None }.into()));
    for key in 0..20 {
        assert_eq!(table.get(&key).await.unwrap(), Some(1), "key {key}");
    }
    assert_eq!(store.batch().commit().await, Ok(Vec::new()));
    store.destroy("t").await.unwrap();
    let mut batch = store.batch();
    batch.put(&table, &1, &1).unwrap();
    batch.put(&table, &2, &1).unwrap();
    assert_eq!(batch.commit().await, Err(Refusal::Destroyed("t".into()).into()));
}

#[test]
fn a_batch_is_applied_all_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        all_or_nothing(in_memory().await).await;
        all_or_nothing(on_disk(&directory).await).await;
        #[cfg(feature = "fjall")]
        all_or_nothing(on_fjall(&directory).await).await;
    });
}

#[test]
fn a_table_of_another_store_is_refused() {
    run(async {
        let (one, other) = (in_memory().await, in_memory().await);
        let table: Table<u32, u32, _> = other.create("t", TableOptions::default()).await.unwrap();
        let refused = one.batch().put(&table, &1, &1);
        assert!(matches!(refused, Err(Error::NotApplied(Refusal::Unsupported(_)))), "{refused:?}");
    });
}

const ACCOUNTS: u32 = 12;

/// Moves money between accounts from many tasks while others sum up all accounts.
async fn bank<E: Transactions>(store: Store<E>, rounds: u32) {
    let accounts: Table<u32, u64, E> = store.create("accounts", TableOptions::default()).await.unwrap();
    for account in 0..ACCOUNTS {
        accounts.put(&account, &100).await.unwrap();
    }
    let tasks: Vec<_> = (0..6)
        .map(|task| {
            let (store, accounts) = (store.clone(), accounts.clone());
            dapple_sched::Color::new().spawn(async move {
                let accounts = &accounts;
                for round in 0..rounds {
                    let (from, to) = ((task * 5 + round) % ACCOUNTS, (task + round * 7 + 1) % ACCOUNTS);
                    if task < 2 {
                        let total = store
                            .transaction(|tx| async move {
                                let mut total = 0;
                                for account in 0..ACCOUNTS {
                                    total += tx.get(accounts, &account).await?.unwrap_or(0);
                                }
                                Ok(total)
                            })
                            .await;
                        assert_eq!(total, Ok(u64::from(ACCOUNTS) * 100));
                    } else if from != to {
                        let move_one = store.transaction(|tx| async move {
                            let (rich, poor) = (tx.get(accounts, &from).await?, tx.get(accounts, &to).await?);
                            let Some(rest) = rich.unwrap_or(0).checked_sub(7) else { return Ok(()) };
                            tx.put(accounts, &from, &rest)?;
                            tx.put(accounts, &to, &(poor.unwrap_or(0) + 7))
                        });
                        move_one.await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut total = 0;
    for account in 0..ACCOUNTS {
        total += accounts.get(&account).await.unwrap().unwrap();
    }
    assert_eq!(total, u64::from(ACCOUNTS) * 100);
}

#[test]
fn concurrent_transactions_move_money_and_lose_none() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        bank(in_memory().await, 30).await;
        bank(on_disk(&directory).await, 5).await;
        #[cfg(feature = "fjall")]
        bank(on_fjall(&directory).await, 5).await;
    });
}

/// Readers of single keys never see a later write of a batch without the earlier one.
#[test]
fn no_reader_sees_half_of_a_batch() {
    run(async {
        let store = in_memory().await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let writer = {
            let (store, table) = (store.clone(), table.clone());
            dapple_sched::Color::new().spawn(async move {
                for round in 1..=300 {
                    let mut batch = store.batch();
                    for key in 0..8 {
                        batch.put(&table, &key, &round).unwrap();
                    }
                    batch.commit().await.unwrap();
                }
            })
        };
        let mut last = 0;
        while last < 300 {
            for key in [0, 7, 3, 5, 1, 6, 2, 4] {
                let now = table.get(&key).await.unwrap().unwrap_or(0);
                assert!(now >= last, "key {key} has {now} after another had {last}");
                last = now;
            }
        }
        writer.await.unwrap();
    });
}

/// Memory that outlives its store, and stops after some commits: the process crashes.
#[derive(Clone, Default)]
pub(crate) struct Crashing {
    pub(crate) partitions: Arc<Mutex<HashMap<String, Arc<MemoryPartition>>>>,
    pub(crate) commits_left: Arc<AtomicI64>,
    /// Whether the commit in which it crashes is in the file.
    pub(crate) keeps_last: bool,
}

pub(crate) struct CrashingPartition {
    memory: Arc<MemoryPartition>,
    engine: Crashing,
}

impl Engine for Crashing {
    type Partition = CrashingPartition;
    const DURABILITIES: &'static [Durability] = &[Durability::Synced];

    fn open(&self, place: Place) -> Result<CrashingPartition, Failure> {
        let mut partitions = self.partitions.lock().unwrap();
        let memory = partitions.entry(format!("{place:?}")).or_insert_with(|| Arc::new(Memory.open(place).unwrap()));
        Ok(CrashingPartition { memory: memory.clone(), engine: self.clone() })
    }
}

impl Transactions for Crashing {}

impl Partition for CrashingPartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.memory.get(table, key)
    }

    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure> {
        self.memory.scan(table, range, limit)
    }

    fn len(&self, table: TableId) -> Result<u64, Failure> {
        self.memory.len(table)
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        self.memory.tables()
    }

    fn commit(&self, changes: &[Change]) -> Result<(), Failure> {
        match self.engine.commits_left.fetch_sub(1, Ordering::Relaxed) {
            1.. => self.memory.commit(changes),
            0 if self.engine.keeps_last => {
                self.memory.commit(changes)?;
                Err(self.corrupt("a planted crash"))
            }
            _ => Err(self.corrupt("a planted crash")),
        }
    }

    fn recover(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn name(&self) -> String {
        "crashing".to_owned()
    }

    fn verify(&self) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn a_crash_at_any_commit_of_a_batch_leaves_all_or_nothing() {
    run(async {
        for crash_at in 0..5 {
            for keeps_last in [false, true] {
                crash(crash_at, keeps_last, 0).await;
                // The record of the commit has several keys.
                crash(crash_at, keeps_last, 300_000).await;
            }
        }
    });
}

async fn crash(crash_at: i64, keeps_last: bool, padding: usize) {
    const KEYS: u32 = 16;
    let engine = Crashing { keeps_last, ..Crashing::default() };
    engine.commits_left.store(i64::MAX, Ordering::Relaxed);
    let mut short = options(3);
    short.limit = Duration::from_secs(2);
    let store = Store::open(engine.clone(), short).await.unwrap();
    let table: Table<u32, (u32, String), _> = store.create("t", TableOptions::default()).await.unwrap();
    let padded = |value: u32| (value, " ".repeat(padding));
    let write = async |value: u32| {
        let mut batch = store.batch();
        (0..KEYS).for_each(|key| batch.put(&table, &key, &padded(value)).unwrap());
        batch.commit().await
    };
    write(1).await.unwrap();
    engine.commits_left.store(crash_at, Ordering::Relaxed);
    let result = write(2).await;
    // The store that continues with its own state does not show half of a transaction either.
    let mut seen: Option<u32> = None;
    for key in 0..KEYS {
        if let Ok(value) = table.get(&key).await {
            let value = value.unwrap().0;
            assert_eq!(*seen.get_or_insert(value), value, "crash at {crash_at}, key {key}");
        }
    }
    engine.commits_left.store(i64::MAX, Ordering::Relaxed);
    let store = Store::open(engine, StoreOptions::default()).await.unwrap();
    let table: Table<u32, (u32, String), _> = store.table("t").await.unwrap();
    let first = table.get(&0).await.unwrap().unwrap().0;
    for key in 0..KEYS {
        assert!(
            table.get(&key).await.unwrap() == Some(padded(first)),
            "crash at {crash_at}, keeps {keeps_last}, key {key}"
        );
    }
    match result {
        Ok(_) => assert_eq!((first, crash_at >= 3), (2, true)),
        Err(Error::Unknown { .. }) => assert!(crash_at < 3),
        Err(error) => panic!("{error}"),
    }
    // Recovered writes are not applied again over newer values.
    table.put(&5, &padded(9)).await.unwrap();
    drop(table);
    drop(store);
}
