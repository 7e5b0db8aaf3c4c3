//! Aggregation: each source has its room and its turn, and canceled messages are removed.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::spawn;
use dapple_stage::operators::aggregate::{Aggregate, Discipline};
use dapple_stage::operators::direct::FlowControlled;
use dapple_stage::{BoxError, Refused};
use tower::{ServiceExt, service_fn};
use tower_service::Service;

type Log = Arc<Mutex<Vec<u32>>>;

fn logging(
    log: &Log,
) -> impl Service<u32, Response = u32, Error = Infallible, Future: Send + 'static> + Clone + Send + use<> {
    let log = log.clone();
    service_fn(move |n: u32| {
        log.lock().unwrap().push(n);
        ready(Ok(n))
    })
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[dapple::test]
async fn disciplines_decide_when_the_sink_is_ready() {
    for (discipline, expected) in [
        (Discipline::Fifo, [1, 2, 3, 10, 20]),
        (Discipline::RoundRobin, [1, 10, 20, 2, 3]),
        (Discipline::Priority { bypass_max: None }, [20, 1, 10, 2, 3]),
    ] {
        let log = Log::default();
        let (aggregate, pump) = Aggregate::new(logging(&log), discipline);
        let (mut a, mut b, mut c) = (aggregate.source(9), aggregate.source(9), aggregate.source_with_priority(9, 1));
        let mut responses = Vec::new();
        for n in [1, 2, 3] {
            responses.push(a.ready().await.unwrap().call(n));
        }
        responses.push(b.ready().await.unwrap().call(10));
        responses.push(c.ready().await.unwrap().call(20));
        assert_eq!(aggregate.len(), 5);
        drop((a, b, c, aggregate));
        let pump = spawn(pump);
        for response in responses {
            response.await.unwrap();
        }
        pump.await.unwrap();
        assert_eq!(*log.lock().unwrap(), expected, "{discipline:?}");
    }
}

#[dapple::test]
async fn a_full_source_waits_and_holds_up_no_other() {
    let log = Log::default();
    let (aggregate, pump) = Aggregate::new(logging(&log), Discipline::RoundRobin);
    let (mut full, mut other) = (aggregate.source(2), aggregate.source(2));
    let _one = full.ready().await.unwrap().call(1);
    let two = full.ready().await.unwrap().call(2);
    assert!(poll_once(pin!(full.ready())).is_pending());
    let three = other.ready().await.unwrap().call(3);
    // A canceled message makes room.
    drop(two);
    let four = full.ready().await.unwrap().call(4);
    let pump = spawn(pump);
    assert_eq!((three.await.unwrap(), four.await.unwrap()), (3, 4));
    drop((full, other, aggregate));
    pump.await.unwrap();
    let mut ran = log.lock().unwrap().clone();
    ran.sort_unstable();
    assert_eq!(ran, [1, 3, 4], "a message canceled while it waited did not run");
}

#[dapple::test]
async fn without_a_pump_all_messages_fail() {
    let (aggregate, pump) = Aggregate::new(logging(&Log::default()), Discipline::Fifo);
    let mut source = aggregate.source(4);
    let waits = source.ready().await.unwrap().call(1);
    drop(pump);
    let is_refused = |result: Result<u32, BoxError>| Refused::find(&*result.unwrap_err()).is_some();
    assert!(is_refused(waits.await));
    assert!(is_refused(source.oneshot(2).await));
}

#[dapple::test]
async fn a_sink_that_fails_to_get_ready_fails_one_message_at_a_time() {
    #[derive(Clone)]
    struct Moody(Arc<Mutex<u32>>);
    impl Service<u32> for Moody {
        type Response = u32;
        type Error = BoxError;
        type Future = std::future::Ready<Result<u32, BoxError>>;

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            let mut count = self.0.lock().unwrap();
            *count += 1;
            Poll::Ready(if count.is_multiple_of(2) { Err("moody".into()) } else { Ok(()) })
        }

        fn call(&mut self, n: u32) -> Self::Future {
            ready(Ok(n))
        }
    }
    let (aggregate, pump) = Aggregate::new(Moody(Arc::default()), Discipline::Fifo);
    let mut source = aggregate.source(9);
    let mut responses = Vec::new();
    for n in 0..6 {
        responses.push(source.ready().await.unwrap().call(n));
    }
    let _pump = spawn(pump);
    let mut results = Vec::new();
    for response in responses {
        results.push(response.await.is_ok());
    }
    assert_eq!(results, [true, false, true, false, true, false]);
}

/// Many sources with a bounded sink; some cancel. Each answered message ran once, and all are
/// answered.
#[dapple::test]
async fn nothing_is_lost_or_doubled() {
    let log = Log::default();
    let worker = {
        let log = log.clone();
        service_fn(move |n: u32| {
            let log = log.clone();
            async move {
                sleep(Duration::from_millis(u64::from(n % 5))).await;
                log.lock().unwrap().push(n);
                Ok::<_, Infallible>(n)
            }
        })
    };
    let (aggregate, pump) = Aggregate::new(FlowControlled::new(worker, 4), Discipline::RoundRobin);
    let pump = spawn(pump);
    let tasks: Vec<_> = (0..20)
        .map(|source_number: u32| {
            let source = aggregate.source(3);
            spawn(async move {
                let mut answered = Vec::new();
                for n in 0..40 {
                    let n = source_number * 100 + n;
                    let mut source = source.clone();
                    let mut response = Box::pin(source.ready().await.unwrap().call(n));
                    if u32::is_multiple_of(n, 3) {
                        let _pending = poll_once(response.as_mut());
                        continue;
                    }
                    answered.push(response.await.unwrap());
                }
                answered
            })
        })
        .collect();
    drop(aggregate);
    let mut answered = Vec::new();
    for task in tasks {
        answered.extend(task.await.unwrap());
    }
    pump.await.unwrap();
    let ran = log.lock().unwrap().clone();
    for n in &answered {
        assert_eq!(ran.iter().filter(|other| *other == n).count(), 1);
    }
    let expected = (0..20).flat_map(|source| (0..40).map(move |n| source * 100 + n)).filter(|n| n % 3 > 0).count();
    assert_eq!(answered.len(), expected);
}
