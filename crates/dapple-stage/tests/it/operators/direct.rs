//! Direct composition: lost messages are counted, waiting ones are served, and repeated ones run
//! once.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::spawn;
use dapple_stage::operators::direct::{
    AtMostOnce, BestEffort, Delivery, DeliveryError, FlowControlled, Order, Receipt, Receiver, Retransmit,
};
use dapple_stage::{Backoff, BoxError, Reason, Refused};
use tower::{ServiceExt, service_fn};
use tower_service::Service;

use super::lossy::{Lossy, Random};

/// The messages that ran, in order.
type Log = Arc<Mutex<Vec<u32>>>;

fn settings(attempts: u32, order: Order) -> Retransmit {
    let mut settings = Retransmit::default();
    settings.attempts = attempts;
    settings.backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    settings.order = order;
    settings
}

/// Logs its messages, each of which takes a while; refuses some, and fails those that end in 9.
fn worker(
    log: &Log,
    random: &Random,
) -> impl Service<u32, Response = u32, Error = BoxError, Future: Send> + Clone + Send + 'static {
    let (log, random) = (log.clone(), random.clone());
    service_fn(move |n: u32| {
        let (log, random) = (log.clone(), random.clone());
        async move {
            if random.below(10) == 0 {
                return Err(Refused::new(Reason::Rate, Duration::ZERO).into());
            }
            log.lock().unwrap().push(n);
            sleep(Duration::from_millis(random.below(30))).await;
            if n % 10 == 9 { Err("it ends in 9".into()) } else { Ok(n * 2) }
        }
    })
}

/// A receiver that restarts now and then, as if its process had died.
#[derive(Clone)]
struct Restarting<S: Service<u32>>(Arc<Mutex<Receiver<u32, S>>>);

impl<S> Service<Delivery<u32>> for Restarting<S>
where
    S: Service<u32, Response = u32, Error = BoxError, Future: Send> + Clone + Send + 'static,
{
    type Response = Receipt<u32>;
    type Error = BoxError;
    type Future = <Receiver<u32, S> as Service<Delivery<u32>>>::Future;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, delivery: Delivery<u32>) -> Self::Future {
        self.0.lock().unwrap().call(delivery)
    }
}

/// Sends 0 to 59 over a lossy network. Returns the outcome of each, and what ran.
async fn send_all(
    seed: u64,
    loss: u64,
    order: Order,
    restarts: bool,
) -> (BTreeMap<u32, Result<u32, DeliveryError>>, Vec<u32>) {
    let random = Random::new(seed);
    let log = Log::default();
    let worker = worker(&log, &random);
    let receiver = Restarting(Arc::new(Mutex::new(Receiver::new(worker.clone()))));
    let network = Lossy { service: receiver.clone(), random: random.clone(), loss, delay_ms: 120 };
    // Refusals happen on a good network, too, and delay the messages after them: with enough
    // attempts nothing is lost.
    let attempts = if loss == 0 { 30 } else { 6 };
    let mut sender = AtMostOnce::new(network, settings(attempts, order));
    let mut tasks = Vec::new();
    for n in 0..60 {
        let response = sender.ready().await.unwrap().call(n);
        tasks.push((n, spawn(response)));
        sleep(Duration::from_millis(random.below(60))).await;
        if restarts && random.below(15) == 0 {
            *receiver.0.lock().unwrap() = Receiver::new(worker.clone());
        }
    }
    let mut results = BTreeMap::new();
    for (n, task) in tasks {
        results.insert(n, task.await.unwrap());
    }
    // Late duplicates arrive, too.
    sleep(Duration::from_secs(60)).await;
    let ran = log.lock().unwrap().clone();
    (results, ran)
}

fn check(seed: u64, results: &BTreeMap<u32, Result<u32, DeliveryError>>, ran: &[u32]) {
    for (n, result) in results {
        let times = ran.iter().filter(|other| *other == n).count();
        match result {
            Ok(response) => assert_eq!((times, *response), (1, n * 2), "seed {seed}: {n}"),
            Err(DeliveryError::Failed(_)) => assert_eq!((times, n % 10), (1, 9), "seed {seed}: {n}"),
            Err(DeliveryError::NotDone(_)) => assert_eq!(times, 0, "seed {seed}: {n}"),
            Err(DeliveryError::Unknown(_)) => assert!(times <= 1, "seed {seed}: {n} ran {times} times"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[dapple::test]
async fn what_is_sent_again_runs_once_and_its_sender_knows() {
    let (mut done, mut failed, mut unknown) = (0, 0, 0);
    for seed in 0..40 {
        let (results, ran) = send_all(seed, [0, 15, 40, 70][seed as usize % 4], Order::Any, seed % 3 == 0).await;
        check(seed, &results, &ran);
        done += results.values().filter(|result| result.is_ok()).count();
        failed += results.values().filter(|result| matches!(result, Err(DeliveryError::Failed(_)))).count();
        unknown += results.values().filter(|result| matches!(result, Err(DeliveryError::Unknown(_)))).count();
    }
    assert!(done > 1000 && failed > 50 && unknown > 0, "{done} done, {failed} failed, {unknown} unknown: not a test");
}

#[dapple::test]
async fn messages_run_in_the_order_of_their_calls() {
    for seed in 0..24 {
        let order = if seed % 2 == 0 { Order::Gapless } else { Order::Skipping };
        let (results, ran) = send_all(seed, [0, 10, 30][seed as usize % 3], order, false).await;
        check(seed, &results, &ran);
        assert!(ran.is_sorted(), "seed {seed}: {ran:?}");
        if seed % 6 == 0 {
            assert_eq!(ran.len(), 60, "seed {seed}: nothing is lost on a good network");
        }
    }
}

#[dapple::test]
async fn without_a_receiver_nothing_is_done_and_that_is_known() {
    let refuses = service_fn(|_: Delivery<u32>| {
        ready(Err::<Receipt<u32>, BoxError>(Refused::new(Reason::Unavailable, Duration::ZERO).into()))
    });
    let error = AtMostOnce::new(refuses, settings(3, Order::Any)).oneshot(1).await.unwrap_err();
    assert!(matches!(&error, DeliveryError::NotDone(why) if why.contains("no replica")), "{error}");
    let silent = service_fn(|_: Delivery<u32>| pending::<Result<Receipt<u32>, BoxError>>());
    let error = AtMostOnce::new(silent, settings(3, Order::Any)).oneshot(1).await.unwrap_err();
    assert!(matches!(&error, DeliveryError::NotDone(why) if why.contains("not reached")), "{error}");
}

#[dapple::test]
async fn a_service_that_panics_has_failed_and_others_go_on() {
    let service = service_fn(|n: u32| async move {
        assert_ne!(n, 1, "one");
        Ok::<_, BoxError>(n)
    });
    let mut sender = AtMostOnce::new(Receiver::new(service), settings(3, Order::Gapless));
    let panics = spawn(sender.ready().await.unwrap().call(1));
    assert!(panics.await.is_err(), "the panic reaches the caller that polled");
    assert_eq!(sender.oneshot(2).await, Ok(2));
}

#[dapple::test]
async fn a_receiver_remembers_so_many_senders_and_runs_nothing_twice() {
    let log = Log::default();
    let receiver = {
        let log = log.clone();
        Receiver::new(service_fn(move |n: u32| {
            log.lock().unwrap().push(n);
            ready(Ok::<_, Infallible>(n))
        }))
        .senders_max(2)
    };
    let senders: Vec<_> = (0..5).map(|_| AtMostOnce::new(receiver.clone(), settings(3, Order::Any))).collect();
    for round in 0..3 {
        for (at, sender) in senders.iter().enumerate() {
            let n = round * 10 + at as u32;
            assert_eq!(sender.clone().oneshot(n).await, Ok(n), "a forgotten sender is known again");
        }
    }
    assert_eq!(receiver.senders_len(), 2);
    assert_eq!(log.lock().unwrap().len(), 15);
}

#[dapple::test]
async fn best_effort_waits_for_nothing_and_counts_all() {
    // Room for one message, which is never answered.
    let sink = FlowControlled::new(service_fn(|_: u32| pending::<Result<(), Infallible>>()), 1);
    let mut best_effort = BestEffort::new(sink);
    let first = best_effort.call(1);
    best_effort.call(2).await.unwrap();
    assert_eq!((best_effort.delivered(), best_effort.lost()), (0, 1));
    drop(first);
    assert_eq!(best_effort.lost(), 2, "a dropped message counts as lost");

    let (tx, rx) = std::sync::mpsc::channel();
    let mut best_effort = BestEffort::new(service_fn(move |n: u32| {
        let _gone = tx.send(n);
        ready(Ok::<_, Infallible>(()))
    }));
    assert!(best_effort.post(7));
    while best_effort.delivered() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(rx.try_iter().collect::<Vec<_>>(), [7]);
}

#[test]
fn best_effort_does_not_enter_a_waiting_line() {
    let sink = FlowControlled::new(service_fn(|_: u32| pending::<Result<(), Infallible>>()), 1);
    let (mut one, mut other) = (sink.clone(), sink.clone());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(one.poll_ready(&mut cx).is_ready());
    let first = one.call(1);
    let mut best_effort = BestEffort::new(sink);
    drop(best_effort.call(2));
    assert_eq!(best_effort.lost(), 1);
    drop(first);
    assert!(other.poll_ready(&mut cx).is_ready(), "the place is not kept for a message that was lost");
}

#[dapple::test]
async fn the_receiver_drops_what_its_sender_gave_up() {
    for is_known_later in [false, true] {
        let runs = Arc::new(());
        let service = {
            let runs = Arc::downgrade(&runs);
            service_fn(move |n: u32| {
                let runs = runs.upgrade();
                async move {
                    if n == 1 {
                        pending::<()>().await;
                    }
                    drop(runs);
                    Ok::<_, Infallible>(n)
                }
            })
        };
        let receiver = Receiver::new(service);
        let mut sender = AtMostOnce::new(receiver.clone(), settings(3, Order::Any));
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = sender.ready().await.unwrap().call(1);
        while Arc::strong_count(&runs) == 1 {
            assert!(first.as_mut().poll(&mut cx).is_pending());
        }
        if is_known_later {
            // Its number is released only when the receiver sees the next message.
            let second = sender.ready().await.unwrap().call(2);
            drop(first);
            assert_eq!(second.await, Ok(2));
        } else {
            drop(first);
        }
        assert_eq!(sender.clone().oneshot(3).await, Ok(3));
        assert_eq!(Arc::strong_count(&runs), 1, "it still runs, although nothing polls it");
        assert_eq!(receiver.senders_len(), 1);
    }
}

#[dapple::test]
async fn a_window_is_kept_and_waiters_get_their_turn() {
    let (now, most) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let sink = {
        let (now, most) = (now.clone(), most.clone());
        FlowControlled::new(
            service_fn(move |n: u32| {
                let (now, most) = (now.clone(), most.clone());
                async move {
                    {
                        let mut now = now.lock().unwrap();
                        *now += 1;
                        let mut most = most.lock().unwrap();
                        *most = (*most).max(*now);
                    }
                    sleep(Duration::from_millis(u64::from(n % 7))).await;
                    *now.lock().unwrap() -= 1;
                    Ok::<_, Infallible>(())
                }
            }),
            3,
        )
    };
    let tasks: Vec<_> = (0..100).map(|n| spawn(sink.clone().oneshot(n))).collect();
    // A waiter that gives up does not hold up the others.
    let mut hasty = sink.clone();
    let _pending = poll_fn(|cx| Poll::Ready(hasty.poll_ready(cx))).await;
    drop(hasty);
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!((*most.lock().unwrap(), sink.window().in_use()), (3, 0));
}

#[test]
fn a_window_that_grows_admits_waiters() {
    let sink = FlowControlled::new(service_fn(|_: u32| pending::<Result<(), Infallible>>()), 0);
    let (mut one, mut other) = (sink.clone(), sink.clone());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(one.poll_ready(&mut cx).is_pending() && other.poll_ready(&mut cx).is_pending());
    sink.window().set(1);
    assert!(other.poll_ready(&mut cx).is_pending(), "the other waiter has its turn");
    assert!(one.poll_ready(&mut cx).is_ready());
    let mut response = pin!(one.call(1));
    assert!(response.as_mut().poll(&mut cx).is_pending());
    assert_eq!(sink.window().in_use(), 1);
}

#[dapple::test]
async fn as_many_attempts_as_there_are_numbers() {
    let log = Log::default();
    let sender = AtMostOnce::new(Receiver::new(worker(&log, &Random::new(1))), settings(u32::MAX, Order::Gapless));
    assert!(sender.oneshot(2).await.is_ok());
    assert_eq!(*log.lock().unwrap(), [2]);
}
