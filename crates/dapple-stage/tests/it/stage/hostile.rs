//! Requests, responses, services and callers that behave badly: no other request waits for ever.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_stage::{Reason, Refused, Stage, StageError, Supervision};
use dapple_sync::sync::Semaphore;
use dapple_tower::middleware::{ConcurrencyLimit, Shed};
use tower::service_fn;
use tower_service::Service;

use super::support::{Gate, until};

/// Panics on drop, if armed.
struct Panics(Option<Arc<AtomicBool>>);

impl Drop for Panics {
    fn drop(&mut self) {
        if let Some(has_panicked) = &self.0 {
            has_panicked.store(true, SeqCst);
            panic!("on purpose");
        }
    }
}

fn one_that_panics() -> (Panics, Arc<AtomicBool>) {
    let has_panicked = Arc::new(AtomicBool::new(false));
    (Panics(Some(has_panicked.clone())), has_panicked)
}

#[dapple::test]
async fn a_request_that_panics_on_drop_stops_no_other() {
    let gate = Gate::new();
    let inner = gate.clone();
    let stage = Stage::builder("s").width(1).wrap_fn(move |request: Panics| {
        let gate = inner.clone();
        async move {
            let _request = request;
            gate.pass().await;
            Ok::<_, Infallible>(())
        }
    });
    let first = stage.ask(Panics(None)).now();
    until(&stage, |stats| stats.in_service == 1).await;
    let (too_late, has_panicked) = one_that_panics();
    let too_late = stage.ask(too_late).within(Duration::from_millis(10)).now();
    assert_eq!(too_late.await.unwrap_err().refused().unwrap().reason, Reason::Deadline);
    assert!(has_panicked.load(SeqCst));
    let (given_up, has_panicked) = one_that_panics();
    drop(stage.ask(given_up).now());
    assert!(has_panicked.load(SeqCst));
    let last = stage.ask(Panics(None)).now();
    gate.open(2);
    assert_eq!((first.await, last.await), (Ok(()), Ok(())));
    let (waits, has_panicked) = one_that_panics();
    let served = stage.ask(Panics(None)).now();
    until(&stage, |stats| stats.in_service == 1).await;
    stage.ask(waits).and_forget().unwrap();
    let stopping = stage.stop_now();
    assert!(has_panicked.load(SeqCst));
    gate.open(1);
    stopping.await;
    assert_eq!(served.await, Ok(()));
}

#[dapple::test]
async fn a_response_that_panics_on_drop_stops_no_other() {
    let stage = Stage::builder("s").width(1).wrap_fn(async |response: Panics| Ok::<_, Infallible>(response));
    let (panics, has_panicked) = one_that_panics();
    // The response is not wanted.
    stage.ask(panics).and_forget().unwrap();
    assert!(stage.ask(Panics(None)).await.is_ok());
    assert!(has_panicked.load(SeqCst));
    stage.stop().await;
}

#[dapple::test]
async fn a_stage_can_be_stopped_at_once_when_no_handler_can_be_made() {
    // It never stops by itself.
    let supervision = Supervision { deaths_max: 0, ..Supervision::default() };
    let stage = Stage::builder("s").width(1).supervision(supervision).wrap_with(|| {
        if true {
            panic!("on purpose");
        }
        service_fn(async |n: u32| Ok::<_, Infallible>(n))
    });
    let response = stage.ask(1).now();
    sleep(Duration::from_secs(3)).await;
    stage.stop_now().await;
    assert_eq!(response.await.unwrap_err().refused().unwrap().reason, Reason::Stopping);
}

#[dapple::test]
async fn a_handler_that_was_given_up_while_it_waited_leaves_its_line() {
    let places = Arc::new(Semaphore::new(1));
    let taken = places.clone().try_acquire_owned().unwrap();
    let limit = ConcurrencyLimit::with_semaphore(service_fn(async |n: u32| Ok::<_, Infallible>(n)), places.clone());
    let stage = Stage::builder("s").width(1).wrap(limit);
    let response = stage.ask(1).now();
    until(&stage, |stats| stats.in_service == 1).await;
    drop(response);
    until(&stage, |stats| stats.in_service == 0).await;
    drop(taken);
    let _others = places.clone().acquire_owned().await.unwrap();
    assert_eq!(stage.stats().canceled, 1);
}

#[dapple::test]
async fn of_combined_services_the_one_that_is_not_called_keeps_no_place() {
    let gate = Gate::new();
    let inner = gate.clone();
    let left = service_fn(move |n: u32| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(n)
        }
    });
    let right = ConcurrencyLimit::new(service_fn(async |n: u32| Ok::<_, Infallible>(n)), 1);
    let both = Stage::builder("both").width(2).combine(left, right);
    let calls = [1, 2].map(|n| both.left().call(n));
    until(both.stage(), |stats| stats.in_service == 2).await;
    gate.open(2);
    for (n, call) in [1, 2].into_iter().zip(calls) {
        assert_eq!(call.await, Ok(n));
    }
    assert_eq!(both.right().ask(3).await, Ok(3));
}

#[dapple::test]
async fn a_shed_before_a_stage_stands_in_no_line() {
    let gate = Gate::new();
    let inner = gate.clone();
    let stage = Stage::builder("s").width(1).queue_len_max(1).wrap_fn(move |n: u32| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(n)
        }
    });
    let first = stage.ask(1).now();
    until(&stage, |stats| stats.in_service == 1).await;
    let second = stage.ask(2).now();
    let mut shed = Shed::new(stage.clone());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Service::<u32>::poll_ready(&mut shed, &mut cx).is_ready());
    let refused = shed.call(3).await.unwrap_err();
    assert_eq!(Refused::find(&*refused).unwrap().reason, Reason::Full { len: 1 });
    gate.open(2);
    assert_eq!((first.await, second.await), (Ok(1), Ok(2)));
    gate.open(1);
    let mut other = stage.clone();
    assert!(matches!(Service::<u32>::poll_ready(&mut other, &mut cx), Poll::Ready(Ok(()))), "the place is free");
    assert_eq!(other.call(4).await, Ok::<_, StageError<Infallible>>(4));
}
