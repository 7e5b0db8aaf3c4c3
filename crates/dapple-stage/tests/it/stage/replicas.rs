//! Replicas: their colors, their number, and their deaths.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::{pending, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_io::time::sleep;
use dapple_sched::Color;
use dapple_stage::{
    BoxError, Reason, Replica, Replicated, Replication, Retired, Stage, StageError, Status, Supervision,
};

use super::support::{Gate, eventually};

#[dapple::test]
async fn each_replica_has_a_color_and_serves_what_comes_when_it_is_free() {
    let gate = Gate::new();
    let inner = gate.clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let stage = Stage::builder("copies").width(1).replicate(3..=3, move |replica| {
        let (gate, log) = (inner.clone(), log.clone());
        Stage::builder("inner").color(Color::new()).wrap_fn(move |n: u32| {
            let (gate, log) = (gate.clone(), log.clone());
            async move {
                log.lock().unwrap().push((replica, Color::current()));
                gate.pass().await;
                Ok::<_, Infallible>(n)
            }
        })
    });
    let asks: Vec<_> = (0..9)
        .map(|n| {
            let stage = stage.clone();
            dapple::spawn(async move { stage.ask(n).await })
        })
        .collect();
    eventually(|| gate.inside().0 == 3).await;
    assert!(stage.replicas().iter().all(|replica| replica.in_service == 1));
    gate.open(9);
    for ask in asks {
        ask.await.unwrap().unwrap();
    }
    assert_eq!(gate.inside().1, 3);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().map(|(replica, _)| *replica).collect::<HashSet<_>>(), HashSet::from([0, 1, 2]));
    assert_eq!(seen.iter().cloned().collect::<HashSet<_>>().len(), 3, "one color for each");
    assert_eq!(stage.replicas().iter().map(|replica| replica.served).sum::<u64>(), 9);
}

#[dapple::test]
async fn there_are_more_while_requests_wait_and_fewer_when_there_are_none() {
    let rules = Replication { down_after: Duration::from_secs(5), ..Replication::between(1..=6) };
    let stage = Stage::builder("grows").width(1).queue_len_max(10_000).replicate(rules, |_| {
        Stage::builder("second").wrap_fn(async |()| {
            sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(())
        })
    });
    assert_eq!(stage.replicas().len(), 1);
    let asks: Vec<_> = (0..200)
        .map(|_| {
            let stage = stage.clone();
            dapple::spawn(async move { stage.ask(()).await })
        })
        .collect();
    // The width follows the list of replicas.
    eventually(|| (stage.replicas().len(), stage.stats().width) == (6, 6)).await;
    for ask in asks {
        ask.await.unwrap().unwrap();
    }
    eventually(|| (stage.replicas().len(), stage.stats().width) == (1, 1)).await;
    assert_eq!(stage.stats().served, 200);
    stage.ask(()).await.unwrap();
}

#[dapple::test]
async fn a_replica_that_is_taken_out_leaves_and_rejoins() {
    let broken = Arc::new(AtomicUsize::new(1));
    let inner = broken.clone();
    let supervision = Supervision { deaths_max: 3, ..Supervision::default() };
    let rules = Replication { rejoin_after: Duration::from_secs(5), ..Replication::between(2..=2) };
    let stage = Stage::builder("some").width(1).supervision(supervision).replicate(rules, move |replica| {
        let broken = inner.clone();
        panicking(move || broken.load(SeqCst) == replica)
    });
    let mut panicked = 0;
    for n in 0..200 {
        match stage.ask(n).await {
            Ok(result) => assert_eq!(result, n),
            Err(StageError::Panicked(_)) => panicked += 1,
            Err(other) => panic!("{other}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(panicked, 3, "no more requests were sent to it");
    assert_eq!(stage.replicas().iter().filter(|replica| replica.status == Status::Out).count(), 1);
    broken.store(usize::MAX, SeqCst);
    eventually(|| stage.replicas().iter().all(|replica| replica.status == Status::Running)).await;
    let before: Vec<_> = stage.replicas().iter().map(|replica| replica.served).collect();
    for n in 0..20 {
        stage.ask(n).await.unwrap();
    }
    for (replica, before) in stage.replicas().iter().zip(before) {
        assert_eq!(replica.served - before, 10, "they take turns");
    }
}

#[dapple::test]
async fn without_any_replica_requests_are_refused() {
    let broken = Arc::new(AtomicUsize::new(0));
    let inner = broken.clone();
    let supervision = Supervision { deaths_max: 1, ..Supervision::default() };
    let stage = Stage::builder("none").width(1).supervision(supervision).replicate(1..=1, move |_| {
        let broken = inner.clone();
        panicking(move || broken.load(SeqCst) == 0)
    });
    assert!(matches!(stage.ask(1).await, Err(StageError::Panicked(_))));
    assert_eq!(stage.ask(2).await.unwrap_err().refused().unwrap().reason, Reason::Unavailable);
    broken.store(1, SeqCst);
    eventually(|| stage.replicas()[0].status == Status::Running).await;
    assert_eq!(stage.ask(3).await, Ok(3));
}

#[dapple::test]
async fn starts_that_fail_and_lives_that_end_are_begun_again_while_requests_wait_for_the_first() {
    let starts = Arc::new(AtomicUsize::new(0));
    let (inner, (end, ended)) = (starts.clone(), dapple_sync::sync::watch::channel(0));
    let rules = Replication { rejoin_after: Duration::from_secs(1), ..Replication::between(1..=1) };
    let stage = Stage::builder("lives").replicate_with(rules, move |number| {
        assert_eq!(number, 0);
        let start = inner.fetch_add(1, SeqCst);
        assert_ne!(start, 1, "it panics in the factory");
        let mut ended = ended.clone();
        async move {
            sleep(Duration::from_secs(3)).await;
            match start {
                2 => panic!("it panics after a while"),
                3 => return Err("it fails".into()),
                _ => {}
            }
            let service = tower::service_fn(move |n: usize| std::future::ready(Ok::<_, Infallible>((n, start))));
            Ok(Replica::new(service).lives(async move |_retired| {
                let _sender_is_there = ended.wait_for(|end| *end == start + 1).await;
                assert_ne!(start, 4, "it panics");
            }))
        }
    });
    assert_eq!(stage.ask(7).await.unwrap(), (7, 0), "it waits for the first");
    end.send(1).unwrap();
    eventually(|| starts.load(SeqCst) == 5).await;
    assert_eq!(stage.ask(8).await.unwrap_err().refused().unwrap().reason, Reason::Unavailable, "it is not the first");
    assert_eq!(answer(&stage, 8).await, (8, 4));
    end.send(5).unwrap();
    eventually(|| starts.load(SeqCst) == 6).await;
    assert_eq!(answer(&stage, 9).await, (9, 5));
}

#[dapple::test]
async fn a_life_that_panics_when_it_is_called_is_a_death() {
    let starts = Arc::new(AtomicUsize::new(0));
    let inner = starts.clone();
    let stage = Stage::builder("panics").replicate_with(1..=1, move |_number| {
        let start = inner.fetch_add(1, SeqCst);
        let service = tower::service_fn(move |n: usize| ready(Ok::<_, Infallible>((n, start))));
        ready(Ok(Replica::new(service).lives(move |retired| {
            assert_ne!(start, 0, "it panics before there is a future");
            retired
        })))
    });
    while answer(&stage, 1).await != (1, 1) {
        sleep(Duration::from_millis(10)).await;
    }
    stage.stop().await;
    assert_eq!(starts.load(SeqCst), 2);
}

#[dapple::test]
async fn a_life_that_panics_while_it_is_dropped_is_a_death() {
    struct Life(usize, Retired);
    impl Future for Life {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
            if self.0 == 0 { Poll::Ready(()) } else { Pin::new(&mut self.1).poll(cx) }
        }
    }
    impl Drop for Life {
        fn drop(&mut self) {
            assert_ne!(self.0, 0, "it panics while it is dropped");
        }
    }
    let starts = Arc::new(AtomicUsize::new(0));
    let inner = starts.clone();
    let stage = Stage::builder("panics").replicate_with(1..=1, move |_number| {
        let start = inner.fetch_add(1, SeqCst);
        let service = tower::service_fn(move |n: usize| ready(Ok::<_, Infallible>((n, start))));
        ready(Ok(Replica::new(service).lives(move |retired| Life(start, retired))))
    });
    while answer(&stage, 1).await != (1, 1) {
        sleep(Duration::from_millis(10)).await;
    }
    stage.stop().await;
}

#[dapple::test]
async fn replicas_have_ended_where_their_runtime_has() {
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    let builder = Stage::builder("gone").runtime(runtime.handle().clone());
    let stage = builder.replicate_with(2..=2, |_number| pending::<Result<Replica<(), ()>, BoxError>>());
    std::thread::spawn(move || drop(runtime)).join().unwrap();
    stage.stop().await;
}

#[dapple::test]
async fn a_start_that_hangs_is_dropped_when_it_is_not_wanted_and_holds_up_nothing() {
    let (hangs, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
    let (inner, held) = (hangs.clone(), alive.clone());
    let rules = Replication { down_after: Duration::from_secs(5), ..Replication::between(1..=2) };
    let stage = Stage::builder("hangs").width(1).replicate_with(rules, move |number| {
        let (hangs, held) = (inner.clone(), held.clone());
        async move {
            if number > 0 {
                hangs.fetch_add(1, SeqCst);
                let _held = held;
                pending::<()>().await;
            }
            Ok(Replica::new(tower::service_fn(async |()| {
                sleep(Duration::from_secs(1)).await;
                Ok::<_, Infallible>(())
            })))
        }
    });
    let asks: Vec<_> = (0..20)
        .map(|_| {
            let stage = stage.clone();
            dapple::spawn(async move { stage.ask(()).await })
        })
        .collect();
    eventually(|| hangs.load(SeqCst) == 1).await;
    for ask in asks {
        ask.await.unwrap().unwrap();
    }
    // One for the test and one for the factory.
    eventually(|| Arc::strong_count(&alive) == 2).await;
    assert_eq!(stage.replicas().len(), 1);
    stage.stop().await;
}

#[dapple::test]
async fn a_later_start_that_hangs_has_requests_refused_and_ends_with_the_stage() {
    let (starts, (end, ended)) = (Arc::new(AtomicUsize::new(0)), dapple_sync::sync::watch::channel(false));
    let inner = starts.clone();
    let stage = Stage::builder("hangs").replicate_with(1..=1, move |_number| {
        let (start, mut ended) = (inner.fetch_add(1, SeqCst), ended.clone());
        async move {
            if start > 0 {
                pending::<()>().await;
            }
            let service = tower::service_fn(move |n: usize| ready(Ok::<_, Infallible>((n, start))));
            Ok(Replica::new(service).lives(async move |_retired| {
                let _sender_is_there = ended.wait_for(|end| *end).await;
            }))
        }
    });
    assert_eq!(stage.ask(1).await.unwrap(), (1, 0));
    end.send(true).unwrap();
    eventually(|| starts.load(SeqCst) == 2).await;
    assert_eq!(stage.ask(2).await.unwrap_err().refused().unwrap().reason, Reason::Unavailable);
    stage.stop().await;
}

#[dapple::test]
async fn a_first_start_that_hangs_is_given_up_at_the_end() {
    let begun = Arc::new(AtomicUsize::new(0));
    let inner = begun.clone();
    let stage = Stage::builder("hangs").width(1).replicate_with(2..=2, move |_number| {
        inner.fetch_add(1, SeqCst);
        pending::<Result<Replica<u32, u32>, dapple_stage::BoxError>>()
    });
    let asks: Vec<_> = (0..3)
        .map(|n| {
            let stage = stage.clone();
            dapple::spawn(async move { stage.ask(n).await })
        })
        .collect();
    eventually(|| begun.load(SeqCst) == 2 && stage.stats().accepted == 3).await;
    stage.stop().await;
    for ask in asks {
        assert_eq!(ask.await.unwrap().unwrap_err().refused().unwrap().reason, Reason::Unavailable);
    }
    assert_eq!(stage.replicas().len(), 0);
}

/// A start that ends in time is awaited, and the replica serves the waiting requests.
#[dapple::test]
async fn a_first_start_that_takes_a_while_serves_what_waits_at_the_end() {
    let stage = Stage::builder("slow").width(1).replicate_with(1..=1, async move |_number| {
        sleep(Duration::from_secs(20)).await;
        Ok(Replica::new(tower::service_fn(|n: u32| ready(Ok::<_, Infallible>(n)))))
    });
    let asking = stage.clone();
    let ask = dapple::spawn(async move { asking.ask(7).await });
    eventually(|| stage.stats().accepted == 1).await;
    stage.stop().await;
    assert_eq!(ask.await.unwrap().unwrap(), 7);
}

#[dapple::test]
async fn a_check_may_take_a_while_and_one_that_panics_ends_no_other() {
    let stage = Stage::builder("checked").replicate_with(2..=2, |number| {
        let service = tower::service_fn(move |()| ready(Ok::<_, Infallible>(number)));
        ready(Ok(Replica::new(service).check(move || async move {
            sleep(Duration::from_secs(1)).await;
            assert_eq!(number, 0, "it panics");
            true
        })))
    });
    sleep(Duration::from_secs(10)).await;
    for _ in 0..100 {
        assert_eq!(stage.ask(()).await.unwrap(), 0);
        sleep(Duration::from_millis(50)).await;
    }
}

#[dapple::test]
async fn a_replica_with_a_check_that_hangs_is_out_after_a_while() {
    let stage = Stage::builder("checked").replicate_with(2..=2, |number| {
        let service = tower::service_fn(move |()| ready(Ok::<_, Infallible>(number)));
        ready(Ok(Replica::new(service).check(move || async move {
            if number == 1 {
                pending::<()>().await;
            }
            true
        })))
    });
    sleep(Duration::from_secs(10)).await;
    for _ in 0..400 {
        assert_eq!(stage.ask(()).await.unwrap(), 0);
        sleep(Duration::from_millis(50)).await;
    }
}

#[dapple::test]
async fn one_that_is_taken_out_is_retired_when_all_that_it_was_sent_is_answered() {
    let (gate, retired) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (inner, count) = (gate.clone(), retired.clone());
    let supervision = Supervision { deaths_max: 1, ..Supervision::default() };
    let stage = Stage::builder("out").width(2).supervision(supervision).replicate_with(1..=1, move |_number| {
        let (gate, count) = (inner.clone(), count.clone());
        let service = tower::service_fn(move |dies: bool| {
            let gate = gate.clone();
            async move {
                assert!(!dies, "it dies");
                gate.pass().await;
                Ok::<_, Infallible>(())
            }
        });
        ready(Ok(Replica::new(service).lives(async move |retired| {
            retired.await;
            count.fetch_add(1, SeqCst);
        })))
    });
    let asking = stage.clone();
    let asked = dapple::spawn(async move { asking.ask(false).await });
    eventually(|| gate.inside().0 == 1).await;
    assert!(matches!(stage.ask(true).await, Err(StageError::Panicked(_))));
    eventually(|| stage.replicas()[0].status == Status::Out).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(retired.load(SeqCst), 0, "a request is on its way");
    gate.open(1);
    asked.await.unwrap().unwrap();
    eventually(|| retired.load(SeqCst) == 1 && stage.replicas()[0].status == Status::Running).await;
}

#[dapple::test]
async fn one_that_has_joined_comes_back_after_any_number_of_deaths() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let supervision = Supervision { deaths_max: 2, ..Supervision::default() };
    let stage = Stage::builder("joined").width(1).supervision(supervision).replicate_with(1..=1, |_number| {
        ready(Ok(Replica::new(tower::service_fn(|n: usize| ready(Ok::<_, Infallible>((n, 0)))))))
    });
    let inner = is_broken.clone();
    stage.join(
        "elsewhere",
        tower::service_fn(move |n: usize| {
            let is_broken = inner.load(SeqCst);
            async move {
                assert!(!is_broken, "it is broken");
                Ok::<_, BoxError>((n, 1))
            }
        }),
    );
    let mut deaths = 0;
    while deaths < 5 {
        deaths += usize::from(stage.ask(1).await.is_err());
        sleep(Duration::from_millis(10)).await;
    }
    is_broken.store(false, SeqCst);
    while stage.ask(1).await.unwrap() != (1, 1) {
        sleep(Duration::from_millis(10)).await;
    }
}

#[dapple::test]
async fn no_rest_is_too_long() {
    let rules = Replication { rejoin_after: Duration::MAX, ..Replication::between(1..=1) };
    let stage = Stage::builder("rests")
        .replicate_with(rules, |_number| ready(Err::<Replica<(), ()>, BoxError>("it cannot be started".into())));
    assert_eq!(stage.ask(()).await.unwrap_err().refused().unwrap().reason, Reason::Unavailable);
    stage.stop().await;
}

#[dapple::test]
async fn one_that_goes_is_retired_when_all_that_it_was_sent_is_answered() {
    let gate = Gate::new();
    let (inner, (done, mut retired)) = (gate.clone(), dapple_sync::sync::mpsc::channel(4));
    let rules = Replication { down_after: Duration::from_secs(5), ..Replication::between(1..=2) };
    let stage = Stage::builder("goes").width(4).replicate_with(rules, move |number| {
        let (gate, done) = (inner.clone(), done.clone());
        async move {
            let service = tower::service_fn(move |n: u32| {
                let gate = gate.clone();
                async move {
                    gate.pass().await;
                    Ok::<_, Infallible>(n)
                }
            });
            Ok(Replica::new(service).lives(async move |until_retired| {
                until_retired.await;
                done.send(number).await.unwrap();
            }))
        }
    });
    let ask = |n| {
        let stage = stage.clone();
        dapple::spawn(async move { stage.ask(n).await })
    };
    let many: Vec<_> = (0..9).map(ask).collect();
    eventually(|| gate.inside().0 == 8).await;
    // All but the last: these few need one replica only, and each of the others may still have a
    // request.
    gate.open(6);
    eventually(|| gate.inside().0 == 3 && stage.replicas().len() == 1).await;
    let busy_one_is_gone = stage.replicas()[0].in_service < 3;
    assert!(!busy_one_is_gone || retired.try_recv().is_err(), "it still has requests");
    gate.open(3);
    for ask in many {
        ask.await.unwrap().unwrap();
    }
    assert_eq!(retired.recv().await, Some(1));
    stage.stop().await;
    assert_eq!(retired.recv().await, Some(0));
    assert!(stage.replicas().is_empty() && stage.ask(1).await.is_err());
}

/// Its answer after it has returned.
async fn answer(stage: &Replicated<usize, (usize, usize), BoxError>, request: usize) -> (usize, usize) {
    loop {
        match stage.ask(request).await {
            Ok(answer) => return answer,
            Err(error) => assert_eq!(error.refused().unwrap().reason, Reason::Unavailable),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// A service with a handler that dies by a panic while `broken` returns true.
fn panicking(broken: impl Fn() -> bool + Clone + Send + 'static) -> Panicking {
    Panicking(Arc::new(Mutex::new(broken)))
}

#[derive(Clone)]
struct Panicking(Arc<Mutex<dyn FnBroken>>);

trait FnBroken: Send {
    fn is_broken(&self) -> bool;
}

impl<F: Fn() -> bool + Send> FnBroken for F {
    fn is_broken(&self) -> bool {
        self()
    }
}

impl tower_service::Service<u32> for Panicking {
    type Response = u32;
    type Error = Infallible;
    type Future = std::future::Ready<Result<u32, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u32) -> Self::Future {
        let broken = self.0.lock().unwrap().is_broken();
        assert!(!broken, "it is broken");
        std::future::ready(Ok(request))
    }
}

#[dapple::test]
async fn a_request_to_replicas_has_a_deadline_and_a_drop_callback() {
    let stage = Stage::builder("replicated").width(1).replicate(1..=1, |_| {
        Stage::builder("replica").wrap_fn(async |n: u32| if n == 0 { pending().await } else { Ok::<_, Infallible>(n) })
    });
    let soon = Duration::from_millis(20);
    let error = stage.ask_with(0, |ask| ask.within(soon)).await.unwrap_err();
    assert!(matches!(error, StageError::Expired(_)), "{error:?}");
    let (tx, dropped) = std::sync::mpsc::channel();
    let on_drop = move |n: u32, why: &dapple_stage::Refused| tx.send((n, why.reason.clone())).unwrap();
    let error = stage.ask_with(7, |ask| ask.within(Duration::ZERO).on_drop(on_drop)).await.unwrap_err();
    assert_eq!(error.refused().map(|refused| refused.reason.clone()), Some(Reason::Deadline));
    eventually(|| dropped.try_recv() == Ok((7, Reason::Deadline))).await;
    assert_eq!(stage.ask_with(8, |ask| ask.within(Duration::MAX).rank(1)).await, Ok(8));
}
