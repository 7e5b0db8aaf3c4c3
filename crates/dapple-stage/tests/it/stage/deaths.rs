//! Handlers that panic, and versions that take over.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_io::time::Instant;
use dapple_stage::{Reason, Stage, StageError, Status, Supervision};
use tower_service::Service;

use super::support::{Gate, eventually, until};

#[dapple::test]
async fn a_panic_ends_one_request_only() {
    let stage = Stage::builder("panics").width(2).wrap_fn(async |n: u32| {
        assert!(n != 3, "three is too much");
        Ok::<_, Infallible>(n)
    });
    let responses: Vec<_> = (0..6).map(|n| stage.ask(n).now()).collect();
    for (n, response) in (0..).zip(responses) {
        match response.await {
            Ok(result) => assert_eq!(result, n),
            Err(StageError::Panicked(message)) => {
                assert_eq!((n, message), (3, "three is too much".to_owned()));
            }
            Err(other) => panic!("{other}"),
        }
    }
    let stats = stage.stats();
    assert_eq!((stats.panicked, stats.served), (1, 5));
    until(&stage, |stats| stats.status == Status::Running).await;
}

/// Counts its requests, and dies of some.
struct Counts {
    seen: u32,
    alive: Arc<AtomicUsize>,
}

impl Counts {
    fn new(alive: &Arc<AtomicUsize>) -> Counts {
        alive.fetch_add(1, SeqCst);
        Counts { seen: 0, alive: alive.clone() }
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

impl Service<&'static str> for Counts {
    type Response = u32;
    type Error = &'static str;
    type Future = Ready<Result<u32, &'static str>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        if self.seen == 100 { Poll::Ready(Err("it is worn out")) } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, request: &'static str) -> Self::Future {
        self.seen += 1;
        match request {
            "panic" => panic!("on purpose"),
            "wear out" => self.seen = 100,
            _ => {}
        }
        ready(Ok(self.seen))
    }
}

#[dapple::test]
async fn a_handler_that_died_is_made_anew_and_the_queue_is_kept() {
    let alive = Arc::new(AtomicUsize::new(0));
    let inner = alive.clone();
    let stage = Stage::builder("state").width(1).wrap_with(move || Counts::new(&inner));
    let start = Instant::now();
    let requests = ["a", "b", "panic", "c", "panic", "panic", "d", "wear out", "e", "f"];
    let responses: Vec<_> = requests.into_iter().map(|request| stage.ask(request).now()).collect();
    let mut results = Vec::new();
    for response in responses {
        results.push(match response.await {
            Ok(seen) => seen.to_string(),
            Err(error) => error.to_string(),
        });
    }
    let panicked = "the handler panicked: on purpose";
    let worn = "it is worn out";
    assert_eq!(results, ["1", "2", panicked, "1", panicked, panicked, "1", "100", worn, "1"]);
    // 10 ms after each first death, 20 after a second in a row.
    assert_eq!(start.elapsed(), Duration::from_millis(10 + 10 + 20 + 10));
    assert_eq!((stage.stats().restarts, alive.load(SeqCst)), (4, 1));
}

fn hopeless(deaths: u32) -> Stage<u32, u32> {
    let supervision = Supervision { deaths_max: deaths, ..Supervision::default() };
    Stage::builder("hopeless")
        .width(1)
        .supervision(supervision)
        .wrap_sync(|n| if n < 100 { panic!("always") } else { n })
}

#[dapple::test]
async fn a_stage_that_keeps_dying_is_taken_out_until_it_is_replaced() {
    let stage = hopeless(4);
    let responses: Vec<_> = (0..10).map(|n| stage.ask(n).now()).collect();
    let mut panicked = 0;
    for response in responses {
        match response.await.unwrap_err() {
            StageError::Panicked(_) => panicked += 1,
            error => assert_eq!(error.refused().unwrap().reason, Reason::Unavailable),
        }
    }
    assert_eq!((panicked, stage.stats().status), (4, Status::Out));
    let refused = stage.ask(100).await.unwrap_err();
    assert_eq!(refused.refused().unwrap().reason, Reason::Unavailable);
    stage.replace_sync(|n| n + 1);
    assert_eq!(stage.ask(100).await, Ok(101));
    assert_eq!(stage.stats().status, Status::Running);
}

#[dapple::test]
async fn a_factory_that_panics_loses_no_request() {
    let tries = Arc::new(AtomicUsize::new(0));
    let inner = tries.clone();
    let alive = Arc::new(AtomicUsize::new(0));
    let stage = Stage::builder("factory").width(2).wrap_with(move || {
        assert!(inner.fetch_add(1, SeqCst) >= 3, "not yet");
        Counts::new(&alive)
    });
    let responses: Vec<_> = (0..4).map(|_| stage.ask("x").now()).collect();
    for response in responses {
        response.await.unwrap();
    }
    assert!(tries.load(SeqCst) >= 4);
    assert_eq!((stage.stats().served, stage.stats().panicked), (4, 0));
}

#[dapple::test]
async fn a_factory_that_always_panics_takes_the_stage_out() {
    let stage: Stage<&str, u32, &str> = Stage::builder("never").wrap_with(|| -> Counts { panic!("never") });
    let responses: Vec<_> = (0..3).map(|_| stage.ask("x").now()).collect();
    for response in responses {
        assert_eq!(response.await.unwrap_err().refused().unwrap().reason, Reason::Unavailable);
    }
    assert_eq!(stage.stats().status, Status::Out);
}

#[dapple::test]
async fn a_new_version_takes_over_without_losing_a_request() {
    let gate = Gate::new();
    let version = |version: u32| {
        let gate = gate.clone();
        move |n: u32| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<_, Infallible>((version, n))
            }
        }
    };
    let stage = Stage::builder("versions").width(2).wrap_fn(version(1));
    let responses: Vec<_> = (0..6).map(|n| stage.ask(n).now()).collect();
    eventually(|| gate.inside().0 == 2).await;
    stage.replace_fn(version(2));
    let later = stage.ask(6).now();
    gate.open(7);
    let mut versions = Vec::new();
    for (n, response) in (0..).zip(responses.into_iter().chain([later])) {
        let (version, served) = response.await.unwrap();
        assert_eq!(served, n);
        versions.push(version);
    }
    assert_eq!(versions, [1, 1, 2, 2, 2, 2, 2], "requests in service finish in the old version");
    assert_eq!((stage.stats().replaced, stage.stats().served), (1, 7));
}

#[dapple::test(workers = 4)]
async fn versions_change_under_load() {
    let stage = Stage::builder("load").width(3).wrap_sync(|n: u32| (0, n));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let stage = stage.clone();
            dapple::spawn(async move {
                for n in 0..500 {
                    let n = 1_000 * caller + n;
                    assert_eq!(stage.ask(n).await.unwrap().1, n);
                }
            })
        })
        .collect();
    for version in 1..50 {
        stage.replace_sync(move |n| (version, n));
        dapple_sched::yield_now().await;
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(stage.ask(1).await, Ok((49, 1)));
    until(&stage, |stats| stats.served == 2_001 && stats.in_service == 0).await;
}

/// A service that panics in its next clones and readiness checks, this many of each.
#[derive(Default)]
struct Fragile {
    clones: Arc<AtomicUsize>,
    looks: Arc<AtomicUsize>,
}

/// Panics if that is due.
fn fall(due: &AtomicUsize) {
    let is_due = due.fetch_update(SeqCst, SeqCst, |due| due.checked_sub(1)).is_ok();
    assert!(!is_due, "on purpose");
}

impl Clone for Fragile {
    fn clone(&self) -> Fragile {
        fall(&self.clones);
        Fragile { clones: self.clones.clone(), looks: self.looks.clone() }
    }
}

impl Service<u32> for Fragile {
    type Response = u32;
    type Error = &'static str;
    type Future = std::future::Ready<Result<u32, &'static str>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        fall(&self.looks);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, n: u32) -> Self::Future {
        std::future::ready(Ok(n))
    }
}

#[dapple::test]
async fn panics_of_clones_and_of_readiness_count_and_lose_nothing() {
    let fragile = Fragile::default();
    let (clones, looks) = (fragile.clones.clone(), fragile.looks.clone());
    clones.store(2, SeqCst);
    let stage = Stage::builder("fragile").width(1).wrap(fragile);
    assert_eq!(stage.ask(1).await, Ok(1), "the request waits for a handler");
    assert_eq!((clones.load(SeqCst), stage.stats().restarts), (0, 1));
    looks.store(1, SeqCst);
    assert!(matches!(stage.ask(2).await, Err(StageError::Panicked(_))));
    assert_eq!(stage.ask(3).await, Ok(3));
    assert_eq!((stage.stats().panicked, stage.stats().restarts, stage.stats().in_service), (1, 2, 0));
    clones.store(usize::MAX, SeqCst);
    looks.store(1, SeqCst);
    assert!(stage.ask(4).await.is_err());
    assert_eq!(stage.ask(5).await.unwrap_err().refused().unwrap().reason, Reason::Unavailable);
    assert_eq!(stage.stats().status, Status::Out, "it keeps dying");
}

/// The results of a cohort, in a future with a destructor that panics.
struct Falls(Vec<u32>, Arc<AtomicUsize>);

impl Future for Falls {
    type Output = Vec<Result<u32, &'static str>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(std::mem::take(&mut self.0).into_iter().map(Ok).collect())
    }
}

impl Drop for Falls {
    fn drop(&mut self) {
        fall(&self.1);
    }
}

#[dapple::test]
async fn a_destructor_that_panics_takes_no_result_along() {
    let due = Arc::new(AtomicUsize::new(1));
    let inner = due.clone();
    let stage = Stage::builder("falls").width(1).wrap_cohorts(4, move |all: Vec<u32>| Falls(all, inner.clone()));
    let asked: Vec<_> = (0..4).map(|n| stage.ask(n).now()).collect();
    for (n, answer) in asked.into_iter().enumerate() {
        assert_eq!(answer.await, Ok(n as u32));
    }
    assert_eq!((due.load(SeqCst), stage.stats().served, stage.stats().in_service), (0, 4, 0));
}
