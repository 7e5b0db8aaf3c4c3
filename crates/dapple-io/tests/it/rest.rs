//! Events while workers rest.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use dapple_io::net::UnixStream;
use dapple_sched::{Runtime, yield_now};

use crate::quota::Quota;

fn await_active(runtime: &Runtime, active: usize) {
    let since = Instant::now();
    while runtime.handle().stats().workers_active != active {
        assert!(since.elapsed() < LONG, "there are not {active} workers that work");
        runtime.block_on(runtime.spawn(yield_now())).unwrap();
    }
}

/// Streams with answering tasks at their other ends.
fn echoes(runtime: &Runtime, count: usize) -> Vec<StdUnixStream> {
    let _entered = runtime.enter();
    let echo = |_| {
        let (ours, theirs) = StdUnixStream::pair().unwrap();
        ours.set_read_timeout(Some(LONG)).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let stream = UnixStream::from_std(theirs).unwrap();
        drop(runtime.spawn(async move {
            let mut byte = [0];
            while stream.read(&mut byte).await.is_ok_and(|len| len == 1) {
                stream.write_all(&byte).await.unwrap();
            }
        }));
        ours
    };
    (0..count).map(echo).collect()
}

fn round_trips(streams: &mut [StdUnixStream], rounds: usize) {
    for round in 0..rounds {
        for stream in &mut *streams {
            stream.write_all(&[round as u8]).unwrap();
        }
        for stream in &mut *streams {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [round as u8]);
        }
    }
}

#[test]
fn events_do_not_wake_a_worker_that_rests() {
    if !available_parallelism().is_ok_and(|count| count.get() >= 2) {
        return;
    }
    let quota = Quota::new("events");
    let builder = dapple_io::runtime_builder().workers(2).follow_cpus(true).system_root(&quota.0);
    let runtime = builder.build().unwrap();
    let mut streams = echoes(&runtime, 16);
    for _ in 0..2 {
        quota.set(2);
        await_active(&runtime, 2);
        round_trips(&mut streams, 200);
        quota.set(1);
        await_active(&runtime, 1);
        // Tasks that were at home there move.
        round_trips(&mut streams, 10);
        let wakes = || runtime.handle().stats().workers[1].parks;
        let before = wakes();
        round_trips(&mut streams[..1], ROUNDS);
        // Each event is separate, and some worker waits for it.
        let woken = wakes() - before;
        assert!(woken < ROUNDS as u64 / 10, "{woken} times awake at {ROUNDS} round trips");
    }
}

const ROUNDS: usize = 1_000;

const LONG: Duration = Duration::from_secs(120);
