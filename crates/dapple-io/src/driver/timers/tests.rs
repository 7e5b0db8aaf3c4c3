//! Timers of several threads, and of runtimes that come and go.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::super::clock::{Clock, nanos};
use super::super::timer::Timer;
use super::{Answer, Lease, Queue};

fn in_an_hour() -> u64 {
    nanos(Instant::now() + Duration::from_secs(3600))
}

fn arm(queue: &Queue) -> u32 {
    queue.arm(in_an_hour(), Waker::noop().into()).expect("the queue is open").0
}

fn timers(queue: &Queue) -> usize {
    queue.state.lock().wheel.len()
}

#[test]
fn a_timer_dropped_while_the_lock_is_held_is_marked_and_removed_later() {
    let lease = Lease::new(Clock, false).unwrap();
    let indices = [arm(&lease), arm(&lease), arm(&lease)];
    let held = lease.state.lock();
    // From another thread, which must not wait for the lock.
    std::thread::scope(|scope| scope.spawn(|| lease.disarm(indices[1])).join()).unwrap();
    assert_eq!(held.wheel.len(), 3);
    drop(held);
    let mut fired = Vec::new();
    lease.fire(Clock, &mut fired);
    assert!(fired.is_empty());
    assert_eq!(timers(&lease), 2);
    assert!(matches!(lease.poll(indices[0], Waker::noop()), Answer::Pending));
    lease.disarm(indices[0]);
    lease.disarm(indices[2]);
    assert_eq!(timers(&lease), 0);
}

#[test]
fn marks_that_no_thread_looked_for_go_at_the_shutdown() {
    let lease = Lease::new(Clock, false).unwrap();
    let indices = [arm(&lease), arm(&lease)];
    let held = lease.state.lock();
    std::thread::scope(|scope| scope.spawn(|| lease.disarm(indices[0])).join()).unwrap();
    drop(held);
    lease.close();
    assert_eq!(timers(&lease), 1);
    lease.disarm(indices[1]);
    assert_eq!(timers(&lease), 0);
}

#[test]
fn a_queue_is_used_again_when_its_last_timer_is_gone() {
    let lease = Lease::new(Clock, false).unwrap();
    let (queue, index) = (lease.0, arm(&lease));
    drop(lease);
    let is_free = || queue.state.lock().is_free();
    assert!(!is_free(), "a timer names it still");
    assert!(queue.arm(in_an_hour(), Waker::noop().into()).is_none());
    assert!(matches!(queue.poll(index, Waker::noop()), Answer::Closed(_)));
    // Another test may have the queue by now.
    assert!(is_free() || queue.state.lock().is_open);
}

#[test]
fn a_timer_keeps_its_deadline_to_the_nanosecond() {
    let runtime = crate::runtime_builder().workers(1).build().unwrap();
    let _entered = runtime.enter();
    let start = Instant::now() + Duration::from_secs(3600);
    for offset in [0, 1, 255, 256, 257, 524_287, 524_288, 1_000_000_007] {
        let deadline = start + Duration::from_nanos(offset);
        let mut timer = Timer::at(deadline);
        assert_eq!(timer.deadline(), deadline);
        assert!(timer.poll(Waker::noop()).unwrap().is_pending());
        assert_eq!(timer.deadline(), deadline);
        timer.reset(deadline + Duration::from_nanos(77));
        assert_eq!(timer.deadline(), deadline + Duration::from_nanos(77));
    }
    assert_eq!(size_of::<Timer>(), 8);
}

#[test]
fn a_timer_outlives_its_runtime_and_serves_in_the_next() {
    let mut timer = Timer::after(Duration::from_millis(3));
    {
        let runtime = crate::runtime_builder().workers(1).build().unwrap();
        let _entered = runtime.enter();
        timer.reset(Instant::now() + Duration::from_secs(3600));
        assert!(timer.poll(Waker::noop()).unwrap().is_pending());
    }
    timer.reset(Instant::now() + Duration::from_millis(3));
    let runtime = crate::runtime_builder().workers(1).build().unwrap();
    runtime.block_on(std::future::poll_fn(|cx| timer.poll(cx.waker()).expect("there is a runtime")));
    assert!(Instant::now() >= timer.deadline());
}
