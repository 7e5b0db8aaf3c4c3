//! Nineteen thousand idle descriptors. It needs a process of its own, for its limit and to measure
//! its processor time.

use std::process::Command;
use std::time::{Duration, Instant};

use dapple_io::pipe::{Sender, pipe};
use dapple_sched::{JoinHandle, Runtime};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{LIMIT, runtime, sources, wait_until};

const CHILD: &str = "DAPPLE_IO_TEST_IDLE";
/// Two descriptors each.
const PIPES: usize = 9_500;

#[test]
fn nineteen_thousand_idle_descriptors_cost_nothing() {
    if std::env::var_os(CHILD).is_some() {
        return in_child();
    }
    let needed = 2 * PIPES as u64 + 200;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        eprintln!("skipped: {needed} open files are needed, and `ulimit -Hn` allows {:?}", limit.maximum);
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["idle_descriptors::nineteen_thousand_idle_descriptors_cost_nothing"])
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{output}");
    assert!(output.contains("1 passed"), "{output}");
}

fn in_child() {
    let needed = 2 * PIPES as u64 + 200;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit }).unwrap();
    }
    let runtime = runtime(2);
    let mut idle = idle_pipes(&runtime);
    wait_until("all wait", || dapple_is_asleep(&runtime));
    assert_eq!(sources(&runtime), 2 * PIPES);
    no_worker_wakes_up(&runtime);
    a_busy_pair_exchanges(&runtime);

    // They are idle, not forgotten.
    for number in (0..PIPES).step_by(97).rev() {
        let (sender, task) = idle.swap_remove(number);
        let received = runtime.block_on(async {
            sender.write_all(&[7]).await.unwrap();
            dapple_io::time::timeout(LIMIT, task).await.expect("it is woken").unwrap()
        });
        assert_eq!(received, 7);
    }
    drop(idle);
    wait_until("all are closed", || sources(&runtime) == 0);
}

/// A task waits at the end of each.
fn idle_pipes(runtime: &Runtime) -> Vec<(Sender, JoinHandle<u8>)> {
    let _entered = runtime.enter();
    let open = |_| {
        let (sender, receiver) = pipe().unwrap();
        let task = runtime.spawn(async move {
            let mut buf = [0];
            // The other end is closed: most of them end that way.
            receiver.read(&mut buf).await.unwrap();
            buf[0]
        });
        (sender, task)
    };
    (0..PIPES).map(open).collect()
}

fn dapple_is_asleep(runtime: &Runtime) -> bool {
    let parks = || runtime.handle().stats().workers.iter().map(|worker| worker.parks).sum::<u64>();
    let before = parks();
    std::thread::sleep(Duration::from_millis(100));
    before > 0 && parks() == before
}

/// No worker wakes up for a second, so the process uses almost no processor time, whatever other
/// processes do.
fn no_worker_wakes_up(runtime: &Runtime) {
    let parks = || runtime.handle().stats().workers.iter().map(|worker| worker.parks).sum::<u64>();
    let (parks_before, cpu_before) = (parks(), cpu_time());
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu_time() - cpu_before;
    assert_eq!(parks(), parks_before, "nobody woke up");
    assert!(used < Duration::from_millis(50), "{used:?} of processor time in a second without work");
}

fn a_busy_pair_exchanges(runtime: &Runtime) {
    let _entered = runtime.enter();
    let (there, here) = (pipe().unwrap(), pipe().unwrap());
    let echo = runtime.spawn(async move {
        let mut buf = [0; 512];
        loop {
            let len = there.1.read(&mut buf).await.unwrap();
            if len == 0 {
                return;
            }
            here.0.write_all(&buf[..len]).await.unwrap();
        }
    });
    let start = Instant::now();
    let asking = runtime.spawn(async move {
        let mut buf = [0; 4];
        for round in 0..10_000_u32 {
            there.0.write_all(&round.to_le_bytes()).await.unwrap();
            here.1.read_exact(&mut buf).await.unwrap();
            assert_eq!(u32::from_le_bytes(buf), round);
        }
    });
    runtime.block_on(async { dapple_io::time::timeout(LIMIT, asking).await.expect("it goes on").unwrap() });
    runtime.block_on(async { dapple_io::time::timeout(LIMIT, echo).await.expect("it ends").unwrap() });
    eprintln!("10,000 round trips beside {} idle descriptors: {:?}", 2 * PIPES, start.elapsed());
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
