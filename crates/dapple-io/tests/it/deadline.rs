//! Sleeping, limits, ticks and callbacks for deadlines.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use dapple_io::event::{after, at, every};
use dapple_io::time::{MissedTickBehavior, Sleep, interval, sleep, sleep_until, timeout};
use dapple_sched::{Color, spawn};

use crate::{LIMIT, channel_callback, run, runtime, wait_until};

#[test]
fn sleeps_end_in_order_and_never_early() {
    run(2, async {
        let start = Instant::now();
        let (tx, rx) = std::sync::mpsc::channel();
        let mut tasks = Vec::new();
        for i in (0..50u64).rev() {
            let tx = tx.clone();
            tasks.push(spawn(async move {
                let deadline = start + Duration::from_millis(10 + i * 4);
                sleep_until(deadline).await;
                assert!(Instant::now() >= deadline);
                tx.send(i).unwrap();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        drop(tx);
        let order: Vec<u64> = rx.iter().collect();
        assert_eq!(order.len(), 50);
    });
}

#[test]
fn many_timers_fire() {
    run(2, async {
        let fired = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..10_000u64)
            .map(|i| {
                let fired = fired.clone();
                spawn(async move {
                    sleep(Duration::from_micros(i * 17 % 100_000)).await;
                    fired.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(fired.load(Ordering::Relaxed), 10_000);
    });
}

#[test]
fn a_timeout_drops_what_takes_too_long() {
    run(1, async {
        let held = Arc::new(());
        let kept = held.clone();
        let slow = async move {
            sleep(LIMIT * 10).await;
            drop(kept);
        };
        let elapsed = timeout(Duration::from_millis(5), Box::pin(slow)).await;
        let error: std::io::Error = elapsed.unwrap_err().into();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(timeout(Duration::ZERO, async { 3 }).await, Ok(3), "ready wins");
    });
}

#[test]
fn a_sleep_can_be_moved() {
    run(1, async {
        let mut moved = sleep(LIMIT * 10);
        let early = timeout(Duration::from_millis(1), &mut moved).await;
        assert!(early.is_err());
        let deadline = Instant::now() + Duration::from_millis(3);
        moved.reset(deadline);
        moved.await;
        assert!(Instant::now() >= deadline);
        sleep(Duration::MAX / 2).reset_and_drop();
    });
}

/// Only checks that arming and disarming timers with the largest durations does no harm.
trait ResetAndDrop {
    fn reset_and_drop(self);
}

impl ResetAndDrop for dapple_io::time::Sleep {
    fn reset_and_drop(mut self) {
        self.reset(Instant::now() + Duration::from_secs(1 << 40));
    }
}

#[test]
fn a_moved_sleep_wakes_its_waiter() {
    // The awaiting task is not polled in between; it is woken at the new deadline all the same.
    async fn was_moved_in_time(from: Duration, to: Duration) -> bool {
        let shared = Arc::new(std::sync::Mutex::new(Box::pin(sleep(from))));
        let polled = Arc::new(AtomicBool::new(false));
        let (waiting, is_polled) = (shared.clone(), polled.clone());
        let task = spawn(poll_fn(move |cx| {
            let poll = waiting.lock().unwrap().as_mut().poll(cx);
            is_polled.store(true, Ordering::SeqCst);
            poll.map(|()| Instant::now())
        }));
        while !polled.load(Ordering::SeqCst) {
            dapple_sched::yield_now().await;
        }
        let (deadline, in_time) = {
            let mut sleep = shared.lock().unwrap();
            let now = Instant::now();
            let in_time = now < sleep.deadline().into_std();
            sleep.as_mut().reset(now + to);
            (now + to, in_time)
        };
        assert!(task.await.unwrap() >= deadline || !in_time);
        in_time
    }
    for (from, to) in [(LIMIT * 10, Duration::from_millis(3)), (Duration::from_millis(8), Duration::from_millis(16))] {
        // On a busy machine, the timer may have fired before.
        run(2, async { while !was_moved_in_time(from, to).await {} });
    }
}

/// Timers are armed on one worker and dropped on another, while both arm, fire and check for due
/// ones.
#[test]
fn timers_are_dropped_by_any_owner() {
    run(2, async {
        let (tx, rx) = std::sync::mpsc::sync_channel::<Vec<Pin<Box<Sleep>>>>(64);
        let rx = Arc::new(std::sync::Mutex::new(rx));
        let arming = (0..4u64).map(|seed| {
            let tx = tx.clone();
            spawn(async move {
                for round in 0..200 {
                    let mut timers: Vec<_> = (0..50)
                        .map(|i| Box::pin(sleep(Duration::from_micros(1 + (i * 7919 + round * 31 + seed) % 3000))))
                        .collect();
                    poll_fn(|cx| {
                        timers.retain_mut(|timer| timer.as_mut().poll(cx).is_pending());
                        Poll::Ready(())
                    })
                    .await;
                    // A full channel: they are dropped here.
                    let _ = tx.try_send(timers);
                    dapple_sched::yield_now().await;
                }
            })
        });
        let arming: Vec<_> = arming.collect();
        drop(tx);
        let dropping = (0..2).map(|_| {
            let rx = rx.clone();
            spawn(async move {
                let mut count = 0;
                loop {
                    let received = rx.lock().unwrap().try_recv();
                    match received {
                        Ok(timers) => count += timers.len(),
                        Err(std::sync::mpsc::TryRecvError::Disconnected) => return count,
                        Err(std::sync::mpsc::TryRecvError::Empty) => {}
                    }
                    dapple_sched::yield_now().await;
                }
            })
        });
        let dropping: Vec<_> = dropping.collect();
        for task in arming {
            task.await.unwrap();
        }
        let mut dropped = 0;
        for task in dropping {
            dropped += task.await.unwrap();
        }
        assert!(dropped > 0);
        // The wheels are still in order.
        sleep(Duration::from_millis(2)).await;
    });
}

#[test]
fn a_sleep_is_eight_bytes_and_can_be_asked_at_any_time() {
    assert_eq!(size_of::<Sleep>(), 8);
    run(1, async {
        let deadline = Instant::now() + Duration::from_millis(4);
        let mut sleep = sleep_until(deadline);
        assert!(!sleep.is_elapsed());
        (&mut sleep).await;
        assert!(sleep.is_elapsed());
        assert_eq!(sleep.deadline(), deadline.into());
        (&mut sleep).await;
        sleep_until(deadline).await;
        let past = deadline - Duration::from_secs(100);
        assert_eq!(sleep_until(past).deadline(), past.into());
    });
}

#[test]
fn an_interval_skips_what_it_missed() {
    run(1, async {
        let period = Duration::from_millis(2);
        let mut ticks = interval(period);
        let first = ticks.tick().await;
        // Late on purpose.
        sleep(period * 5).await;
        let second = ticks.tick().await;
        let third = ticks.tick().await;
        assert_eq!(second - first, period);
        assert!(third - first >= period * 5, "the missed ones are gone");
        assert_eq!((third - first).as_nanos() % period.as_nanos(), 0, "in the pattern");
    });
}

#[test]
fn an_interval_makes_up_for_what_it_missed_or_shifts() {
    run(1, async {
        let period = Duration::from_millis(10);
        for behavior in [MissedTickBehavior::Burst, MissedTickBehavior::Delay] {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(behavior);
            assert_eq!((ticks.missed_tick_behavior(), ticks.period()), (behavior, period));
            let first = ticks.tick().await;
            // Late on purpose.
            sleep(period * 5).await;
            let second = ticks.tick().await;
            let late = dapple_io::time::Instant::now();
            let third = ticks.tick().await;
            match behavior {
                MissedTickBehavior::Burst => assert_eq!((second - first, third - first), (period, 2 * period)),
                _ => assert!(third >= first + period * 6 && third <= late + period, "{:?}", third - first),
            }
        }
    });
}

#[test]
fn callbacks_at_a_time() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let now = Instant::now();
    for deadline in [now + Duration::from_millis(5), now - Duration::from_millis(5)] {
        let (callback, rx) = channel_callback();
        let _alarm = at(deadline, callback).unwrap();
        rx.recv_timeout(LIMIT).unwrap();
        assert!(Instant::now() >= deadline);
    }
}

#[test]
fn an_earlier_timer_wakes_a_worker_that_waits_for_a_later_one() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (late, _late_rx) = channel_callback();
    let _late = after(LIMIT * 10, late).unwrap();
    wait_until("the worker is parked", || runtime.handle().stats().workers[0].parks > 0);
    let (early, rx) = channel_callback();
    let _early = after(Duration::from_millis(1), early).unwrap();
    rx.recv_timeout(LIMIT).unwrap();
}

#[test]
fn callbacks_repeat_until_cancelled() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (callback, rx) = channel_callback();
    let ticking = every(Duration::from_millis(1), callback).unwrap();
    let start = Instant::now();
    for _ in 0..10 {
        rx.recv_timeout(LIMIT).unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(8));
    ticking.cancel();
    // At most one run was queued; then the callback is dropped, and with it the sender.
    wait_until("the callback is gone", || matches!(rx.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)));
}

#[test]
fn dropping_cancels_and_detaching_does_not() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (dropped, dropped_rx) = channel_callback();
    drop(after(Duration::from_millis(1), dropped).unwrap());
    let (detached, detached_rx) = channel_callback();
    after(Duration::from_millis(5), detached).unwrap().detach();
    detached_rx.recv_timeout(LIMIT).unwrap();
    assert!(dropped_rx.recv_timeout(LIMIT).is_err(), "was never called");
}

#[test]
fn a_timer_cancelled_in_its_own_color_does_not_ring_again() {
    let runtime = dapple_io::runtime_builder().workers(2).build().unwrap();
    let _entered = runtime.enter();
    for _ in 0..100 {
        let color = Color::new();
        let (tx, rx) = std::sync::mpsc::channel();
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let (inner, rings) = (is_cancelled.clone(), tx.clone());
        let callback = color.wrap(move |()| {
            let _ = rings.send(inner.load(Ordering::Relaxed));
        });
        let ticks = every(Duration::from_micros(300), callback).unwrap();
        assert_eq!(rx.recv(), Ok(false));
        color.post(move || {
            // Runs until the next run of the ticks has been posted.
            let until = Instant::now() + Duration::from_millis(2);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            ticks.cancel();
            is_cancelled.store(true, Ordering::Relaxed);
            drop(tx);
        });
        assert!(rx.iter().all(|late| !late), "it rang after it was cancelled");
    }
}
