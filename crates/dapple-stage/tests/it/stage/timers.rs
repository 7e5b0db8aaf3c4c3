//! Stages on a runtime without timers: a bare scheduler, on which other drivers may run.

use std::convert::Infallible;
use std::future::pending;
use std::sync::mpsc::channel;
use std::time::Duration;

use dapple_sched::Runtime;
use dapple_stage::{Reason, Stage, StageError};

/// Runs it on a bare scheduler, with a limit, so that a wait for a timer that never fires does not
/// hang the tests.
fn on_a_bare_runtime<F: Future<Output = ()>>(scene: impl FnOnce() -> F + Send + 'static) {
    let (tx, rx) = channel();
    let thread = std::thread::spawn(move || {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        runtime.block_on(scene());
        tx.send(()).ok();
    });
    let ended = rx.recv_timeout(Duration::from_secs(60));
    assert_ne!(ended, Err(std::sync::mpsc::RecvTimeoutError::Timeout), "it waits for ever");
    thread.join().unwrap();
}

#[test]
fn a_rate_lets_the_next_one_go() {
    on_a_bare_runtime(|| async {
        let stage = Stage::builder("rate").rate(1, Duration::from_millis(5)).wrap_sync(|n: u32| n);
        for n in 0..3 {
            assert_eq!(stage.ask(n).await, Ok(n));
        }
    });
}

#[test]
fn deadlines_and_time_limits_pass() {
    on_a_bare_runtime(|| async {
        let never = async |_: u32| pending::<Result<(), Infallible>>().await;
        let stage = Stage::builder("slow").time_limit(Duration::from_millis(5)).wrap_fn(never);
        assert!(matches!(stage.ask(1).await, Err(StageError::Expired(_))));
        let stage = Stage::builder("full").width(1).queue_len_max(1).wrap_fn(never);
        let (_served, waiting) = (stage.ask(1).now(), stage.ask(2).within(Duration::from_millis(5)));
        let reason = waiting.await.unwrap_err().refused().map(|refused| refused.reason.clone());
        assert_eq!(reason, Some(Reason::Deadline));
        let (_waiting, in_line) = (stage.ask(3).now(), stage.ask(4).within(Duration::from_millis(5)));
        let reason = in_line.await.unwrap_err().refused().map(|refused| refused.reason.clone());
        assert_eq!(reason, Some(Reason::Deadline));
    });
}

#[test]
fn a_replica_that_died_is_started_again() {
    on_a_bare_runtime(|| async {
        let mut starts = 0;
        let stage = Stage::builder("replicated").width(1).replicate(1..=2, move |_| {
            starts += 1;
            assert!(starts > 2, "as the test wants");
            Stage::builder("replica").wrap_sync(|n: u32| n)
        });
        assert_eq!(stage.ask(7).await, Ok(7));
    });
}
