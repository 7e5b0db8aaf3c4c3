//! Balancing over services that fail, hang, come and go.

use std::collections::HashMap;
use std::future::{Future, pending, poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_tower::balance::{Balance, Balancer, Change, Config, Outcome, Probe, ReplicaState};
use dapple_tower::{Backoff, BoxError, Reason, Refused};
use tower::{Service, ServiceExt, service_fn};

use crate::executors::{on_each, poll_once};

const MS: Duration = Duration::from_millis(1);

fn quick() -> Config {
    let mut config = Config::default();
    config.backoff = Backoff::new(20 * MS, 40 * MS);
    config
}

/// A replica that can be switched off, and counts its requests.
#[derive(Clone, Default)]
struct Replica {
    is_dead: Arc<AtomicBool>,
    is_busy: Arc<AtomicBool>,
    wakers: Arc<Mutex<Vec<Waker>>>,
    served: Arc<AtomicUsize>,
}

impl Replica {
    fn set_busy(&self, is_busy: bool) {
        self.is_busy.store(is_busy, Ordering::SeqCst);
        self.wakers.lock().unwrap().drain(..).for_each(Waker::wake);
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

impl Service<u32> for Replica {
    type Response = u32;
    type Error = BoxError;
    type Future = std::future::Ready<Result<u32, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.wakers.lock().unwrap().push(cx.waker().clone());
        if self.is_busy.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, request: u32) -> Self::Future {
        if self.is_dead.load(Ordering::SeqCst) {
            return ready(Err("the replica is dead".into()));
        }
        self.served.fetch_add(1, Ordering::SeqCst);
        ready(Ok(request))
    }
}

fn two(config: Config) -> (Balancer<u8, Replica>, [Replica; 2]) {
    let balancer = Balancer::new(config);
    let replicas = [Replica::default(), Replica::default()];
    balancer.insert(0, replicas[0].clone());
    balancer.insert(1, replicas[1].clone());
    (balancer, replicas)
}

#[test]
fn a_dead_replica_leaves_and_comes_back_when_it_lives() {
    on_each(|| async {
        let (balancer, replicas) = two(quick());
        replicas[0].is_dead.store(true, Ordering::SeqCst);
        let mut failed = 0;
        for n in 0..100 {
            failed += u32::from(Balance::new(balancer.clone()).oneshot(n).await.is_err());
        }
        assert!((3..50).contains(&failed), "{failed} of 100 went to a dead replica");
        assert_ne!(balancer.stats()[0].state, ReplicaState::In);
        replicas[0].is_dead.store(false, Ordering::SeqCst);
        while replicas[0].served() == 0 {
            Balance::new(balancer.clone()).oneshot(0).await.unwrap();
        }
        assert_eq!(balancer.serving_len(), 2);
        assert!(balancer.stats().iter().all(|replica| replica.in_flight == 0));
    });
}

#[test]
fn without_replicas_it_is_refused_and_told_when_to_come_back() {
    on_each(|| async {
        let (balancer, replicas) = two(Config::default());
        for replica in &replicas {
            replica.is_dead.store(true, Ordering::SeqCst);
        }
        let mut balance = Balance::new(balancer.clone());
        let refused = loop {
            let error = balance.ready().await.unwrap().call(1).await.unwrap_err();
            if let Some(refused) = Refused::find(&*error) {
                break refused.clone();
            }
        };
        assert_eq!(refused.reason, Reason::Unavailable);
        assert!(refused.retry_after > Duration::ZERO && refused.retry_after <= Duration::from_secs(1));
        let empty = Balance::new(Balancer::<u8, Replica>::new(Config::default())).oneshot(1).await.unwrap_err();
        assert_eq!(Refused::find(&*empty).unwrap().reason, Reason::Unavailable);
    });
}

#[test]
fn a_request_waits_for_the_first_ready_replica_and_takes_no_other() {
    on_each(|| async {
        let (balancer, replicas) = two(Config::default());
        replicas.iter().for_each(|replica| replica.set_busy(true));
        let free = replicas[1].clone();
        let mut balance = Balance::new(balancer.clone());
        assert!(poll_once(pin!(balance.ready())).is_pending());
        std::thread::spawn(move || free.set_busy(false));
        assert_eq!(balance.ready().await.unwrap().call(7).await.unwrap(), 7);
        assert_eq!([replicas[0].served(), replicas[1].served()], [0, 1]);
    });
}

#[test]
fn a_wait_for_busy_replicas_sees_a_new_one_and_the_last_one_leaving() {
    on_each(|| async {
        let (balancer, replicas) = two(Config::default());
        replicas.iter().for_each(|replica| replica.set_busy(true));
        let mut balance = Balance::new(balancer.clone());
        assert!(poll_once(pin!(balance.ready())).is_pending());
        let adds = balancer.clone();
        std::thread::spawn(move || adds.insert(2, Replica::default()));
        assert_eq!(balance.ready().await.unwrap().call(7).await.unwrap(), 7);
        balancer.remove(&2);
        assert!(poll_once(pin!(balance.ready())).is_pending());
        let ends = balancer.clone();
        std::thread::spawn(move || (0..2).for_each(|key| drop(ends.remove(&key))));
        assert!(Refused::find(&*balance.ready().await.unwrap().call(7).await.unwrap_err()).is_some());
    });
}

#[test]
fn a_dropped_request_is_no_longer_in_flight_and_says_nothing() {
    let balancer = Balancer::new(Config::default());
    balancer.insert(0, service_fn(|(): ()| pending::<Result<(), BoxError>>()));
    for _ in 0..10 {
        let response = Balance::new(balancer.clone()).oneshot(());
        let mut response = Box::pin(response);
        assert!(poll_once(response.as_mut()).is_pending());
        assert_eq!(balancer.stats()[0].in_flight, 1);
    }
    let stats = &balancer.stats()[0];
    assert_eq!((stats.in_flight, stats.failures, stats.state), (0, 0, ReplicaState::In));
    // Found ready, and never used.
    let mut balance = Balance::new(balancer.clone());
    assert!(poll_once(pin!(balance.ready())).is_ready());
    assert_eq!(balancer.stats()[0].in_flight, 1);
    drop(balance);
    assert_eq!(balancer.stats()[0].in_flight, 0);
}

#[test]
fn a_service_that_cannot_get_ready_is_out() {
    let balancer = Balancer::new(Config::default());
    balancer.insert("broken", Broken(false));
    balancer.insert("good", Broken(true));
    dapple_sched::block_on(async {
        for _ in 0..20 {
            Balance::new(balancer.clone()).oneshot(()).await.unwrap();
        }
    });
    assert_eq!(balancer.serving_len(), 1);
    assert_eq!(balancer.stats()[0].failures, 1);

    #[derive(Clone)]
    struct Broken(bool);
    impl Service<()> for Broken {
        type Response = ();
        type Error = BoxError;
        type Future = std::future::Ready<Result<(), BoxError>>;
        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(if self.0 { Ok(()) } else { Err("cannot connect".into()) })
        }
        fn call(&mut self, (): ()) -> Self::Future {
            ready(Ok(()))
        }
    }
}

#[test]
fn responses_count_as_their_classifier_says() {
    on_each(|| async {
        let balancer = Balancer::new(quick());
        balancer.insert(0, service_fn(async |status: u16| Ok::<_, BoxError>(status)));
        let mut balance = Balance::new(balancer.clone()).classify(|result: Result<&u16, &BoxError>| match result {
            Ok(502..) => Outcome::Down,
            _ => Outcome::Success,
        });
        balance.ready().await.unwrap().call(500).await.unwrap();
        assert_eq!(balancer.serving_len(), 1);
        balance.ready().await.unwrap().call(503).await.unwrap();
        assert_eq!(balancer.serving_len(), 0);
    });
}

#[test]
fn picks_report_by_hand_and_others_are_preferred_for_another_try() {
    on_each(|| async {
        let balancer = Balancer::new(quick());
        balancer.insert('a', 1);
        let picked = balancer.pick().unwrap();
        assert_eq!((*picked.key(), *picked.value()), ('a', 1));
        assert_eq!(*balancer.pick_other_than(&['a']).unwrap().key(), 'a', "there is no other");
        balancer.insert('b', 2);
        for _ in 0..10 {
            assert_eq!(*balancer.pick_other_than(&['a']).unwrap().key(), 'b');
        }
        picked.down();
        for _ in 0..10 {
            balancer.remove(&'b');
            let waits = balancer.wait().await;
            assert!(waits.is_trial());
            waits.failure();
        }
        balancer.wait().await.success();
        let mut last = balancer.pick().unwrap();
        last.report(Outcome::Success);
        last.report(Outcome::Down);
        drop(last);
        assert_eq!(balancer.serving_len(), 1, "only the first report counts");
    });
}

#[test]
fn lists_and_streams_of_news_change_the_replicas() {
    on_each(|| async {
        let balancer = Balancer::new(Config::default());
        balancer.set([("a", 1), ("b", 2)]);
        let picked = balancer.pick_other_than(&["b"]).unwrap();
        balancer.set([("a", 9), ("c", 3)]);
        let stats: HashMap<_, _> = balancer.stats().into_iter().map(|one| (one.key, one.in_flight)).collect();
        assert_eq!(stats, HashMap::from([("a", 1), ("c", 0)]), "a replica that stays is unchanged");
        picked.success();
        let news = vec![Change::Remove("a"), Change::Insert("d", 4), Change::Remove("c"), Change::Remove("x")];
        balancer.follow(News(news.into_iter())).await;
        assert_eq!(*balancer.pick().unwrap().value(), 4);
        assert_eq!(balancer.len(), 1);
    });

    struct News(std::vec::IntoIter<Change<&'static str, u8>>);
    impl futures_core::Stream for News {
        type Item = Change<&'static str, u8>;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(self.0.next())
        }
    }
}

#[test]
fn checks_take_replicas_out_and_bring_them_back() {
    on_each(|| async {
        let mut config = quick();
        config.probe = Probe::Check;
        config.check_timeout = MS;
        let (balancer, replicas) = two(config);
        let mut checks = Box::pin(balancer.check(MS, |key, replica: Replica| async move {
            // The other check never answers, which counts as unhealthy.
            if key == 1 && replica.is_dead.load(Ordering::SeqCst) {
                pending::<()>().await;
            }
            !replica.is_dead.load(Ordering::SeqCst)
        }));
        for expected in [2, 0, 2, 0] {
            replicas.iter().for_each(|replica| replica.is_dead.store(expected == 0, Ordering::SeqCst));
            poll_fn(|cx| {
                assert!(checks.as_mut().poll(cx).is_pending());
                if balancer.serving_len() == expected { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        drop(balancer);
        checks.await;
    });
}

#[test]
fn a_check_may_take_longer_than_a_round() {
    on_each(|| async {
        let mut config = quick();
        config.probe = Probe::Check;
        let (balancer, _replicas) = two(config);
        let (rounds, answers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (quick, slow) = (rounds.clone(), answers.clone());
        let mut checks = Box::pin(balancer.check(MS, move |key, _| {
            let (quick, slow) = (quick.clone(), slow.clone());
            async move {
                let now = quick.fetch_add(usize::from(key == 0), Ordering::SeqCst);
                if key == 1 {
                    // Ready some rounds later, and woken by them.
                    poll_fn(|_| if quick.load(Ordering::SeqCst) >= now + 5 { Poll::Ready(()) } else { Poll::Pending })
                        .await;
                    slow.fetch_add(1, Ordering::SeqCst);
                }
                true
            }
        }));
        // It was out before, and then it is in.
        balancer.set_health(&1, false);
        poll_fn(|cx| {
            assert!(checks.as_mut().poll(cx).is_pending());
            let asked = answers.load(Ordering::SeqCst);
            assert!(asked == 0 || balancer.serving_len() == 2, "after {asked} answers");
            if asked < 3 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    });
}

#[test]
fn a_check_that_panics_says_no_and_ends_no_other() {
    on_each(|| async {
        let mut config = quick();
        config.probe = Probe::Check;
        let (balancer, replicas) = two(config);
        let mut checks = Box::pin(balancer.check(MS, |key, replica: Replica| {
            let is_dead = replica.is_dead.load(Ordering::SeqCst);
            assert!(!is_dead || key == 0, "it panics before it returns a future");
            async move {
                assert!(!is_dead, "it panics");
                true
            }
        }));
        for dead in [&[0][..], &[1], &[0, 1], &[]] {
            (0..2).for_each(|key| replicas[key].is_dead.store(dead.contains(&key), Ordering::SeqCst));
            poll_fn(|cx| {
                assert!(checks.as_mut().poll(cx).is_pending());
                let is_in = |one: &dapple_tower::balance::ReplicaStats<u8>| one.state == ReplicaState::In;
                let so = balancer.stats().iter().all(|one| is_in(one) != dead.contains(&usize::from(one.key)));
                if so { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    });
}
