//! A table that keeps so many bytes.

use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll};

use dapple_store::{Bounded, Redb, Store, StoreOptions, Table, TableOptions};

const BYTES_MAX: u64 = 20_000;

type Rows = Table<u32, String, Redb>;

async fn rows(directory: &Path) -> (Rows, Bounded<u32, String, Redb>) {
    let store = Store::open(Redb::new(directory), StoreOptions::default()).await.unwrap();
    let rows: Rows = store.create("rows", TableOptions::default()).await.unwrap();
    (rows.clone(), Bounded::new(rows, BYTES_MAX).await.unwrap())
}

/// The bytes of all values that the table has.
async fn bytes(rows: &Rows) -> u64 {
    let (mut iter, mut bytes) = (rows.iter(), 0);
    while let Some((_, row)) = iter.next().await.unwrap() {
        bytes += row.value.len() as u64;
    }
    bytes
}

/// Long ones need the room of several others.
fn value(key: u32) -> String {
    "v".repeat(if key.is_multiple_of(3) { 6_000 } else { 500 })
}

#[test]
fn calls_that_are_dropped_anywhere_leave_no_row_that_does_not_count() {
    dapple_io::runtime_builder().workers(2).build().unwrap().block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let (rows, bounded) = rows(directory.path()).await;
        for key in 0..200 {
            let (value, mut polls) = (value(key), 0);
            let mut put = pin!(bounded.put(&key, &value));
            // Those that need the room of others are dropped after some polls.
            poll_fn(|cx: &mut Context<'_>| {
                polls += 1;
                cx.waker().wake_by_ref();
                match put.as_mut().poll(cx) {
                    Poll::Pending if key.is_multiple_of(3) && polls > key / 3 % 6 => Poll::Ready(()),
                    done => done.map(drop),
                }
            })
            .await;
        }
        // The next ones make the room.
        for key in 1_000..1_003 {
            assert!(bounded.put(&key, &value(key)).await.unwrap());
        }
        let left = bytes(&rows).await;
        assert!(left <= BYTES_MAX, "{left} bytes of values in {BYTES_MAX}");
        assert!(bounded.get(&1_002).await.unwrap().is_some());
    });
}

#[test]
fn calls_at_once_leave_no_row_that_does_not_count() {
    dapple_io::runtime_builder().workers(2).build().unwrap().block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let (rows, bounded) = rows(directory.path()).await;
        let tasks = (0..8u32).map(|task| {
            let bounded = bounded.clone();
            dapple_sched::spawn(async move {
                for round in 0..100u32 {
                    let key = (round * 7 + task * 13) % 60;
                    match (round + task) % 5 {
                        0 => bounded.remove(&key).await.unwrap(),
                        1 => drop(bounded.get(&key).await.unwrap()),
                        _ => assert!(bounded.put(&key, &value(key)).await.unwrap()),
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        bounded.put(&1_000, &value(1_000)).await.unwrap();
        let left = bytes(&rows).await;
        assert!(left > 500 && left <= BYTES_MAX, "{left} bytes of values in {BYTES_MAX}");
    });
}

#[test]
fn a_value_larger_than_all_is_not_kept_and_removes_only_the_one_before() {
    dapple_io::runtime_builder().workers(1).build().unwrap().block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let (rows, bounded) = rows(directory.path()).await;
        for key in 0..2 {
            assert!(bounded.put(&key, &value(key)).await.unwrap());
        }
        assert!(!bounded.put(&1, &"v".repeat(BYTES_MAX as usize)).await.unwrap());
        assert_eq!(bytes(&rows).await, 6_000, "the old value of that key is gone, and no other");
        assert!(bounded.get(&0).await.unwrap().is_some() && bounded.get(&1).await.unwrap().is_none());
    });
}
