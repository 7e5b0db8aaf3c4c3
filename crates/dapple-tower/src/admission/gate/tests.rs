use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::{Admission, Config, Offer, processors};
use crate::Reason;
use crate::admission::Class;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// One processor that has learned a cost of 5 ms from 20 requests. The target is so large that
/// nothing is late, even if the machine is paused meanwhile.
fn learned() -> Admission {
    learned_with(Duration::from_secs(3_600))
}

fn learned_with(target_delay: Duration) -> Admission {
    let admission = Admission::new(Config { processors: Some(1), ..Config::with_target_delay(target_delay) });
    for _ in 0..20 {
        let gated = admission.offer(Offer::now()).unwrap().run(|| async { burn(Duration::from_millis(5)) });
        assert!(dapple_sched::block_on(gated).is_ok());
    }
    admission
}

/// An admission with room for several: if the machine was paused while it learned, a single request
/// may use up the target.
fn learned_with_room(target_delay: Duration) -> Admission {
    let has_room = |admission: &Admission| {
        let several: Vec<_> = (0..4).map(|_| admission.offer(Offer::now())).collect();
        several.iter().all(Result::is_ok)
    };
    let mut tries = (0..50).map(|_| learned_with(target_delay));
    tries.find(has_room).expect("the machine is paused too often")
}

fn burn(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, wakes: &Arc<Wakes>) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(&Waker::from(wakes.clone())))
}

#[test]
fn the_next_handler_lets_others_look_first() {
    let admission = learned();
    assert!(admission.is_busy());
    let wakes = Arc::new(Wakes::default());
    let mut gated = pin!(admission.offer(Offer::now()).unwrap().run(|| async { 1 }));
    assert!(poll(&mut gated, &wakes).is_pending());
    assert!(poll(&mut gated, &wakes).is_pending());
    assert_eq!(wakes.0.load(Ordering::SeqCst), 2);
    assert_eq!(poll(&mut gated, &wakes), Poll::Ready(Ok(1)));
}

#[test]
fn the_end_of_one_wakes_the_next() {
    let admission = learned();
    let (wakes, other_wakes) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let mut first = pin!(admission.offer(Offer::now()).unwrap().run(|| async {}));
    let mut second = pin!(admission.offer(Offer::now()).unwrap().run(|| async { 2 }));
    for _ in 0..4 {
        assert!(poll(&mut second, &other_wakes).is_pending());
    }
    while poll(&mut first, &wakes).is_pending() {}
    assert_eq!(other_wakes.0.load(Ordering::SeqCst), 1);
    while poll(&mut second, &other_wakes).is_pending() {}
    assert_eq!(admission.stats().in_service, 0);
}

#[test]
fn giving_up_wakes_the_next_whatever_the_state() {
    let admission = learned();
    let wakes = Arc::new(Wakes::default());
    // Granted and not begun; begun; not even run.
    let granted = admission.offer(Offer::now()).unwrap().run(|| async {});
    let mut next = pin!(admission.offer(Offer::now()).unwrap().run(|| async {}));
    assert!(poll(&mut next, &wakes).is_pending());
    drop(granted);
    assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    while poll(&mut next, &wakes).is_pending() {}
    let unrun = admission.offer(Offer::now()).unwrap();
    assert_eq!(admission.stats().in_service, 1);
    drop(unrun);
    assert_eq!((admission.stats().in_service, admission.stats().cancelled), (0, 2));
}

#[test]
fn what_a_dropped_request_holds_is_freed_before_it_is_told() {
    let admission = learned_with_room(Duration::from_secs(1));
    let wakes = Arc::new(Wakes::default());
    let mut running = pin!(admission.offer(Offer::now()).unwrap().run_whole(std::future::pending::<()>));
    // Three polls until it runs.
    for _ in 0..3 {
        assert!(poll(&mut running, &Arc::default()).is_pending());
    }
    let state = Arc::new(());
    let mut low = Vec::new();
    while let Ok(admitted) = admission.offer(Offer::now().class(Class::LOW)) {
        let held = state.clone();
        low.push(Box::pin(admitted.run(move || async move { drop(held) })));
        assert!(poll(low.last_mut().unwrap(), &wakes).is_pending());
    }
    let before = Arc::strong_count(&state);
    let _high = admission.offer(Offer::now().class(Class::HIGH)).unwrap();
    // One, or more if the machine was slow during learning.
    let dropped = admission.stats().dropped;
    assert!(dropped > 0);
    assert_eq!(wakes.0.load(Ordering::SeqCst) as u64, dropped, "each dropped request is woken");
    let newest = low.last_mut().unwrap();
    let Poll::Ready(Err(refused)) = poll(newest, &wakes) else { panic!("it was dropped") };
    assert_eq!(refused.reason, Reason::Class);
    assert_eq!(Arc::strong_count(&state), before - 1, "although its future still exists");
}

#[test]
fn a_panicking_handler_gives_its_processor_back() {
    let admission = learned();
    let gated = admission.offer(Offer::now()).unwrap().run(|| async { panic!("a bug") });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dapple_sched::block_on(gated)));
    assert!(caught.is_err());
    assert_eq!(admission.stats().in_service, 0);
    assert_eq!(dapple_sched::block_on(admission.offer(Offer::now()).unwrap().run(|| async { 3 })), Ok(3));
}

#[test]
fn a_handler_that_waits_lets_others_run() {
    let admission = learned();
    let wakes = Arc::new(Wakes::default());
    let (tx, rx) = std::sync::mpsc::channel();
    let mut is_first = true;
    let waits = std::future::poll_fn(move |_| match std::mem::replace(&mut is_first, false) {
        true => Poll::Pending,
        false => {
            tx.send(()).unwrap();
            Poll::Ready(())
        }
    });
    let mut first = Box::pin(admission.offer(Offer::now()).unwrap().run(|| waits));
    let mut second = pin!(admission.offer(Offer::now()).unwrap().run(|| async {}));
    assert!(poll(&mut second, &wakes).is_pending());
    for _ in 0..3 {
        assert!(poll(&mut first, &wakes).is_pending());
    }
    while poll(&mut second, &wakes).is_pending() {}
    while poll(&mut first, &wakes).is_pending() {}
    assert!(rx.try_recv().is_ok());
    assert_eq!(admission.stats().finished, 22);
}

#[test]
fn one_that_occupies_its_place_as_a_whole_keeps_it_while_it_waits() {
    let admission = learned();
    let wakes = Arc::new(Wakes::default());
    let mut is_first = true;
    let waits = std::future::poll_fn(move |_| match std::mem::replace(&mut is_first, false) {
        true => Poll::Pending,
        false => Poll::Ready(()),
    });
    let mut first = Box::pin(admission.offer(Offer::now()).unwrap().run_whole(|| waits));
    let mut second = pin!(admission.offer(Offer::now()).unwrap().run_whole(|| async {}));
    for _ in 0..3 {
        assert!(poll(&mut first, &wakes).is_pending());
    }
    burn(Duration::from_millis(30));
    for _ in 0..3 {
        assert!(poll(&mut second, &wakes).is_pending());
    }
    assert_eq!(poll(&mut first, &wakes), Poll::Ready(Ok(())));
    while poll(&mut second, &wakes).is_pending() {}
    assert!(admission.stats().cost > Duration::from_micros(5_100), "{:?}", admission.stats());
}

/// As in a loop around `select!`: the future is kept, and another one awaited.
#[test]
fn a_grant_that_is_not_used_goes_to_the_next() {
    let admission = learned();
    admission.shared.lock().look_after = Duration::from_millis(10);
    let (wakes, next_wakes) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
    let mut kept = pin!(admission.offer(Offer::now()).unwrap().run(|| async { 1 }));
    let mut next = pin!(admission.offer(Offer::now()).unwrap().run(|| async { 2 }));
    assert!(poll(&mut next, &next_wakes).is_pending());
    // Its polls have begun, and then stop.
    assert!(poll(&mut kept, &wakes).is_pending());
    let until = Instant::now() + Duration::from_secs(20);
    while next_wakes.0.load(Ordering::SeqCst) == 0 {
        assert!(Instant::now() < until, "the next request is never woken");
        std::thread::yield_now();
    }
    let gets = |future: &mut dyn FnMut() -> Poll<Result<i32, crate::Refused>>| {
        (0..10).find_map(|_| match future() {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        })
    };
    assert_eq!(gets(&mut || poll(&mut next, &next_wakes)), Some(Ok(2)));
    // A revoked grant is granted again.
    assert_eq!(gets(&mut || poll(&mut kept, &wakes)), Some(Ok(1)));
    assert_eq!(admission.stats().in_service, 0);
}

/// The rows of `docs/safety.md` for a forgotten future.
#[test]
fn a_grant_of_a_future_that_was_forgotten_goes_to_the_next() {
    for polls in 0..3 {
        let admission = learned();
        admission.shared.lock().look_after = Duration::from_millis(10);
        let (wakes, next_wakes) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        // Not polled, or granted and not begun.
        let mut granted = Box::pin(admission.offer(Offer::now()).unwrap().run(|| async {}));
        let mut waiting = Box::pin(admission.offer(Offer::now()).unwrap().run(|| async {}));
        for _ in 0..polls {
            assert!(poll(&mut granted, &wakes).is_pending());
            assert!(poll(&mut waiting, &wakes).is_pending());
        }
        std::mem::forget((granted, waiting));
        let mut next = pin!(admission.offer(Offer::now()).unwrap().run(|| async {}));
        assert!(poll(&mut next, &next_wakes).is_pending());
        let until = Instant::now() + Duration::from_secs(20);
        while next_wakes.0.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < until, "the next request is never woken");
            std::thread::yield_now();
        }
        while poll(&mut next, &next_wakes).is_pending() {}
    }
}

#[test]
fn handlers_run_on_the_workers_of_this_thread_s_runtime_or_on_all_cores() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = dapple_sched::Runtime::builder().workers(cores + 1).build().unwrap();
    assert_eq!(processors(), cores, "runtimes elsewhere in the process do not count");
    let _entered = runtime.enter();
    assert_eq!(processors(), cores + 1);
    assert_eq!(runtime.block_on(runtime.spawn(async { processors() })).unwrap(), cores + 1);
}
