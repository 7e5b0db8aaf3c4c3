//! Watching tables and stores.

use std::collections::HashMap;

use dapple_sched::Color;
use dapple_store::{Error, Memory, Refusal, Store, Table, TableOptions};

use crate::support::{in_memory, on_disk, options, run};

#[test]
fn a_watcher_that_keeps_up_sees_every_change_of_each_key_in_order() {
    run(async {
        let store = in_memory().await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let other: Table<u32, u32, _> = store.create("other", TableOptions::default()).await.unwrap();
        let start = table.cursor().await.unwrap();
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (store, table, other) = (store.clone(), table.clone(), other.clone());
                Color::new().spawn(async move {
                    for round in 1..=200 {
                        let key = writer * 10 + round % 3;
                        table.put(&key, &round).await.unwrap();
                        other.put(&key, &round).await.unwrap();
                        let mut batch = store.batch();
                        batch.put(&table, &(writer * 10 + 3), &round).unwrap();
                        batch.put(&table, &(writer * 10 + 4), &round).unwrap();
                        batch.commit().await.unwrap();
                        if round % 50 == 0 {
                            table.remove(&key).await.unwrap();
                        }
                    }
                })
            })
            .collect();
        let mut watch = table.watch(&start).await.unwrap();
        let mut seen: HashMap<u32, Vec<Option<u32>>> = HashMap::new();
        for at in 0..4 * (3 * 200 + 4) {
            // A watcher that starts again at its cursor misses nothing and repeats nothing.
            if at % 100 == 99 {
                watch = table.watch(&watch.cursor()).await.unwrap();
            }
            let changed = watch.next().await.unwrap();
            seen.entry(changed.key).or_default().push(changed.value);
        }
        for writer in writers {
            writer.await.unwrap();
        }
        for writer in 0..4 {
            for key in 3..5 {
                let all: Vec<_> = (1..=200).map(Some).collect();
                assert_eq!(seen[&(writer * 10 + key)], all);
            }
            for key in 0..3 {
                let mut expected = Vec::new();
                for round in (1..=200).filter(|round| round % 3 == key) {
                    expected.push(Some(round));
                    if round % 50 == 0 {
                        expected.push(None);
                    }
                }
                assert_eq!(seen[&(writer * 10 + key)], expected);
            }
        }
        assert_eq!(watch.cursor(), table.cursor().await.unwrap());
    });
}

#[test]
fn a_watcher_that_waits_is_woken_by_a_change_and_by_the_end_of_the_table() {
    run(async {
        let store = in_memory().await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let mut watch = table.watch(&table.cursor().await.unwrap()).await.unwrap();
        let watcher = Color::new().spawn(async move {
            assert_eq!(watch.next().await.unwrap().key, 7);
            watch.next().await
        });
        table.put(&7, &1).await.unwrap();
        store.destroy("t").await.unwrap();
        assert_eq!(watcher.await.unwrap(), Err(Refusal::Destroyed("t".into()).into()));
    });
}

#[test]
fn a_slow_watcher_is_told_and_goes_on_after_the_gap() {
    run(async {
        let mut small = options(1);
        small.history_len_max = 10;
        let store = Store::open(Memory, small).await.unwrap();
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let mut watch = table.watch(&table.cursor().await.unwrap()).await.unwrap();
        for number in 0..25 {
            table.put(&number, &number).await.unwrap();
        }
        let Err(Error::NotApplied(Refusal::Lagged { resume })) = watch.next().await else { panic!("no gap") };
        let mut again = table.watch(&resume).await.unwrap();
        for number in 15..25 {
            assert_eq!(watch.next().await.unwrap().key, number);
            assert_eq!(again.next().await.unwrap().key, number);
        }
    });
}

#[test]
fn a_cursor_outlives_the_process_if_nothing_was_written_since() {
    let directory = tempfile::tempdir().unwrap();
    let (early, late) = run(async {
        let store = on_disk(&directory).await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let early = table.cursor().await.unwrap();
        for key in 0..50 {
            table.put(&key, &1).await.unwrap();
        }
        (early, table.cursor().await.unwrap())
    });
    run(async {
        let store = on_disk(&directory).await;
        let table: Table<u32, u32, _> = store.table("t").await.unwrap();
        let mut watch = table.watch(&late).await.unwrap();
        table.put(&1, &2).await.unwrap();
        assert_eq!(watch.next().await.unwrap().key, 1);
        // The earlier changes are no longer in the history, and the error says so.
        let next = table.watch(&early).await.unwrap().next().await;
        assert!(matches!(next, Err(Error::NotApplied(Refusal::Lagged { .. }))), "{next:?}");
    });
}

#[test]
fn a_store_is_watched_with_the_names_of_its_tables() {
    run(async {
        let store = in_memory().await;
        let mut watch = store.watch(&store.cursor().await.unwrap()).await.unwrap();
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let counter = store.create_counter("c", TableOptions::default()).await.unwrap();
        table.put(&1, &1).await.unwrap();
        assert_eq!(watch.next().await.unwrap().table, "t");
        counter.add(1).await.unwrap();
        assert_eq!(watch.next().await.unwrap().table, "c");
    });
}
