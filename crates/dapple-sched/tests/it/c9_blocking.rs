//! C9: blocking forms refuse to run on a worker, and say what to write instead.

use std::sync::Mutex;
use std::time::Duration;

use dapple_sched::{Color, Colored, Runtime, block_on, on_worker, spawn};

use crate::support::{collector, occupy, runtime};

#[test]
fn c9_blocking_forms_refuse_on_a_worker() {
    let runtime = runtime(1);
    assert!(!on_worker());
    runtime.block_on(async {
        let state = Colored::new(0);
        let failed = spawn(async move {
            assert!(on_worker());
            state.with_blocking(|n| *n)
        });
        let failed = failed.await.unwrap_err().to_string();
        assert!(failed.contains("await `with`"), "{failed}");
        let failed = spawn(async { block_on(async {}) }).await.unwrap_err().to_string();
        assert!(failed.contains("block a worker"), "{failed}");
    });
}

#[test]
fn c9_blocking_while_holding_a_state_is_refused() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (a, b) = (Colored::new(1), Colored::new(2));
    let refused =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| a.with_blocking(|_| b.with_blocking(|n| *n))));
    let message = refused.unwrap_err();
    assert!(message.downcast_ref::<&str>().unwrap().contains("can deadlock"));
}

#[test]
fn c9_a_callback_that_does_not_end_is_reported_with_its_color() {
    for workers in [1, 2] {
        let (tx, reports) = collector();
        let tx = Mutex::new(tx);
        let runtime = Runtime::builder()
            .workers(workers)
            .slow_callback(Duration::from_millis(20), move |slow| tx.lock().unwrap().send(slow.clone()).unwrap())
            .build()
            .unwrap();
        let _entered = runtime.enter();
        for color in [Color::named(77), Color::DEFAULT] {
            let gate = occupy(&color);
            let slow = reports.next();
            assert_eq!(slow.color_id, color.id());
            assert!(slow.worker < workers);
            assert!(slow.running_for >= Duration::from_millis(20));
            gate.open();
        }
    }
}
