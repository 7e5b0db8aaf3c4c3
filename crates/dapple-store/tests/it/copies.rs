//! Another number of partitions, and checkpoints, while others work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use dapple_sched::Color;
use dapple_store::engine::{
    Change, Engine, Entry, Failure, KeyRange, Partition, Place, RedbPartition, TableId, Transactions,
};
use dapple_store::{Durability, Error, Log, Memory, Redb, Refusal, Store, Table, TableOptions};

use crate::support::{in_memory, on_disk, options, run};
use crate::transactions::Crashing;

/// An engine that cannot remove partitions, as if a crash came before.
struct Keeping(Redb);

impl Engine for Keeping {
    type Partition = RedbPartition;
    const DURABILITIES: &'static [Durability] = Redb::DURABILITIES;

    fn open(&self, place: Place) -> Result<RedbPartition, Failure> {
        self.0.open(place)
    }

    fn check(&self, place: Place) -> Result<(), Failure> {
        self.0.check(place)
    }

    fn remove(&self, place: Place) -> Result<(), Failure> {
        match place {
            Place::Partition { index: 0..2, .. } => {
                Err(Failure::Io { file: String::new(), detail: "a crash".to_owned() })
            }
            place => self.0.remove(place),
        }
    }
}

#[test]
fn old_partitions_stay_until_all_new_ones_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let (new, away) = (directory.path().join("synced-3.redb"), directory.path().join("away"));
    run(async {
        let store = Store::open(Keeping(Redb::new(directory.path())), options(2)).await.unwrap();
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        table.put(&1, &2).await.unwrap();
        store.repartition(3, |_| {}).await.unwrap();
    });
    std::fs::rename(&new, &away).unwrap();
    let open = || Store::open(Redb::new(directory.path()), options(0));
    let opened = run(async { open().await.map(drop) });
    assert!(matches!(opened, Err(Error::NotApplied(Refusal::Engine(Failure::Missing { .. })))), "{opened:?}");
    let old = directory.path().join("synced-0.redb");
    assert!(old.exists());
    std::fs::rename(&away, &new).unwrap();
    run(async {
        let store = open().await.unwrap();
        assert_eq!(store.table::<u32, u32>("t").await.unwrap().get(&1).await.unwrap(), Some(2));
    });
    assert!(!old.exists());
}

/// Changes the number of partitions again and again while others write and read.
async fn serve_meanwhile<E: Engine>(store: Store<E>, keys: u32) {
    let table: Table<u32, u64, E> = store.create("t", TableOptions::default()).await.unwrap();
    let log: Log<u64, E> = store.create_log("log", TableOptions::default()).await.unwrap();
    for key in 0..keys {
        table.put(&key, &0).await.unwrap();
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (store, table, log, is_over) = (store.clone(), table.clone(), log.clone(), is_over.clone());
            Color::new().spawn(async move {
                let (mut last, mut round) = (vec![0_u64; keys as usize], 0_u64);
                while !is_over.load(SeqCst) {
                    round += 1;
                    // Each writer has its own keys, and knows their values.
                    let key = (round as u32 * 3 + writer) % keys / 3 * 3 + writer;
                    if key >= keys {
                        continue;
                    }
                    let old = table.put(&key, &round).await.unwrap().previous.unwrap().value;
                    assert_eq!(old, last[key as usize], "key {key}");
                    last[key as usize] = round;
                    assert_eq!(table.get(&key).await.unwrap(), Some(round));
                    if round % 8 == 0 {
                        log.append(&u64::from(writer)).await.unwrap();
                    }
                }
                (writer, last, round / 8, store)
            })
        })
        .collect();
    for partitions in [5, 1, 4] {
        store.repartition(partitions, |_| {}).await.unwrap();
        assert_eq!(store.partitions(), partitions as usize);
        let mut iter = table.iter();
        let mut count = 0;
        while iter.next().await.unwrap().is_some() {
            count += 1;
            // An enumeration continues after a change.
            if count == 3 && partitions == 4 {
                store.repartition(2, |_| {}).await.unwrap();
            }
        }
        assert_eq!(count, keys);
    }
    is_over.store(true, SeqCst);
    let mut appends = 0;
    for writer in writers {
        let (writer, last, appended, _store) = writer.await.unwrap();
        appends += appended;
        for key in (0..keys).filter(|key| key % 3 == writer) {
            assert_eq!(table.get(&key).await.unwrap(), Some(last[key as usize]), "key {key}");
        }
    }
    assert!(log.end().await.unwrap() <= appends);
    assert_eq!(table.count().await.unwrap(), u64::from(keys));
}

#[test]
fn the_number_of_partitions_changes_while_the_store_serves() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        serve_meanwhile(in_memory().await, 900).await;
        serve_meanwhile(on_disk(&directory).await, 60).await;
    });
    run(async {
        let store = on_disk(&directory).await;
        assert_eq!(store.partitions(), 2);
        let table: Table<u32, u64, _> = store.table("t").await.unwrap();
        assert_eq!(table.count().await.unwrap(), 60);
        store.verify().await.unwrap();
        // Only files of the catalog and of the last partitions are left.
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1 + 2 * 2);
    });
}

#[test]
fn a_watcher_and_a_tail_go_on_after_a_change_of_the_partitions() {
    run(async {
        let store = in_memory().await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let log: Log<u32, _> = store.create_log("log", TableOptions::default()).await.unwrap();
        let mut watch = table.watch(&table.cursor().await.unwrap()).await.unwrap();
        let watcher = Color::new().spawn(async move { (watch.next().await, watch.next().await) });
        let mut tail = log.tail(0);
        let follower = Color::new().spawn(async move { tail.next().await });
        store.repartition(8, |_| {}).await.unwrap();
        log.append(&7).await.unwrap();
        assert_eq!(follower.await.unwrap(), Ok((0, 7)));
        // The watcher may start again only now, and then sees a later put.
        let putter = Color::new().spawn({
            let table = table.clone();
            async move {
                for number in 0..10_000 {
                    table.put(&1, &number).await.unwrap();
                }
            }
        });
        let (first, second) = watcher.await.unwrap();
        assert!(matches!(first, Err(Error::NotApplied(Refusal::Lagged { .. }))), "{first:?}");
        assert!(matches!(second, Ok(changed) if changed.key == 1));
        drop(putter);
    });
}

#[test]
fn a_checkpoint_is_the_store_at_one_moment() {
    let (directory, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(async {
        let store = on_disk(&directory).await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let counter = store.create_counter("c", TableOptions::default()).await.unwrap();
        counter.add(5).await.unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let writer = Color::new().spawn({
            let (store, table, is_over) = (store.clone(), table.clone(), is_over.clone());
            async move {
                let mut round = 0;
                while !is_over.load(SeqCst) {
                    round += 1;
                    let mut batch = store.batch();
                    (0..20).for_each(|key| batch.put(&table, &key, &round).unwrap());
                    batch.commit().await.unwrap();
                }
            }
        });
        while table.get(&0).await.unwrap().is_none() {
            dapple_sched::yield_now().await;
        }
        let target = || Redb::new(copies.path().join("copy"));
        store.checkpoint(target(), 2, |_| {}).await.unwrap();
        is_over.store(true, SeqCst);
        writer.await.unwrap();
        // It needs a directory without a store.
        assert!(store.checkpoint(target(), 0, |_| {}).await.is_err());
    });
    run(async {
        let copy = Store::open(Redb::new(copies.path().join("copy")), options(7)).await.unwrap();
        assert_eq!((copy.partitions(), copy.list().await.len()), (2, 2));
        let table: Table<u32, u32, _> = copy.table("t").await.unwrap();
        let round = table.get(&0).await.unwrap().unwrap();
        for key in 0..20 {
            assert_eq!(table.get(&key).await.unwrap(), Some(round));
        }
        assert_eq!(copy.counter("c").await.unwrap().get().await.unwrap(), 5);
        // A new table gets a new number, not that of a copied one.
        let new: Table<u32, u32, _> = copy.create("new", TableOptions::default()).await.unwrap();
        assert_eq!(new.get(&0).await.unwrap(), None);
        let written = table.put(&0, &0).await.unwrap();
        assert!(written.version > written.previous.unwrap().version);
    });
}

#[test]
fn a_crash_at_any_commit_of_a_change_of_partitions_loses_nothing() {
    run(async {
        for keeps_last in [false, true] {
            let mut crash_at = 0;
            while crash_while_partitions_change(crash_at, keeps_last).await {
                crash_at += 1;
                assert!(crash_at < 200, "the change never ends");
            }
            assert!(crash_at > 5, "there are more than {crash_at} commits");
        }
    });
}

/// Whether the process crashed before all was done.
async fn crash_while_partitions_change(crash_at: i64, keeps_last: bool) -> bool {
    const KEYS: u32 = 40;
    let engine = Crashing { keeps_last, ..Crashing::default() };
    engine.commits_left.store(i64::MAX, SeqCst);
    let mut short = options(2);
    short.limit = Duration::from_secs(60);
    let store = Store::open(engine.clone(), short).await.unwrap();
    let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
    for key in 0..KEYS {
        table.put(&key, &key).await.unwrap();
    }
    engine.commits_left.store(crash_at, SeqCst);
    let result = store.repartition(3, |_| {}).await;
    let crashed = engine.commits_left.load(SeqCst) < 0;
    assert!(crashed || result.is_ok(), "{result:?}");
    engine.commits_left.store(i64::MAX, SeqCst);
    drop((table, store));
    let store = Store::open(engine.clone(), options(2)).await.unwrap();
    let table: Table<u32, u32, _> = store.table("t").await.unwrap();
    if result.is_ok() {
        assert_eq!(store.partitions(), 3);
    }
    // Whatever the crash left, the store is whole, and so is the next change.
    for partitions in [store.partitions(), 4] {
        store.repartition(partitions as u32, |_| {}).await.unwrap();
        assert_eq!(table.count().await.unwrap(), u64::from(KEYS), "crash at {crash_at}");
        for key in 0..KEYS {
            assert_eq!(table.get(&key).await.unwrap(), Some(key), "crash at {crash_at}, keeps {keeps_last}");
        }
    }
    crashed
}

/// The memory engine; counts the calls and the closings of partitions outside of the blocking pool.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

struct CountingPartition(<Memory as Engine>::Partition, Counting);

impl Counting {
    fn note(&self) {
        let is_in_pool = std::thread::current().name().is_some_and(|name| name.starts_with("dapple-block-"));
        self.0.fetch_add(usize::from(!is_in_pool), SeqCst);
    }
}

impl Engine for Counting {
    type Partition = CountingPartition;

    const DURABILITIES: &'static [Durability] = Memory::DURABILITIES;

    fn open(&self, place: Place) -> Result<CountingPartition, Failure> {
        self.note();
        Ok(CountingPartition(Memory.open(place)?, self.clone()))
    }

    fn remove(&self, place: Place) -> Result<(), Failure> {
        self.note();
        Memory.remove(place)
    }
}

impl Transactions for Counting {}

impl Partition for CountingPartition {
    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.1.note();
        self.0.get(table, key)
    }

    fn scan(&self, table: TableId, range: KeyRange<'_>, limit: usize) -> Result<Vec<Entry>, Failure> {
        self.1.note();
        self.0.scan(table, range, limit)
    }

    fn len(&self, table: TableId) -> Result<u64, Failure> {
        self.1.note();
        self.0.len(table)
    }

    fn tables(&self) -> Result<Vec<TableId>, Failure> {
        self.1.note();
        self.0.tables()
    }

    fn commit(&self, changes: &[Change]) -> Result<(), Failure> {
        self.1.note();
        self.0.commit(changes)
    }

    fn recover(&self) -> Result<(), Failure> {
        self.1.note();
        self.0.recover()
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn verify(&self) -> Result<(), Failure> {
        self.1.note();
        self.0.verify()
    }
}

impl Drop for CountingPartition {
    fn drop(&mut self) {
        self.1.note();
    }
}

#[test]
fn partitions_are_opened_used_and_closed_in_the_blocking_pool_only() {
    run(async {
        let engine = Counting::default();
        let store = Store::open(engine.clone(), options(3)).await.unwrap();
        let table: Table<u32, u32, Counting> = store.create("t", TableOptions::default()).await.unwrap();
        for key in 0..100 {
            table.put(&key, &key).await.unwrap();
        }
        for partitions in [5, 1, 4] {
            store.repartition(partitions, |_| {}).await.unwrap();
        }
        let copy = Counting(engine.0.clone());
        store.checkpoint(copy, 2, |_| {}).await.unwrap();
        assert_eq!(engine.0.load(SeqCst), 0, "calls outside of the pool");
    });
}
