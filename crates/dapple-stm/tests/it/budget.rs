//! C7: transactions that never wait yield from time to time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dapple_sched::spawn;
use dapple_stm::{Abort, TVar, atomically, atomically_or_abort};

use crate::support::runtime;

/// More rounds than any budget has.
const MANY: u32 = 1_000;

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
