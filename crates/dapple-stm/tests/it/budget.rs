//! C7: transactions that have nothing to wait for let others go now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dapple_sched::spawn;
use dapple_stm::{Abort, TVar, atomically, atomically_or_abort};

use crate::support::runtime;

/// More rounds than any budget has.
const MANY: u32 = 1_000;

/// Checks, with one worker, that a task which goes this round again and again lets another start.
macro_rules! lets_others_go {
    ($name:expr, $round:block) => {
        runtime(1).block_on(async {
            let rounds = spawn(async move {
                let started = Arc::new(AtomicBool::new(false));
                drop(spawn({
                    let started = started.clone();
                    async move { started.store(true, Relaxed) }
                }));
                let mut rounds = 0;
                while rounds < MANY && !started.load(Relaxed) {
                    $round
                    rounds += 1;
                }
                rounds
            });
            assert!(rounds.await.unwrap() < MANY, "{}: no other task has started", $name);
        })
    };
}

#[test]
fn c7_transactions_let_others_go() {
    let var = TVar::new(0);
    lets_others_go!("one that writes", {
        let var = var.clone();
        atomically(move |tx| {
            let now = tx.read(&var)?;
            tx.write(&var, now + 1)
        })
        .await;
    });
    let var = TVar::new(0);
    lets_others_go!("one that reads", {
        let var = var.clone();
        assert_eq!(atomically(move |tx| tx.read(&var)).await, 0);
    });
    lets_others_go!("one that gives up", {
        let given_up: Result<(), ()> = atomically_or_abort(|_tx| Err(Abort::Error(()))).await;
        given_up.unwrap_err();
    });
}
