//! Foreign code that panics, or comes back to what called it: neighbors have their turn, and nothing hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Wake, Waker};

use dapple_sched::Runtime;

use crate::bombs::{blast, bomb, counting, drop_bomb};
use crate::clones::on_clone;
use crate::lines::{LINES, in_time, lines, poll, wait_until};

/// A runtime that keeps its panics to itself.
fn quiet() -> Runtime {
    dapple_io::runtime_builder().workers(1).panic_handler(|_| ()).build().expect("a runtime can be built")
}

/// A waker that does this when its last clone goes.
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
                // Each takes the place of the one before, which is dropped.
                assert!(poll(&mut waits, &on_drop(line.look.clone())).is_pending(), "{}", line.name);
            }
            drop(waits);
        });
    }
}

#[test]
fn a_waker_whose_clone_panics_leaves_the_line_as_it_was() {
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
fn who_waits_is_woken_beside_wakers_that_panic() {
    let runtime = quiet();
    let _entered = runtime.enter();
    for bad in [bomb, drop_bomb] {
        for line in lines() {
            let (mut first, mut next) = ((line.wait)(), (line.wait)());
            assert!(poll(&mut first, &bad()).is_pending(), "{}", line.name);
            let (calls, waker) = counting();
            assert!(poll(&mut next, &waker).is_pending(), "{}", line.name);
            (line.free)();
            // The first one has its turn, though it was not woken, and then the next.
            wait_until(|| poll(&mut first, Waker::noop()).is_ready());
            drop(first);
            wait_until(|| calls.count() > 0 && poll(&mut next, &waker).is_ready());
        }
    }
}
