//! Operations on one table, the same for every engine.

use std::time::{Duration, SystemTime};

use dapple_sched::Color;
use dapple_store::engine::{Engine, Transactions};
use dapple_store::{
    Change, Entry, Error, Expect, OrderedTable, Read, Redb, Refusal, Store, StoreOptions, Table, TableOptions,
};

#[cfg(feature = "fjall")]
use crate::support::in_fjall;
use crate::support::{in_memory, on_disk, options, run};

async fn all_operations<E: Engine>(store: Store<E>) {
    let users: Table<String, u32, E> = store.create("users", TableOptions::default()).await.unwrap();
    let ann = "ann".to_owned();
    assert_eq!(users.get(&ann).await.unwrap(), None);
    let first = users.put(&ann, &1).await.unwrap();
    assert_eq!(first.previous, None);
    let second = users.put(&ann, &2).await.unwrap();
    assert!(second.version > first.version);
    assert_eq!(second.previous.map(|old| (old.value, old.version)), Some((1, first.version)));

    let stale = users.cas(&ann, Expect::Version(first.version), &9).await;
    assert_eq!(stale, Err(Refusal::Conflict { current: Some(second.version) }.into()));
    assert!(users.cas(&ann, Expect::Absent, &9).await.is_err());
    assert!(users.cas(&ann, Expect::Value(1), &9).await.is_err());
    users.cas(&ann, Expect::Value(2), &3).await.unwrap();
    assert_eq!(users.update(&ann, |old| old.map(|old| old + 1)).await.unwrap(), Some(4));
    assert_eq!(users.get_versioned(&ann, Read::AtLeast(second.version)).await.unwrap().unwrap().value, 4);
    assert_eq!(users.count().await.unwrap(), 1);

    assert_eq!(users.remove(&ann).await.unwrap().map(|old| old.value), Some(4));
    assert_eq!(users.remove(&ann).await.unwrap(), None);
    assert!(!users.contains(&ann).await.unwrap());
    // A version never comes back; otherwise a late `cas` could hit a later life of the key.
    let again = users.put(&ann, &5).await.unwrap();
    assert!(again.version > second.version);
    assert_eq!(again.previous, None);
}

#[test]
fn all_operations_work_in_memory() {
    run(async { all_operations(in_memory().await).await });
}

#[test]
fn all_operations_work_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    run(async { all_operations(on_disk(&directory).await).await });
    #[cfg(feature = "fjall")]
    run(async { all_operations(in_fjall(&directory).await).await });
}

#[test]
fn concurrent_increments_and_updates_lose_nothing() {
    run(async {
        let store = in_memory().await;
        let counts: Table<u8, i64, _> = store.create("counts", TableOptions::default()).await.unwrap();
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let counts = counts.clone();
                dapple_sched::Color::new().spawn(async move {
                    for _ in 0..20 {
                        if number % 2 == 0 {
                            counts.increment(&1, 1).await.unwrap();
                        } else {
                            counts.update(&1, |old| Some(old.unwrap_or(0) + 1)).await.unwrap();
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(counts.get(&1).await.unwrap(), Some(400));
        assert_eq!(counts.increment(&2, i64::MAX).await.unwrap(), i64::MAX);
        assert_eq!(counts.increment(&2, 1).await, Err(Refusal::Overflow.into()));
    });
}

#[test]
fn values_expire() {
    run(async {
        let store = in_memory().await;
        let options = TableOptions { expiry: true, ..TableOptions::default() };
        let sessions: Table<u8, u8, _> = store.create("sessions", options).await.unwrap();
        let now = SystemTime::now();
        sessions.put_until(&1, &1, now - Duration::from_secs(1)).await.unwrap();
        sessions.put_until(&2, &2, now + Duration::from_secs(3600)).await.unwrap();
        assert_eq!(sessions.get(&1).await.unwrap(), None);
        assert_eq!(sessions.get(&2).await.unwrap(), Some(2));
        assert_eq!(sessions.count().await.unwrap(), 1);
        assert!(sessions.expires_in(&2).await.unwrap().unwrap() > Duration::from_secs(3000));
        assert_eq!(sessions.remove_expired().await.unwrap(), 1);
        assert_eq!(sessions.remove_expired().await.unwrap(), 0);
        sessions.put_until(&1, &1, now - Duration::from_secs(1)).await.unwrap();
        let entry = sessions.entry(&2).await.unwrap().unwrap();
        sessions.cas_until(&2, Expect::Version(entry.version), &3, None).await.unwrap();
        assert_eq!(sessions.entry(&2).await.unwrap().unwrap().expires, None);
        // The value that expired is not there for conditions either.
        sessions.cas(&1, Expect::Absent, &3).await.unwrap();

        let plain: Table<u8, u8, _> = store.create("plain", TableOptions::default()).await.unwrap();
        assert!(matches!(plain.put_until(&1, &1, now).await, Err(Error::NotApplied(Refusal::Unsupported(_)))));
    });
}

#[test]
fn keys_and_values_that_are_too_long_are_refused() {
    run(async {
        let mut options = options(1);
        options.key_len_max = 10;
        options.value_len_max = 10;
        let store = Store::open(dapple_store::Memory, options).await.unwrap();
        let table: Table<String, String, _> = store.create("t", TableOptions::default()).await.unwrap();
        let (short, long) = ("a".to_owned(), "a".repeat(10));
        let refused = |part| Refusal::TooLong { part, len: 11, len_max: 10 };
        assert_eq!(table.put(&long, &short).await, Err(refused("key").into()));
        assert_eq!(table.put(&short, &long).await, Err(refused("value").into()));
        table.put(&short, &short).await.unwrap();
    });
}

#[test]
fn a_full_queue_refuses_at_once_and_loses_nothing() {
    run(async {
        let mut options = StoreOptions::default();
        options.partitions = 1;
        options.queue_len_max = 2;
        let store = Store::open(dapple_store::Memory, options).await.unwrap();
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let puts: Vec<_> = (0..500)
            .map(|key| {
                let table = table.clone();
                dapple_sched::Color::new().spawn(async move { (key, table.put(&key, &key).await) })
            })
            .collect();
        let mut applied = 0;
        for put in puts {
            match put.await.unwrap() {
                (key, Ok(_)) => {
                    applied += 1;
                    assert_eq!(table.get(&key).await.unwrap(), Some(key));
                }
                (key, Err(Error::Unavailable(_))) => assert_eq!(table.get(&key).await.unwrap(), None),
                (_, Err(error)) => panic!("{error}"),
            }
        }
        assert!(applied >= 2, "{applied} were applied");
        assert_eq!(table.count().await.unwrap(), applied);
    });
}

#[test]
fn a_closure_runs_between_all_other_writes_and_its_panic_is_its_own() {
    run(async {
        let store = in_memory().await;
        let table: Table<u8, u64, _> = store.create("t", TableOptions::default()).await.unwrap();
        let next = |entry: Option<Entry<u64>>| {
            let value = entry.map_or(0, |entry| entry.value) + 1;
            (Change::Put { value, expires: None }, value)
        };
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let table = table.clone();
                dapple_sched::Color::new().spawn(async move { table.modify(&1, next).await.unwrap() })
            })
            .collect();
        let mut seen = Vec::new();
        for task in tasks {
            seen.push(task.await.unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=200).collect::<Vec<_>>());
        let panicked = table.modify(&1, |_| -> (Change<u64>, ()) { panic!("a test's panic") }).await;
        assert_eq!(panicked, Err(Refusal::Panicked.into()));
        assert_eq!(
            table.modify(&1, |entry| (Change::Remove, entry.map(|entry| entry.value))).await.unwrap(),
            Some(200)
        );
        assert_eq!(table.modify(&1, |entry| (Change::Remove, entry.is_none())).await, Ok(true));
    });
}

async fn many_keys<E: Transactions>(store: Store<E>) {
    let table: OrderedTable<u32, String, E> = store.create_ordered("many", TableOptions::default()).await.unwrap();
    assert_eq!(table.get_many([]).await.unwrap(), []);
    assert_eq!(table.get_many([&1, &2]).await.unwrap(), [None, None]);
    let mut batch = store.batch();
    for number in (0..3000).step_by(3) {
        batch.put(&table, &number, &number.to_string()).unwrap();
    }
    batch.commit().await.unwrap();
    table.remove(&6).await.unwrap();
    let expected = |key: &u32| (key.is_multiple_of(3) && *key != 6 && *key < 3000).then(|| key.to_string());
    // More than one call of the engine reads, in an order of their own, some of them twice, some from the cache.
    let keys: Vec<u32> = (0..4000).rev().chain([9, 6, 9]).collect();
    let values: Vec<Option<String>> = keys.iter().map(expected).collect();
    assert_eq!(table.get_many(&keys).await.unwrap(), values);
    assert_eq!(table.get_many(&keys).await.unwrap(), values);
    let put = table.put(&6, &"six".to_owned()).await.unwrap();
    let entries = table.entry_many(&[5, 6]).await.unwrap();
    assert_eq!(entries, [None, Some(Entry { value: "six".to_owned(), version: put.version, expires: None })]);
    // The split-phase form.
    let (sender, receiver) = std::sync::mpsc::channel();
    let done = move |found| sender.send(found).unwrap();
    table.submit(Color::new(), |table| async move { table.get_many(&[3, 4]).await }, done);
    let found = dapple_io::blocking::spawn_blocking(move || receiver.recv().unwrap()).await.unwrap();
    assert_eq!(found, Ok(vec![Some("3".to_owned()), None]));
    store.destroy("many").await.unwrap();
    assert!(table.get_many(&keys).await.is_err());
}

#[test]
fn many_keys_are_read_at_once() {
    let directory = tempfile::tempdir().unwrap();
    run(async { many_keys(in_memory().await).await });
    run(async { many_keys(on_disk(&directory).await).await });
    // Nothing is in the cache.
    run(async {
        let mut options = options(2);
        options.cache_bytes = 0;
        let engine = Redb::new(directory.path().join("uncached"));
        many_keys(Store::open(engine, options).await.unwrap()).await;
    });
    #[cfg(feature = "fjall")]
    run(async { many_keys(in_fjall(&directory).await).await });
}

#[test]
fn many_keys_are_read_while_others_write_and_commit_transactions() {
    run(async {
        let store = in_memory().await;
        let table: Table<u32, u64, _> = store.create("moving", TableOptions::default()).await.unwrap();
        let keys: Vec<u32> = (0..20).collect();
        for key in &keys {
            table.put(key, &0).await.unwrap();
        }
        let (of_writer, of_keys, of_store) = (table.clone(), keys.clone(), store.clone());
        let writer = Color::new().spawn(async move {
            for round in 1..=100_u64 {
                let mut batch = of_store.batch();
                for key in &of_keys {
                    batch.put(&of_writer, key, &round).unwrap();
                }
                batch.commit().await.unwrap();
            }
        });
        // No value goes back, and none is lost.
        let mut last = vec![0; keys.len()];
        while last != vec![100; keys.len()] {
            let found: Vec<u64> = table.get_many(&keys).await.unwrap().into_iter().map(Option::unwrap).collect();
            assert!(last.iter().zip(&found).all(|(old, new)| old <= new), "{last:?} then {found:?}");
            last = found;
        }
        writer.await.unwrap();
    });
}

#[test]
fn expired_values_are_not_among_many() {
    run(async {
        let store = in_memory().await;
        let options = TableOptions { expiry: true, ..TableOptions::default() };
        let sessions: Table<u8, u8, _> = store.create("sessions", options).await.unwrap();
        let now = SystemTime::now();
        sessions.put_until(&1, &1, now - Duration::from_secs(1)).await.unwrap();
        sessions.put_until(&2, &2, now + Duration::from_secs(3600)).await.unwrap();
        assert_eq!(sessions.get_many([&1, &2]).await.unwrap(), [None, Some(2)]);
    });
}
