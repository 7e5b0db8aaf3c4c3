//! Picks, outcomes, and replicas that leave and return, on several threads at once: no replica is
//! picked that is out, nothing stays in flight, one trial at a time, and no waiting task is
//! forgotten.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_tower::balance::{Balance, Balancer, Config, Outcome, Probe, ReplicaState};
use dapple_tower::{Backoff, BoxError, Refused};
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use tower::{Service, ServiceExt};

use super::{check, poll_once};

const SCHEDULES: usize = 6_000;

/// A replica that is out is due for its trial at once, and no second trial begins before the first
/// has ended.
fn config(probe: Probe) -> Config {
    let mut config = Config::default();
    config.backoff = Backoff::new(Duration::ZERO, Duration::from_secs(3_600));
    config.probe = probe;
    config
}

/// Checks that no request is in flight any more.
fn finish<T: Clone>(balancer: &Balancer<u8, T>) {
    for replica in balancer.stats() {
        assert_eq!(replica.in_flight, 0, "{replica:?}");
    }
}

#[test]
fn none_is_picked_that_is_out_while_another_is_in() {
    check(SCHEDULES, || {
        let balancer = Balancer::new(config(Probe::Check));
        balancer.insert(0, ());
        balancer.insert(1, ());
        // Odd while replica 0 is certainly out.
        let out = Arc::new(AtomicUsize::new(0));
        let changes = {
            let (balancer, out) = (balancer.clone(), out.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    balancer.set_health(&0, false);
                    out.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    out.fetch_add(1, Ordering::SeqCst);
                    balancer.set_health(&0, true);
                }
            })
        };
        let picks = [Outcome::Success, Outcome::Canceled].map(|outcome| {
            let (balancer, out) = (balancer.clone(), out.clone());
            thread::spawn(move || {
                for _ in 0..3 {
                    let before = out.load(Ordering::SeqCst);
                    let mut picked = balancer.pick().expect("replica 1 is always in");
                    let after = out.load(Ordering::SeqCst);
                    assert!(before % 2 == 0 || before != after || *picked.key() == 1, "it was out");
                    picked.report(outcome);
                }
            })
        });
        changes.join().unwrap();
        picks.into_iter().for_each(|picks| picks.join().unwrap());
        assert_eq!(balancer.serving_len(), 2);
        finish(&balancer);
    });
}

#[test]
fn one_trial_at_a_time_and_each_waiting_task_gets_a_replica() {
    check(SCHEDULES, || {
        let balancer = Balancer::new(config(Probe::Trial));
        balancer.insert(0, ());
        balancer.pick().unwrap().down();
        let trials = Arc::new(AtomicUsize::new(0));
        // The first trials are canceled or fail; the tasks that wait after them must see it.
        let threads = [Some(Outcome::Canceled), Some(Outcome::Failure), None].map(|trouble| {
            let (balancer, trials) = (balancer.clone(), trials.clone());
            thread::spawn(move || {
                let mut picked = block_on(balancer.wait());
                if picked.is_trial() {
                    assert_eq!(trials.fetch_add(1, Ordering::SeqCst), 0, "two trials at a time");
                    thread::yield_now();
                    trials.fetch_sub(1, Ordering::SeqCst);
                }
                match trouble {
                    Some(outcome) => picked.report(outcome),
                    None => picked.report(Outcome::Success),
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        finish(&balancer);
        block_on(balancer.wait()).success();
        assert_eq!(balancer.stats()[0].state, ReplicaState::In);
    });
}

#[test]
fn waiting_tasks_see_new_replicas_and_a_dropped_wait_takes_none() {
    check(SCHEDULES, || {
        let balancer: Balancer<u8, ()> = Balancer::new(config(Probe::Check));
        let waits = [0, 1].map(|_| {
            let balancer = balancer.clone();
            thread::spawn(move || block_on(balancer.wait()).success())
        });
        let gives_up = {
            let balancer = balancer.clone();
            thread::spawn(move || {
                let mut wait = Box::pin(balancer.wait());
                let _ = poll_once(wait.as_mut());
                thread::yield_now();
            })
        };
        let comes = {
            let balancer = balancer.clone();
            thread::spawn(move || {
                balancer.insert(0, ());
                balancer.set_health(&0, false);
                balancer.set_health(&0, true);
            })
        };
        waits.into_iter().for_each(|waits| waits.join().unwrap());
        gives_up.join().unwrap();
        comes.join().unwrap();
        finish(&balancer);
    });
}

/// Ready while it is not busy; wakes the last poller.
#[derive(Clone)]
struct Replica {
    is_busy: Arc<AtomicBool>,
    wakers: Arc<Mutex<Vec<Waker>>>,
}

impl Replica {
    fn busy() -> Replica {
        Replica { is_busy: Arc::new(AtomicBool::new(true)), wakers: Arc::new(Mutex::new(Vec::new())) }
    }

    fn set_free(&self) {
        self.is_busy.store(false, Ordering::SeqCst);
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Service<u8> for Replica {
    type Response = u8;
    type Error = BoxError;
    type Future = std::future::Ready<Result<u8, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.wakers.lock().unwrap().push(cx.waker().clone());
        if self.is_busy.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn call(&mut self, request: u8) -> Self::Future {
        std::future::ready(Ok(request))
    }
}

#[test]
fn a_wait_for_busy_replicas_ends_with_the_first_free_one() {
    check(SCHEDULES, || {
        let balancer = Balancer::new(config(Probe::Check));
        let replicas = [Replica::busy(), Replica::busy()];
        balancer.insert(0, replicas[0].clone());
        let asks = [1, 2].map(|request| {
            let balance = Balance::new(balancer.clone());
            thread::spawn(move || assert_eq!(block_on(balance.oneshot(request)).unwrap(), request))
        });
        // It arrives busy and becomes free; the other one never does.
        balancer.insert(1, replicas[1].clone());
        replicas[1].set_free();
        asks.into_iter().for_each(|asks| asks.join().unwrap());
        finish(&balancer);
    });
}

#[test]
fn a_wait_for_a_busy_replica_is_refused_when_it_goes() {
    check(SCHEDULES, || {
        let balancer = Balancer::new(config(Probe::Check));
        balancer.insert(0, Replica::busy());
        let asks = [1, 2].map(|request| {
            let balance = Balance::new(balancer.clone());
            thread::spawn(move || {
                let error = block_on(balance.oneshot(request)).unwrap_err();
                assert!(Refused::find(&*error).is_some());
            })
        });
        balancer.set_health(&0, false);
        asks.into_iter().for_each(|asks| asks.join().unwrap());
        finish(&balancer);
    });
}
