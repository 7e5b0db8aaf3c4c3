//! Stores with many tables, and enumeration.

use std::collections::BTreeSet;

use dapple_store::{Durability, Error, OrderedTable, Refusal, Table, TableOptions};
use futures_util::stream;

use crate::support::{in_memory, on_disk, run};

#[test]
fn nothing_revives_a_destroyed_table() {
    run(async {
        let store = in_memory().await;
        let old: Table<u8, u8, _> = store.create("t", TableOptions::default()).await.unwrap();
        old.put(&1, &1).await.unwrap();
        store.destroy("t").await.unwrap();
        let destroyed = Err(Refusal::Destroyed("t".into()).into());
        assert_eq!(old.put(&1, &1).await, destroyed);
        let new: Table<u8, u8, _> = store.create("t", TableOptions::default()).await.unwrap();
        assert_eq!(old.put(&1, &1).await, destroyed);
        assert_eq!(new.get(&1).await.unwrap(), None);
        assert_eq!(store.destroy("none").await, Err(Refusal::NoSuchTable("none".into()).into()));
        assert!(store.table::<u8, u8>("none").await.is_err());
    });
}

#[test]
fn of_concurrent_creates_one_succeeds() {
    run(async {
        let store = in_memory().await;
        for _ in 0..20 {
            let creates: Vec<_> = (0..8)
                .map(|_| {
                    let store = store.clone();
                    dapple_sched::Color::new().spawn(async move {
                        let created = store.create::<u8, u8>("t", TableOptions::default()).await.map(drop);
                        // It exists now, whichever task made it.
                        store.table::<u8, u8>("t").await.unwrap();
                        created
                    })
                })
                .collect();
            let mut created = 0;
            for create in creates {
                match create.await.unwrap() {
                    Ok(()) => created += 1,
                    Err(error) => assert_eq!(error, Refusal::TableExists("t".into()).into()),
                }
            }
            assert_eq!(created, 1);
            store.destroy("t").await.unwrap();
        }
    });
}

#[test]
fn concurrent_tasks_open_or_create_one_table() {
    run(async {
        let store = in_memory().await;
        for _ in 0..20 {
            let opens: Vec<_> = (0..8)
                .map(|number: u8| {
                    let store = store.clone();
                    dapple_sched::Color::new().spawn(async move {
                        let options = TableOptions::default();
                        let table: OrderedTable<u8, u8, _> = store.ordered_table_or_create("t", options).await.unwrap();
                        table.put(&number, &number).await.unwrap();
                    })
                })
                .collect();
            for open in opens {
                open.await.unwrap();
            }
            let table: OrderedTable<u8, u8, _> = store.ordered_table("t").await.unwrap();
            assert_eq!(table.count().await.unwrap(), 8);
            let wrong = Refusal::WrongKind { table: "t".into(), is: "ordered", wanted: "hash" };
            let opened = store.table_or_create::<u8, u8>("t", TableOptions::default()).await;
            assert_eq!(opened.map(drop), Err(wrong.into()));
            store.destroy("t").await.unwrap();
        }
        assert!(store.table_or_create::<u8, u8>("", TableOptions::default()).await.is_err());
    });
}

#[test]
fn kinds_durabilities_and_names_are_checked() {
    run(async {
        let store = in_memory().await;
        let _table: Table<u8, u8, _> = store.create("t", TableOptions::default()).await.unwrap();
        let wrong = Refusal::WrongKind { table: "t".into(), is: "hash", wanted: "ordered" };
        assert_eq!(store.ordered_table::<u8, u8>("t").await.map(drop), Err(wrong.into()));
        let synced = TableOptions { durability: Some(Durability::Synced), expiry: false };
        let refused = store.create::<u8, u8>("durable", synced).await.map(drop);
        assert!(matches!(refused, Err(Error::NotApplied(Refusal::Unsupported(_)))));
        assert!(store.create::<u8, u8>("", TableOptions::default()).await.is_err());
        assert!(store.create::<u8, u8>(&"n".repeat(256), TableOptions::default()).await.is_err());
        assert_eq!(store.list().await.iter().map(|table| &table.name[..]).collect::<Vec<_>>(), ["t"]);
    });
}

#[test]
fn ranges_are_in_order_over_all_partitions() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = on_disk(&directory).await;
        let table: OrderedTable<(i32, String), u32, _> =
            store.create_ordered("t", TableOptions::default()).await.unwrap();
        for number in 0..300 {
            table.put(&(number * 7 % 300 - 150, "x".to_owned()), &0).await.unwrap();
        }
        let mut range = table.range((-20, String::new())..=(20, "x".to_owned())).unwrap();
        let mut found = Vec::new();
        while let Some(((number, _), _)) = range.next().await.unwrap() {
            found.push(number);
        }
        assert_eq!(found, (-20..=20).collect::<Vec<_>>());
        let (low, high) = ((5, String::new()), (-5, String::new()));
        assert!(table.range(low..high).unwrap().next().await.unwrap().is_none());
    });
}

#[test]
fn an_enumeration_returns_what_was_there_throughout_exactly_once() {
    run(async {
        let store = in_memory().await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        for key in 0..2000 {
            table.put(&key, &0).await.unwrap();
        }
        let mut seen = BTreeSet::new();
        let mut iter = table.iter();
        let mut next = 5000;
        while let Some((key, _)) = iter.next().await.unwrap() {
            assert!(seen.insert(key), "{key} came twice");
            // Odd keys come and go meanwhile; even ones stay and change their values.
            table.put(&(key / 2 * 2 % 2000), &1).await.unwrap();
            table.remove(&((next * 13 % 2000) | 1)).await.unwrap();
            table.put(&(next | 1), &0).await.unwrap();
            next += 1;
            if next > 9000 {
                break;
            }
        }
        assert!((0..2000).step_by(2).all(|key| seen.contains(&key)));
    });
}

#[test]
fn a_bulk_load_takes_keys_in_growing_order() {
    run(async {
        let store = in_memory().await;
        let table: OrderedTable<u64, u64, _> = store.create_ordered("t", TableOptions::default()).await.unwrap();
        table.put(&7, &0).await.unwrap();
        let cursor = table.cursor().await.unwrap();
        let mut told = Vec::new();
        let entries = stream::iter((0..10_000).map(|key| (key, key + 1)));
        assert_eq!(table.bulk_load(entries, |loaded| told.push(loaded)).await, Ok(10_000));
        assert_eq!(told, [4096, 8192, 10_000]);
        assert_eq!(table.count().await.unwrap(), 10_000);
        assert_eq!(table.get(&7).await.unwrap(), Some(8));
        // A watcher sees these puts as it sees others, if it keeps up.
        assert!(table.watch(&cursor).await.is_ok());
        for wrong in [[20_000, 20_001, 20_001], [30_000, 30_001, 5]] {
            let entries = stream::iter(wrong.map(|key| (key, 1)));
            let mut told = 0;
            let error = table.bulk_load(entries, |loaded| told = loaded).await.unwrap_err();
            assert!(matches!(error, Error::NotApplied(Refusal::Unsupported(_))), "{error}");
            // The entries before the wrong one are there.
            assert_eq!((told, table.get(&wrong[1]).await.unwrap()), (2, Some(1)));
        }
        assert_eq!(table.bulk_load(stream::empty(), |_| panic!("nothing is loaded")).await, Ok(0));
    });
}
