//! Entering runtimes: guards that are dropped in any order, or forgotten.

use dapple_sched::{EnterGuard, Handle};

use crate::forget::forget;
use crate::support::runtime;

/// The number of workers tells runtimes apart.
fn current() -> Option<usize> {
    Handle::of_thread().map(|handle| handle.workers())
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let runtimes = [runtime(1), runtime(2), runtime(3)];
        let mut guards: Vec<_> = runtimes.iter().map(|runtime| Some(runtime.enter())).collect();
        // The guards keep everything that they need.
        drop(runtimes);
        for out in order {
            let newest = guards.iter().rposition(Option::is_some).map(|at| at + 1);
            assert_eq!(current(), newest, "{order:?}");
            guards[out] = None;
        }
        assert_eq!(current(), None, "{order:?}");
    }
}

#[test]
fn a_guard_that_is_forgotten_keeps_its_runtime_current() {
    let (one, two) = (runtime(1), runtime(2));
    // A separate thread, because a forgotten guard stays with its thread.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let outer = one.enter();
            forget(two.enter());
            let third = one.enter();
            drop(outer);
            assert_eq!(current(), Some(1));
            drop(third);
            assert_eq!(current(), Some(2));
        });
    });
}

#[test]
fn a_guard_may_outlive_a_thread_local() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<EnterGuard>> = const { std::cell::RefCell::new(None) };
    }
    let runtime = runtime(1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            KEPT.set(Some(runtime.enter()));
            let _inner = runtime.enter();
            assert_eq!(current(), Some(1));
        });
    });
}

/// Two implementations would be ambiguous for a type that is `Send`.
const _: fn() = || {
    trait NotSend<Marker> {
        fn check() {}
    }
    impl<T: ?Sized> NotSend<()> for T {}
    impl<T: ?Sized + Send> NotSend<u8> for T {}
    <EnterGuard as NotSend<_>>::check();
};
