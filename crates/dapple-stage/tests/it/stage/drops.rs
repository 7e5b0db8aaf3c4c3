//! Requests, responses and errors that panic on drop: other waiting requests are still served.

use std::convert::Infallible;
use std::time::Duration;

use dapple_stage::{Reason, Stage, StageError};

use super::support::{Gate, until};

/// Panics on drop, unless it is disarmed or the thread already panics.
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0 || std::thread::panicking(), "as the test wants");
    }
}

fn is_late<T>(result: Result<T, StageError<Infallible>>) -> bool {
    result.is_err_and(|error| error.refused().is_some_and(|refused| refused.reason == Reason::Deadline))
}

/// Serves one at a time, each after a permit of the gate. Disarms what it serves.
fn disarmed(name: &str, gate: &Gate) -> Stage<Bomb, (), Infallible> {
    let gate = gate.clone();
    Stage::builder(name).width(1).wrap_fn(move |bomb: Bomb| {
        std::mem::forget(bomb);
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok(())
        }
    })
}

#[dapple::test]
async fn a_request_that_comes_too_late() {
    let gate = Gate::new();
    let stage = disarmed("late", &gate);
    let first = stage.ask(Bomb(false)).now();
    let late = stage.ask(Bomb(true)).within(Duration::from_millis(1)).now();
    let last = stage.ask(Bomb(false)).now();
    assert!(is_late(late.await));
    assert!(is_late(stage.ask(Bomb(true)).within(Duration::ZERO).await));
    gate.open(2);
    assert_eq!((first.await, last.await), (Ok(()), Ok(())));
}

#[dapple::test]
async fn a_request_that_is_taken_back() {
    let gate = Gate::new();
    let stage = disarmed("taken back", &gate);
    let first = stage.ask(Bomb(false)).now();
    until(&stage, |stats| stats.in_service == 1).await;
    drop(stage.ask(Bomb(true)).now());
    assert_eq!(stage.stats().canceled, 1);
    gate.open(2);
    assert_eq!((first.await, stage.ask(Bomb(false)).await), (Ok(()), Ok(())));
}

#[dapple::test]
async fn a_response_that_is_not_wanted() {
    let stage = Stage::builder("unwanted").width(1).wrap_sync(|n: u32| (n, Bomb(n == 0)));
    for n in 1..20 {
        stage.ask(0).and_forget().unwrap();
        let (served, bomb) = stage.ask(n).await.unwrap();
        assert!(served == n && !bomb.0);
    }
}

#[dapple::test]
async fn more_results_than_a_cohort_had_requests() {
    let stage = Stage::builder("generous").width(1).wrap_cohorts(8, async |numbers: Vec<u32>| {
        let results = numbers.into_iter().map(|n| Ok::<_, Infallible>((n, Bomb(false))));
        results.chain([Ok((0, Bomb(true)))]).collect()
    });
    for n in 1..20 {
        assert_eq!(stage.ask(n).await.unwrap().0, n);
    }
}

#[dapple::test]
async fn a_response_that_the_next_stage_refuses() {
    let full =
        Stage::builder("full").width(1).queue_bytes_max(1, |_: &(u32, Bomb)| 2).wrap_sync(|(n, _): (u32, Bomb)| n);
    let stage = Stage::builder("first").width(1).wrap_sync(|n: u32| (n, Bomb(true)));
    let pipeline = stage.then(full);
    for n in 1..20 {
        assert!(pipeline.ask(n).await.is_err());
    }
}
