//! The child of a `fork`: it has no workers, and reports that instead of waiting for them.
//!
//! Each test forks in a separate process, in which no other test runs: a fork of a process with
//! many threads may copy locks that they hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::*};
use std::time::Duration;

use dapple_sched::{Color, Colored, Handle, Runtime, block_on, spawn};

use crate::support::{LONG, runtime};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
    fn alarm(seconds: u32) -> u32;
}

/// Runs `child` in a fork of this process, which a signal ends if it hangs; returns its status, as
/// `waitpid` does.
fn in_child(child: impl FnOnce()) -> i32 {
    // SAFETY: no other thread of this process holds a lock: the workers sleep, and the harness
    // waits for its only test.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "cannot fork");
    if pid == 0 {
        // SAFETY: takes a number.
        unsafe { alarm(LONG.as_secs() as u32) };
        let ended = catch_unwind(AssertUnwindSafe(child));
        // SAFETY: ends the child without the destructors and exit handlers of its parent.
        unsafe { _exit(i32::from(ended.is_err())) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a word of our own.
    assert_eq!(unsafe { waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// Runs `f`, which must panic with that sentence.
#[track_caller]
fn assert_refused<R>(f: impl FnOnce() -> R) {
    let payload = catch_unwind(AssertUnwindSafe(|| drop(f()))).expect_err("it was accepted");
    let message = payload.downcast_ref::<String>().expect("it is text");
    assert!(message.contains("is a fork of the one in which its Dapple runtime was built"), "{message}");
}

/// Runs a test of this module in a separate process.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", &format!("fork::{name}"), "--nocapture", "--test-threads=1"]).env(ALONE, "");
    let output = process.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_child_is_told_that_its_runtime_has_no_workers() {
    alone("a_child_is_told_that_its_runtime_has_no_workers", || {
        let runtime = runtime(2);
        let (color, state) = (runtime.handle().new_color(), {
            let _entered = runtime.enter();
            Colored::new(0)
        });
        let pending = runtime.spawn(std::future::pending::<()>());
        let status = in_child(|| {
            assert_refused(|| runtime.spawn(async {}));
            assert_refused(|| color.post(|| ()));
            assert_refused(|| color.spawn(async {}));
            assert_refused(|| runtime.block_on(async {}));
            assert_refused(|| state.try_with(|_| ()));
            assert_refused(|| state.with_blocking(|_| ()));
            assert_refused(Color::new);
            assert_refused(|| block_on(state.with(|_| ())));
            let _entered = runtime.enter();
            assert_refused(Color::new);
            assert_refused(|| block_on(pending));
            assert!(Handle::try_current().is_none() && Handle::of_thread().is_none());
            assert_refused(|| runtime.shutdown(Duration::ZERO));
        });
        assert_eq!(status, 0);
    });
}

#[test]
fn a_child_may_build_a_runtime_of_its_own() {
    alone("a_child_may_build_a_runtime_of_its_own", || {
        let parents = runtime(3);
        let _entered = parents.enter();
        let color = Color::new();
        let status = in_child(|| {
            let own = runtime(2);
            // The child's own runtime is current, although the parent has entered another one.
            assert_eq!(Handle::current().workers(), 2);
            assert_eq!(own.block_on(async { spawn(async { 7 }).await }).unwrap(), 7);
            assert_refused(|| color.post(|| ()));
            assert_refused(|| parents.block_on(async {}));
            assert_eq!(own.shutdown(LONG).workers_stuck, 0);
            drop((color, parents));
        });
        assert_eq!(status, 0);
    });
}

#[test]
fn a_callback_that_forks_does_not_go_on_as_a_worker() {
    alone("a_callback_that_forks_does_not_go_on_as_a_worker", || {
        let runtime = runtime(1);
        // No channel: the thread that waits there may hold its lock, and the child would wait for
        // that.
        let (waits, child) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI32::new(0)));
        runtime.handle().new_color().post({
            let (waits, child) = (waits.clone(), child.clone());
            move || {
                while !waits.load(Acquire) {
                    std::thread::yield_now();
                }
                // SAFETY: as in `in_child`; the test's thread waits for a number.
                match unsafe { fork() } {
                    // SAFETY: takes a number. The child returns.
                    0 => _ = unsafe { alarm(LONG.as_secs() as u32) },
                    pid => child.store(pid, Release),
                }
            }
        });
        waits.store(true, Release);
        while child.load(Acquire) == 0 {
            std::thread::yield_now();
        }
        let mut status = 0;
        // SAFETY: our own child, and a word of our own.
        unsafe { waitpid(child.load(Acquire), &raw mut status, 0) };
        const SIGABRT: i32 = 6;
        assert_eq!(status & 0x7f, SIGABRT, "{status:#x}");
    });
}

#[test]
fn runtimes_that_fork_nothing_are_not_disturbed() {
    alone("runtimes_that_fork_nothing_are_not_disturbed", || {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        assert_eq!(in_child(|| ()), 0);
        let seen = ran.clone();
        runtime.block_on(runtime.spawn(async move { seen.store(true, Relaxed) })).unwrap();
        assert!(ran.load(Relaxed));
        assert!(Command::new("true").status().unwrap().success());
    });
}

const ALONE: &str = "DAPPLE_TEST_FORK";
