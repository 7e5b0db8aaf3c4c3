//! Logs and counters.

use dapple_sched::Color;
use dapple_store::engine::Engine;
use dapple_store::{Error, Log, Refusal, Store, TableOptions};

use crate::support::{in_memory, on_disk, run};

#[test]
fn appends_of_many_tasks_have_one_order_that_a_tail_follows() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        follow(in_memory().await, 300).await;
        follow(on_disk(&directory).await, 20).await;
    });
}

async fn follow<E: Engine>(store: Store<E>, rounds: u64) {
    let log: Log<(u64, u64), E> = store.create_log("log", TableOptions::default()).await.unwrap();
    let mut tail = log.tail(0);
    let follower = Color::new().spawn(async move {
        let mut next = [0; 4];
        for expected in 0..rounds * 4 {
            let (position, (writer, number)) = tail.next().await.unwrap();
            assert_eq!((position, number), (expected, next[writer as usize]));
            next[writer as usize] += 1;
        }
    });
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let log = log.clone();
            Color::new().spawn(async move {
                let mut last = None;
                for number in 0..rounds {
                    let position = log.append(&(writer, number)).await.unwrap();
                    assert!(last < Some(position));
                    last = Some(position);
                }
            })
        })
        .collect();
    for task in writers {
        task.await.unwrap();
    }
    follower.await.unwrap();
    assert_eq!(log.end().await.unwrap(), rounds * 4);
}

#[test]
fn a_trimmed_log_says_where_it_begins() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = on_disk(&directory).await;
        let log: Log<u32, _> = store.create_log("log", TableOptions::default()).await.unwrap();
        let entries: Vec<u32> = (0..3000).collect();
        assert_eq!(log.append_all(&entries).await.unwrap(), 0);
        assert_eq!(log.append_all(&[]).await.unwrap(), 3000);
        assert_eq!(log.trim(2500).await.unwrap(), 2500);
        assert_eq!(log.trim(7).await.unwrap(), 2500);
        let mut entries = log.read(2499);
        assert_eq!(entries.next().await, Err(Refusal::Trimmed { first: 2500 }.into()));
        assert_eq!(entries.next().await, Ok(Some((2500, 2500))));
    });
    run(async {
        let store = on_disk(&directory).await;
        let log: Log<u32, _> = store.log("log").await.unwrap();
        assert_eq!((log.first().await.unwrap(), log.end().await.unwrap()), (2500, 3000));
        // All entries are removed, and positions continue.
        assert_eq!(log.trim(u64::MAX).await.unwrap(), 3000);
        assert_eq!(log.read(3000).next().await, Ok(None));
        assert_eq!(log.append(&1).await.unwrap(), 3000);
        assert!(matches!(store.counter("log").await.map(drop), Err(Error::NotApplied(Refusal::WrongKind { .. }))));
    });
}

#[test]
fn a_tail_that_waits_ends_with_its_log() {
    run(async {
        let store = in_memory().await;
        let log: Log<u32, _> = store.create_log("log", TableOptions::default()).await.unwrap();
        let mut tail = log.tail(0);
        let follower = Color::new().spawn(async move { (tail.next().await, tail.next().await) });
        log.append(&5).await.unwrap();
        store.destroy("log").await.unwrap();
        let (first, second) = follower.await.unwrap();
        let destroyed = Err(Refusal::Destroyed("log".into()).into());
        // The entry may have come before the end or not.
        assert!(first == Ok((0, 5)) || first == destroyed, "{first:?}");
        assert_eq!(second, destroyed);
    });
}

#[test]
fn a_counter_counts_every_add_and_none_that_was_refused() {
    let directory = tempfile::tempdir().unwrap();
    run(async {
        let store = on_disk(&directory).await;
        let counter = store.create_counter("c", TableOptions::default()).await.unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let counter = counter.clone();
                Color::new().spawn(async move {
                    for _ in 0..10 {
                        counter.add(3).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(counter.add(i64::MAX).await, Err(Refusal::Overflow.into()));
    });
    run(async {
        let counter = on_disk(&directory).await.counter("c").await.unwrap();
        assert_eq!(counter.get().await.unwrap(), 240);
    });
}
