//! Foreign code that panics or reenters: the neighbors are served, and nothing hangs.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dapple_sched::Runtime;
use dapple_stage::graph::named;
use dapple_stage::operators::broadcast::{Broadcast, Settings};
use dapple_stage::{Stage, StageError, Supervision};
use dapple_tower::balance::{Balancer, Config as BalanceConfig};
use tower::{Service, ServiceExt, service_fn};

use crate::bombs::{DropBomb, blast, bomb, counting, drop_bomb, panic_twice};
use crate::clones::on_clone;
use crate::lines::{LIMIT, LINES, in_time, lines, poll, wait_until};

/// A runtime that does not print its panics.
fn quiet() -> Runtime {
    dapple_io::runtime_builder().workers(1).panic_handler(|_| ()).build().expect("a runtime can be built")
}

/// A waker that runs this when its last clone is dropped.
fn on_drop(run: Arc<dyn Fn() + Send + Sync>) -> Waker {
    struct OnDrop(Arc<dyn Fn() + Send + Sync>);
    impl Wake for OnDrop {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for OnDrop {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(OnDrop(run)))
}

#[test]
fn wakers_may_look_at_what_they_wait_for() {
    for which in 0..LINES {
        in_time(which, move || {
            let runtime = quiet();
            let _entered = runtime.enter();
            let line = lines().into_iter().nth(which).unwrap();
            let mut waits = (line.wait)();
            let look = line.look.clone();
            assert!(poll(&mut waits, &on_clone(move || look())).is_pending(), "{}", line.name);
            for _ in 0..2 {
                // Each replaces the previous waker, which is dropped.
                assert!(poll(&mut waits, &on_drop(line.look.clone())).is_pending(), "{}", line.name);
            }
            drop(waits);
        });
    }
}

#[test]
fn a_waker_with_a_clone_that_panics_leaves_the_line_unchanged() {
    let runtime = quiet();
    let _entered = runtime.enter();
    for line in lines() {
        let armed = Arc::new(AtomicBool::new(true));
        let is_armed = armed.clone();
        let bad = on_clone(move || assert!(!is_armed.load(SeqCst), "as the test says"));
        let (mut first, mut next) = ((line.wait)(), (line.wait)());
        assert!(blast(|| _ = poll(&mut first, &bad)), "{}", line.name);
        armed.store(false, SeqCst);
        let (calls, waker) = counting();
        assert!(poll(&mut next, &waker).is_pending(), "{}", line.name);
        drop(first);
        (line.free)();
        wait_until(|| calls.count() > 0 && poll(&mut next, &waker).is_ready());
    }
}

#[test]
fn waiters_are_woken_despite_wakers_that_panic() {
    let runtime = quiet();
    let _entered = runtime.enter();
    for bad in [bomb, drop_bomb] {
        for line in lines() {
            let (mut first, mut next) = ((line.wait)(), (line.wait)());
            assert!(poll(&mut first, &bad()).is_pending(), "{}", line.name);
            let (calls, waker) = counting();
            assert!(poll(&mut next, &waker).is_pending(), "{}", line.name);
            (line.free)();
            // The first waiter is served although it was not woken, and then the next.
            wait_until(|| poll(&mut first, Waker::noop()).is_ready());
            drop(first);
            wait_until(|| calls.count() > 0 && poll(&mut next, &waker).is_ready());
        }
    }
}

#[test]
fn a_handler_with_a_panic_that_panics_on_drop_ends_its_own_request_only() {
    let runtime = quiet();
    let _entered = runtime.enter();
    let stage = Stage::builder("twice").width(1).supervision(no_rest()).wrap_fn(async |panics: bool| {
        if panics {
            panic_twice();
        }
        Ok::<_, Infallible>(())
    });
    let asked = [true, false, true, false].map(|panics| stage.ask(panics).now());
    for (n, response) in asked.into_iter().enumerate() {
        match runtime.block_on(response) {
            Err(StageError::Panicked(_)) => assert!(n % 2 == 0),
            other => assert_eq!((n % 2, other), (1, Ok(()))),
        }
    }
    runtime.block_on(stage.stop());
}

#[test]
fn a_factory_with_a_panic_that_panics_on_drop_is_called_again() {
    let runtime = quiet();
    let _entered = runtime.enter();
    let left = AtomicUsize::new(3);
    let stage = Stage::builder("made later").width(1).supervision(no_rest()).wrap_with(move || {
        if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            panic_twice();
        }
        service_fn(async |n: u32| Ok::<_, Infallible>(n))
    });
    let asked = [1, 2].map(|n| stage.ask(n).now());
    for (n, response) in [1, 2].into_iter().zip(asked) {
        assert_eq!(runtime.block_on(dapple_io::time::timeout(LIMIT, response)), Ok(Ok(n)));
    }
    runtime.block_on(stage.stop());
}

/// Deaths cause no rest.
fn no_rest() -> Supervision {
    Supervision { deaths_max: 0, ..Supervision::default() }
}

#[test]
fn what_comes_after_a_stage_may_panic_wherever_it_is_asked() {
    let runtime = quiet();
    let _entered = runtime.enter();
    let pipeline = Stage::builder("first").width(1).wrap_sync(|n: u32| n).then(named("next", Twice));
    for n in [CALL, 1, CALL, 1] {
        let result = runtime.block_on(dapple_io::time::timeout(LIMIT, pipeline.ask(n))).expect("it hangs");
        assert_eq!(result.is_ok(), n == 1, "{n}");
    }
}

#[test]
fn a_member_that_panics_twice_keeps_no_message_from_the_others() {
    let runtime = quiet();
    let _entered = runtime.enter();
    let broadcast = Broadcast::new(Settings::default());
    broadcast.join_local("bad", Twice);
    broadcast.join_local("good", Twice.map_request(|_: u32| 1));
    for n in [CALL, POLL, 1] {
        let sent = runtime.block_on(dapple_io::time::timeout(LIMIT, broadcast.clone().oneshot(n)));
        let delivered = sent.expect("it hangs").unwrap().delivered;
        assert!(delivered.contains(&("good", 1)), "{n}");
    }
}

#[test]
fn checks_that_panic_wherever_they_are_asked_end_no_other() {
    let runtime = quiet();
    let _entered = runtime.enter();
    let mut config = BalanceConfig::default();
    config.check_timeout = Duration::from_millis(5);
    let balancer = Balancer::<u8, ()>::new(config);
    (0..5).for_each(|key| _ = balancer.insert(key, ()));
    let _checks = runtime.spawn(balancer.check(Duration::from_millis(1), |key, ()| {
        if key == 0 {
            panic_twice();
        }
        let bomb = (key == 2).then_some(DropBomb);
        async move {
            match key {
                // The wait is dropped while it is pending.
                2 => {
                    let _bomb = bomb;
                    std::future::pending().await
                }
                3 => panic_twice(),
                _ => key == 4,
            }
        }
    }));
    wait_until(|| balancer.serving_len() == 1);
    // The waiters continue.
    balancer.insert(5, ());
    wait_until(|| balancer.serving_len() == 1);
}

/// Panics with a payload that panics on drop, if the request asks for it.
#[derive(Clone)]
struct Twice;

const CALL: u32 = 2;
const POLL: u32 = 3;

impl Service<u32> for Twice {
    type Response = u32;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<u32, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, n: u32) -> Self::Future {
        if n == CALL {
            panic_twice();
        }
        Box::pin(async move {
            if n == POLL {
                panic_twice();
            }
            Ok(n)
        })
    }
}
