//! C6: a kernel event or a timer does not wait while a worker sleeps.

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dapple_io::event::after;
use dapple_io::net::UnixStream;
use dapple_sched::{Color, TaskWait, spawn, yield_now};

use crate::{LIMIT, channel_callback, runtime};

/// Occupies the worker until the test is over, or until a limit that only a bug reaches.
fn spin_until(done: &AtomicBool) {
    let start = Instant::now();
    while !done.load(Ordering::Acquire) && start.elapsed() < BUSY_MAX {
        std::hint::spin_loop();
    }
}

/// Longer than the test waits: if no other worker serves the event, it is not served at all.
const BUSY_MAX: Duration = Duration::from_secs(2 * LIMIT.as_secs());

/// Two ends of a connection; a read of the second gives up after a limit that only a bug reaches.
fn connection() -> (StdUnixStream, StdUnixStream) {
    let (near, far) = StdUnixStream::pair().unwrap();
    far.set_read_timeout(Some(LIMIT)).unwrap();
    (near, far)
}

#[test]
fn c6_event_of_busy_worker_is_served() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (near, mut far) = connection();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = done.clone();
    let (tx, rx) = mpsc::channel();
    Color::new().post(move || {
        let stream = UnixStream::from_std(near).unwrap();
        let _echo = spawn(async move {
            let mut buf = [0; 1];
            let mut read = Box::pin(stream.read(&mut buf));
            poll_fn(|cx| {
                let polled = read.as_mut().poll(cx);
                // Now it waits for the kernel.
                tx.send(()).unwrap();
                polled
            })
            .await
            .unwrap();
            drop(read);
            stream.write_all(&buf).await.unwrap();
        });
        spin_until(&is_done);
    });
    rx.recv_timeout(LIMIT).unwrap();
    far.write_all(b"x").unwrap();
    let served = far.read_exact(&mut [0]);
    done.store(true, Ordering::Release);
    served.unwrap();
}

/// A color that posts to itself until told that the test is over.
fn keep_going(color: Color, done: Arc<AtomicBool>) {
    if !done.load(Ordering::Acquire) {
        let next = color.clone();
        color.post(move || keep_going(next, done));
    }
}

// No worker sleeps, so none is woken to help. Either of the two workers may be the one that polls
// the kernel.
#[test]
fn c6_event_is_served_beside_a_busy_worker_where_none_sleeps() {
    for stuck in [0, 1] {
        let runtime = runtime(2);
        let _entered = runtime.enter();
        let (near, mut far) = connection();
        let done = Arc::new(AtomicBool::new(false));
        let is_done = done.clone();
        let stream = UnixStream::from_std(near).unwrap();
        let _echo = spawn(async move {
            let mut buf = [0; 1];
            for _ in 0..2 {
                stream.read(&mut buf).await.unwrap();
                stream.write_all(&buf).await.unwrap();
            }
        });
        // It waits for the kernel from now on.
        far.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        let (tx, rx) = mpsc::channel();
        let begun = tx.clone();
        runtime.handle().pinned_color(stuck).post(move || {
            begun.send(()).unwrap();
            spin_until(&is_done);
        });
        let going = runtime.handle().pinned_color(1 - stuck);
        let (next, is_done) = (going.clone(), done.clone());
        going.post(move || {
            keep_going(next, is_done);
            tx.send(()).unwrap();
        });
        // Both have started: no task can be queued after the stuck one.
        (0..2).for_each(|_| rx.recv_timeout(LIMIT).unwrap());
        far.write_all(b"x").unwrap();
        let served = far.read_exact(&mut [0]);
        done.store(true, Ordering::Release);
        served.unwrap();
    }
}

#[test]
fn c6_timer_of_busy_worker_fires() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (tick, ticked) = channel_callback();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = done.clone();
    Color::new().post(move || {
        // Armed in the wheel of this worker, which is about to be busy.
        after(Duration::from_millis(5), tick).unwrap().detach();
        spin_until(&is_done);
    });
    let fired = ticked.recv_timeout(LIMIT);
    done.store(true, Ordering::Release);
    fired.unwrap();
}

// Tasks spawned together are polled in one stretch, in which one of them stays. Earlier ones have
// yielded, later ones have not been polled.
#[test]
fn c6_tasks_beside_a_long_poll_are_taken_over() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    for blocks_at in [0, 7, 30] {
        let done = Arc::new(AtomicBool::new(false));
        let (tx, rx) = mpsc::channel();
        let is_done = done.clone();
        Color::new().post(move || {
            for n in 0..50 {
                let (tx, done) = (tx.clone(), is_done.clone());
                drop(spawn(async move {
                    if n == blocks_at {
                        // A blocking call, in a place where none is allowed.
                        return spin_until(&done);
                    }
                    yield_now().await;
                    tx.send(n).unwrap();
                }));
            }
        });
        let ended: Result<Vec<_>, _> = (0..49).map(|_| rx.recv_timeout(LIMIT)).collect();
        done.store(true, Ordering::Release);
        let mut ended = ended.expect("the other worker polls them");
        ended.sort_unstable();
        assert_eq!(ended, (0..50).filter(|n| *n != blocks_at).collect::<Vec<_>>());
        assert!(rx.recv_timeout(LIMIT).is_err(), "no sender is left");
    }
}

// It uses no processor time, so it is not preempted.
#[test]
fn c6_what_waits_behind_a_blocked_worker_runs_elsewhere() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (tx, rx) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let home = runtime.handle().new_color_at(0);
    home.post(move || {
        for n in 0..10 {
            let tx = tx.clone();
            Color::new().post(move || tx.send(n).unwrap());
        }
        // Blocks until the test is over, or until a limit that only a bug reaches.
        _ = gate.recv_timeout(BUSY_MAX);
    });
    let ran: Result<Vec<_>, _> = (0..10).map(|_| rx.recv_timeout(LIMIT)).collect();
    drop(open);
    assert_eq!(ran.expect("the other worker runs them").len(), 10);
}

#[test]
fn a_dump_says_which_tasks_wait_for_timers_and_descriptors() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (near, _far) = StdUnixStream::pair().unwrap();
    let stream = UnixStream::from_std(near).unwrap();
    let reads = spawn(async move { stream.read(&mut [0]).await.map(drop) });
    let sleeps = spawn(dapple_io::time::sleep(Duration::from_secs(3_600)));
    let until = Instant::now() + LIMIT;
    loop {
        let dump = runtime.handle().dump();
        let waits = |wait: TaskWait| dump.tasks.iter().any(|tasks| tasks.wait == wait && tasks.count == 1);
        if waits(TaskWait::Readable) && waits(TaskWait::Timer) {
            break;
        }
        assert!(Instant::now() < until, "{dump}");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop((reads, sleeps));
}
