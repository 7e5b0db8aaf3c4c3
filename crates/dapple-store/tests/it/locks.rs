//! Locks and the tokens that guard writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use dapple_sched::Color;
use dapple_store::{Error, Refusal, Table, TableOptions, Token};

use crate::support::{in_memory, on_disk, run};

const LONG: Duration = Duration::from_secs(60);

#[test]
fn one_task_at_a_time_holds_a_lock_and_tokens_grow() {
    run(async {
        let store = in_memory().await;
        let lock = store.create_lock("l", TableOptions::default()).await.unwrap();
        let is_held = Arc::new(AtomicBool::new(false));
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (lock, is_held) = (lock.clone(), is_held.clone());
                Color::new().spawn(async move {
                    let mut tokens = Vec::new();
                    for _ in 0..50 {
                        let guard = lock.acquire(LONG).await.unwrap();
                        assert!(!is_held.swap(true, SeqCst));
                        tokens.push(guard.token());
                        dapple_sched::yield_now().await;
                        is_held.store(false, SeqCst);
                    }
                    assert!(tokens.is_sorted());
                    tokens
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.unwrap());
        }
        all.sort();
        assert_eq!(all, (1..=400).map(Token).collect::<Vec<_>>());
    });
}

#[test]
fn a_waiter_gives_up_at_its_limit_and_leaves_the_queue() {
    run(async {
        let store = in_memory().await;
        let lock = store.create_lock("l", TableOptions::default()).await.unwrap();
        let guard = lock.acquire(LONG).await.unwrap();
        let refused = lock.acquire(Duration::from_millis(20)).await.map(drop);
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
        drop(guard);
        assert_eq!(lock.acquire(LONG).await.unwrap().token(), Token(2));
    });
}

#[test]
fn a_holder_with_an_ended_lease_cannot_write_once_another_has_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let token = run(async {
        let store = on_disk(&directory).await;
        let table: Table<u32, u32, _> = store.create("t", TableOptions::default()).await.unwrap();
        let lock = store.create_lock("l", TableOptions::default()).await.unwrap();
        let first = lock.acquire_for(Duration::from_millis(20), LONG).await.unwrap();
        let of_first = table.guarded(&lock, first.token()).unwrap();
        of_first.put(&1, &1).await.unwrap();
        // Comes when the lease ends, though the first guard is still there.
        let second = lock.acquire(LONG).await.unwrap();
        assert!(!first.is_held() && second.is_held());
        let fenced = Refusal::Fenced { token: first.token(), newest: second.token() };
        for key in 0..20 {
            assert_eq!(of_first.put(&key, &2).await, Err(fenced.clone().into()));
        }
        assert_eq!(of_first.remove(&1).await, Err(fenced.clone().into()));
        let mut batch = store.batch();
        batch.put(&of_first, &1, &2).unwrap();
        batch.put(&of_first, &2, &2).unwrap();
        assert_eq!(batch.commit().await, Err(fenced.into()));
        // Unguarded writes, and the new holder, continue.
        table.put(&2, &2).await.unwrap();
        table.guarded(&lock, second.token()).unwrap().put(&3, &3).await.unwrap();
        assert_eq!(table.get(&1).await.unwrap(), Some(1));
        second.token()
    });
    run(async {
        let store = on_disk(&directory).await;
        let (table, lock) = (store.table::<u32, u32>("t").await.unwrap(), store.lock("l").await.unwrap());
        // No holder came since, also over the restart.
        table.guarded(&lock, token).unwrap().put(&3, &4).await.unwrap();
        let next = lock.acquire(LONG).await.unwrap();
        assert!(next.token() > token);
        let fenced = table.guarded(&lock, token).unwrap().put(&3, &5).await;
        assert!(matches!(fenced, Err(Error::NotApplied(Refusal::Fenced { .. }))), "{fenced:?}");
    });
}
