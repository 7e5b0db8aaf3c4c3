//! Cancellation tokens between colors and threads, and without tokio.

use std::future::pending;

use dapple_sched::{block_on, spawn, yield_now};
use dapple_sync::task::CancellationToken;

use crate::{run, thread};

#[test]
fn across_colors_and_from_a_plain_thread() {
    run(2, async {
        let token = CancellationToken::new();
        let waiters: Vec<_> = (0..1_000)
            .map(|_| {
                let child = token.child_token();
                spawn(async move { child.cancelled().await })
            })
            .collect();
        let theirs = token.clone();
        let plain = thread(move || block_on(theirs.cancelled()));
        let ours = token.clone();
        thread(move || ours.cancel()).await;
        plain.await;
        for waiter in waiters {
            waiter.await.unwrap();
        }
    });
}

#[test]
fn waiting_leaves_the_worker_to_others() {
    run(1, async {
        let token = CancellationToken::new();
        let ours = token.clone();
        let waiter = spawn(async move { ours.run_until_cancelled(pending::<()>()).await });
        for _ in 0..100 {
            yield_now().await;
        }
        assert!(!waiter.is_finished());
        token.cancel();
        assert_eq!(waiter.await.unwrap(), None);
    });
}

#[test]
fn children_do_not_cancel_their_parents_and_guards_do_when_dropped() {
    let parent = CancellationToken::new();
    let child = parent.child_token();
    child.cancel();
    assert!(child.is_cancelled() && !parent.is_cancelled());
    let other = parent.child_token();
    drop(parent.drop_guard());
    assert!(other.is_cancelled());
    block_on(async {
        for _ in 0..if cfg!(miri) { 100 } else { 10_000 } {
            other.cancelled().await;
        }
    });
}
