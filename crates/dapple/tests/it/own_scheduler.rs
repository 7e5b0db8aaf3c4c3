//! `examples/own_scheduler.rs`, and its scheduler alone.

use std::process::Command;
use std::sync::Arc;

use dapple::sync::oneshot;

use crate::examples::executable;
use scheduler::{Mutex, Scheduler, set_rank, yield_now};

#[path = "../../../../examples/shared/scheduler.rs"]
mod scheduler;

#[test]
fn it_shows_its_order_and_its_lock() {
    let output = Command::new(executable("own_scheduler")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("ended in this order: [10, 20, 30]\n"), "{text}");
    assert!(text.contains("a waiting lock, despite a panic: 7\n"), "{text}");
    assert!(text.contains(" switches a second among 100 threads\n"), "{text}");
}

/// Threads on several workers that wake each other while they run, wait and end: no wake is lost,
/// and no two hold the lock.
#[dapple::test(workers = 3)]
async fn no_wake_is_lost() {
    let own = Scheduler::start();
    let sum = Arc::new(Mutex::new(0));
    let mut ends = Vec::new();
    for number in 0..100 {
        let (tell, told) = oneshot::channel();
        let (sum, other) = (sum.clone(), own.clone());
        ends.push(told);
        own.spawn(async move {
            for round in 0..50 {
                set_rank(number % 7 * 100);
                let (ask, answer) = oneshot::channel();
                // Wakes the thread that waits for it, on any worker.
                other.spawn(async move {
                    let _ = ask.send(round);
                });
                let mut held = sum.lock().await;
                let before = *held;
                yield_now().await;
                *held = before + 1;
                drop(held);
                assert_eq!(answer.await, Ok(round));
            }
            let _ = tell.send(());
        });
    }
    for end in ends {
        end.await.expect("no thread panics");
    }
    assert_eq!(*sum.lock().await, 5_000);
}

/// A thread that lets a thousand others go first is passed by a thousand, and then has its turn
/// while they go on.
#[dapple::test(workers = 1)]
async fn a_rank_is_no_starvation() {
    let own = Scheduler::start();
    let (tell, told) = oneshot::channel();
    let is_over = Arc::new(Mutex::new(false));
    let busy = is_over.clone();
    let (other, patient) = (own.clone(), is_over.clone());
    own.spawn(async move {
        other.spawn(async move {
            while !*busy.lock().await {
                yield_now().await;
            }
        });
        set_rank(1_000);
        yield_now().await;
        *patient.lock().await = true;
        let _ = tell.send(());
    });
    told.await.expect("its turn comes");
    assert!(*is_over.lock().await);
}
