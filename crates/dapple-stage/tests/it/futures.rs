//! Public futures that are dropped, forgotten or hit by a panic, in each of their states: the rows
//! of the table in `docs/safety.md`. `src/admission/gate/tests.rs` covers forgotten admissions.

use std::convert::Infallible;
use std::future::{Future, pending, ready};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use dapple_sched::Runtime;
use dapple_stage::graph::named;
use dapple_stage::operators::aggregate::{Aggregate, Discipline};
use dapple_stage::{BoxError, Reason, Refused, Stage, StageError, Supervision};
use dapple_sync::sync::Semaphore;
use dapple_tower::admission::{Admission, AdmissionLayer, Config};
use dapple_tower::balance::{Balance, Balancer, Config as BalanceConfig};
use dapple_tower::middleware::retry::Attempts;
use dapple_tower::middleware::{Buffer, ConcurrencyLimit, RetryLayer, Shed, TimeoutLayer};
use dapple_tower::throttle::{Rate, Throttle, ThrottleLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::bombs::{bomb, counting, drop_bomb};
use crate::lines::{lines, poll, wait_until};

/// A request: the action of the service, and an object that it holds meanwhile.
#[derive(Clone)]
struct Order(Wish, #[expect(dead_code, reason = "its references are counted")] Arc<()>);

#[derive(Clone)]
enum Wish {
    Answer,
    WaitForever,
    WaitFor(Arc<Semaphore>),
    Panic,
}

async fn serve(order: Order) -> io::Result<()> {
    match &order.0 {
        Wish::Answer => {}
        Wish::WaitForever => pending().await,
        Wish::WaitFor(semaphore) => semaphore.acquire().await.unwrap().forget(),
        // Not `panic!`: its hook would print.
        Wish::Panic => resume_unwind(Box::new("as the test says")),
    }
    Ok(())
}

type Answer = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;
type Ask = Box<dyn Fn(Order) -> Answer>;

fn ask<S>(service: S) -> Ask
where
    S: Service<Order, Response = (), Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    Box::new(move |order| {
        let answer = service.clone().oneshot(order);
        Box::pin(async move { answer.await.map_err(Into::into) })
    })
}

/// A future of each kind of service; each service takes at least two at a time.
fn asks() -> Vec<(&'static str, Ask)> {
    let inner = service_fn(serve);
    let throttle = Throttle::bucket(Rate::new(100, Duration::from_secs(3_600)));
    let balancer = Balancer::new(BalanceConfig::default());
    balancer.insert(1, inner);
    let supervision = || Supervision { deaths_max: 0, ..Supervision::default() };
    let stage = |name: &str| Stage::builder(name).width(2).supervision(supervision());
    let mut config = Config::with_target_delay(Duration::from_secs(3_600));
    config.processors = Some(2);
    vec![
        ("Timeout", ask(TimeoutLayer::new(Duration::from_secs(3_600)).layer(inner))),
        ("ConcurrencyLimit", ask(ConcurrencyLimit::new(inner, 2))),
        ("Retry", ask(RetryLayer::new(Attempts::new(3)).layer(inner))),
        ("Shed", ask(Shed::new(inner))),
        ("Buffer", ask(Buffer::new(inner, 2))),
        ("Throttled", ask(ThrottleLayer::new(throttle, |_: &Order| ((), 1)).layer(inner))),
        ("Balance", ask(Balance::new(balancer))),
        ("Admit", ask(AdmissionLayer::new(Admission::new(config)).layer(inner))),
        ("Stage", ask(stage("one").wrap(inner))),
        ("Pipeline", ask(stage("first").wrap_sync(|order: Order| order).then(named("next", inner)))),
        ("Replicated", ask(stage("many").replicate(2..=2, move |_| inner))),
    ]
}

fn runtime() -> Runtime {
    dapple_io::runtime_builder().workers(1).panic_handler(|_| ()).build().expect("a runtime can be built")
}

const DROPPED: (&str, fn(Answer)) = ("dropped", drop);
const FORGOTTEN: (&str, fn(Answer)) = ("forgotten", std::mem::forget);

#[test]
fn a_request_that_was_not_polled_is_not_served() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, ask) in asks() {
        for (end, over) in [DROPPED, FORGOTTEN] {
            let held = Arc::new(());
            over(ask(Order(Wish::Panic, held.clone())));
            assert_eq!(Arc::strong_count(&held) == 1, end == "dropped", "{name}");
            assert!(runtime.block_on(ask(Order(Wish::Answer, held))).is_ok(), "{name} {end}");
        }
    }
}

#[test]
fn a_request_that_is_dropped_while_it_is_served_is_given_up() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, ask) in asks() {
        let held = Arc::new(());
        for _ in 0..5 {
            let mut waits = ask(Order(Wish::WaitForever, held.clone()));
            assert!(poll(&mut waits, Waker::noop()).is_pending(), "{name}");
            drop(waits);
            // In a stage, the task drops it.
            wait_until(|| Arc::strong_count(&held) == 1);
        }
        assert!(runtime.block_on(ask(Order(Wish::Answer, held))).is_ok(), "{name}");
    }
}

#[test]
fn a_request_that_is_forgotten_while_it_is_served_keeps_its_place_only() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, ask) in asks() {
        let held = Arc::new(());
        let mut waits = ask(Order(Wish::WaitForever, held.clone()));
        assert!(poll(&mut waits, Waker::noop()).is_pending(), "{name}");
        std::mem::forget(waits);
        for _ in 0..5 {
            assert!(runtime.block_on(ask(Order(Wish::Answer, held.clone()))).is_ok(), "{name}");
        }
    }
}

#[test]
fn a_panic_ends_its_own_request_only() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, ask) in asks() {
        let held = Arc::new(());
        for _ in 0..5 {
            let panics = ask(Order(Wish::Panic, held.clone()));
            let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(panics)));
            // A stage returns an error; a layer passes the panic to the caller of `poll`.
            assert!(!matches!(ended, Ok(Ok(()))), "{name}");
            drop(ended);
            wait_until(|| Arc::strong_count(&held) == 1);
            assert!(runtime.block_on(ask(Order(Wish::Answer, held.clone()))).is_ok(), "{name}");
        }
    }
}

#[test]
fn a_waker_that_panics_loses_no_answer() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for bad in [bomb, drop_bomb] {
        for (name, ask) in asks() {
            let (held, semaphore) = (Arc::new(()), Arc::new(Semaphore::new(0)));
            let mut waits = ask(Order(Wish::WaitFor(semaphore.clone()), held.clone()));
            assert!(poll(&mut waits, &bad()).is_pending(), "{name}");
            let (calls, waker) = counting();
            let mut other = ask(Order(Wish::WaitFor(semaphore.clone()), held.clone()));
            assert!(poll(&mut other, &waker).is_pending(), "{name}");
            semaphore.add_permits(2);
            wait_until(|| poll(&mut waits, Waker::noop()).is_ready());
            wait_until(|| calls.count() > 0 && poll(&mut other, &waker).is_ready());
        }
    }
}

#[test]
fn a_wait_that_is_dropped_leaves_the_line() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for line in lines() {
        drop((line.wait)());
        let (calls, waker) = counting();
        let (mut first, mut next) = ((line.wait)(), (line.wait)());
        assert!(poll(&mut first, Waker::noop()).is_pending(), "{}", line.name);
        assert!(poll(&mut next, &waker).is_pending(), "{}", line.name);
        drop(first);
        (line.free)();
        wait_until(|| calls.count() > 0 && poll(&mut next, &waker).is_ready());
    }
}

#[test]
fn a_turn_that_is_dropped_goes_to_the_next() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for line in lines() {
        let ((first_calls, first_waker), (calls, waker)) = (counting(), counting());
        let (mut first, mut next) = ((line.wait)(), (line.wait)());
        assert!(poll(&mut first, &first_waker).is_pending(), "{}", line.name);
        assert!(poll(&mut next, &waker).is_pending(), "{}", line.name);
        (line.free)();
        wait_until(|| first_calls.count() > 0);
        drop(first);
        wait_until(|| calls.count() > 0 && poll(&mut next, &waker).is_ready());
    }
}

#[test]
fn a_forgotten_wait_for_a_replica_takes_nothing() {
    let balancer = Balancer::<u8, ()>::new(BalanceConfig::default());
    for polls in [false, true] {
        let mut wait = Box::pin(balancer.wait());
        assert!(!polls || poll(&mut wait, Waker::noop()).is_pending());
        std::mem::forget(wait);
    }
    let mut next = Box::pin(balancer.wait());
    assert!(poll(&mut next, Waker::noop()).is_pending());
    balancer.insert(1, ());
    assert!(poll(&mut next, Waker::noop()).is_ready());
}

#[test]
fn a_forgotten_wait_for_a_rate_uses_its_turn_up() {
    let throttle = Throttle::bucket(Rate::new(1, Duration::from_millis(5))).burst(1);
    for _ in 0..3 {
        std::mem::forget(throttle.until_ready(&(), 1));
        let mut waits = Box::pin(throttle.until_ready(&(), 1));
        let _ = poll(&mut waits, Waker::noop());
        std::mem::forget(waits);
    }
    dapple_sched::block_on(throttle.until_ready(&(), 1)).unwrap();
    assert_eq!(throttle.waiting_len(), 0);
}

#[test]
fn a_forgotten_wait_for_a_place_keeps_that_place_and_no_other() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let semaphore = Arc::new(Semaphore::new(0));
    let inner = semaphore.clone();
    let stage = Stage::builder("two places").width(1).queue_len_max(2).wrap_fn(move |(): ()| {
        let semaphore = inner.clone();
        async move {
            semaphore.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(())
        }
    });
    let served = stage.ask(()).now();
    wait_until(|| stage.stats().in_service == 1);
    let waiting = [(), ()].map(|()| stage.ask(()).now());
    let mut forgotten = Box::pin(stage.ask(()).into_future());
    assert!(poll(&mut forgotten, Waker::noop()).is_pending());
    std::mem::forget(forgotten);
    semaphore.add_permits(3);
    runtime.block_on(served).unwrap();
    waiting.into_iter().for_each(|response| runtime.block_on(response).unwrap());
    // One of two places is left, and the waiters use it in turn.
    for _ in 0..5 {
        semaphore.add_permits(2);
        let (one, other) = (stage.ask(()), stage.ask(()));
        runtime.block_on(async {
            one.await.unwrap();
            other.await.unwrap();
        });
    }
    runtime.block_on(stage.stop());
}

#[test]
fn a_stage_stops_also_when_its_waiters_go_away() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for polls in [false, true] {
        for (end, over) in [DROPPED, FORGOTTEN] {
            for at_once in [false, true] {
                let stage = Stage::builder("stops").width(1).wrap_fn(async |()| {
                    pending::<()>().await;
                    Ok::<_, Infallible>(())
                });
                let served = stage.ask(()).now();
                wait_until(|| stage.stats().in_service == 1);
                let mut stops: Answer = match at_once {
                    false => Box::pin({
                        let stops = stage.stop();
                        async move {
                            stops.await;
                            Ok(())
                        }
                    }),
                    true => Box::pin({
                        let stops = stage.stop_now();
                        async move {
                            stops.await;
                            Ok(())
                        }
                    }),
                };
                assert!(!polls || poll(&mut stops, Waker::noop()).is_pending());
                over(stops);
                let refused = runtime.block_on(stage.ask(()).into_future()).unwrap_err();
                assert!(matches!(&refused, StageError::Refused(Refused { reason: Reason::Stopping, .. })), "{end}");
                drop(served);
                runtime.block_on(stage.stop());
            }
        }
    }
}

#[test]
fn a_message_in_line_that_is_dropped_is_not_sent_and_one_that_is_forgotten_is() {
    let sink = service_fn(|n: u32| ready(Ok::<_, Infallible>(n)));
    let (aggregate, pump) = Aggregate::new(sink, Discipline::Fifo);
    let mut source = aggregate.source(3);
    let mut cx = Context::from_waker(Waker::noop());
    let mut send = |n| {
        assert!(source.poll_ready(&mut cx).is_ready());
        let mut sent = Box::pin(source.call(n));
        assert!(poll(&mut sent, Waker::noop()).is_pending());
        sent
    };
    let (dropped, forgotten, mut last) = (send(1), send(2), send(3));
    drop(dropped);
    std::mem::forget(forgotten);
    assert_eq!(aggregate.len(), 2);
    let mut pump = Box::pin(pump);
    assert!(poll(&mut pump, Waker::noop()).is_pending());
    assert!(aggregate.is_empty() && poll(&mut last, Waker::noop()).is_ready());
}

#[test]
fn messages_end_with_their_pump() {
    for forgotten in [false, true] {
        let sink = service_fn(|n: u32| ready(Ok::<_, Infallible>(n)));
        let (aggregate, pump) = Aggregate::new(sink, Discipline::Fifo);
        let mut source = aggregate.source(1);
        assert!(source.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
        let mut sent = Box::pin(source.call(1));
        assert!(poll(&mut sent, Waker::noop()).is_pending());
        if forgotten {
            std::mem::forget(pump)
        } else {
            drop(pump)
        }
        assert_eq!(poll(&mut sent, Waker::noop()).is_ready(), !forgotten, "with nothing to send them, they wait");
        drop(sent);
        assert!(aggregate.is_empty());
    }
}
