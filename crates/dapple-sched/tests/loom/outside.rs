//! A thread that is not a worker, in `block_on`.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use dapple_sched::model::Model;
use dapple_sched::{Driver, Outside, block_on};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicIsize;
use loom::thread;

use crate::support::{Flag, check};

/// Counts threads as a standing clock does. Orders nothing.
struct Counting(AtomicIsize);

impl Driver for Counting {
    fn park(&self, _worker: usize, _timeout: Option<Duration>) {}

    fn poll(&self, _worker: usize) -> bool {
        false
    }

    fn unpark(&self, _worker: usize) {}

    fn shutdown(&self) {}

    fn outside(&self, news: Outside) {
        let change = if matches!(news, Outside::Begins | Outside::Woken) { 1 } else { -1 };
        self.0.fetch_add(change, Relaxed);
    }
}

impl Counting {
    fn model() -> (Arc<Counting>, Model) {
        let driver = Arc::new(Counting(AtomicIsize::new(0)));
        (driver.clone(), Model::new(1, driver))
    }

    fn count(&self) -> isize {
        self.0.fetch_add(0, Relaxed)
    }
}

/// Written before a wake, and read by the poll after it.
struct Parcel(UnsafeCell<u32>);

// SAFETY: loom checks it.
unsafe impl Send for Parcel {}
// SAFETY: as above.
unsafe impl Sync for Parcel {}

// A thread wakes another one that is about to wait: the next poll comes, and sees all writes from
// before the wake.
#[test]
fn a_wake_meets_block_on() {
    check(4, || {
        let (driver, model) = Counting::model();
        let entered = model.handle().enter();
        let parcel = Arc::new(Parcel(UnsafeCell::new(0)));
        let mut other = None;
        let seen = block_on(poll_fn(|cx| {
            if other.is_none() {
                let (waker, parcel) = (cx.waker().clone(), parcel.clone());
                other = Some(thread::spawn(move || {
                    // SAFETY: read after the wake only; loom checks it.
                    parcel.0.with_mut(|value| unsafe { *value = 1 });
                    waker.wake();
                }));
                return Poll::Pending;
            }
            // SAFETY: as above.
            Poll::Ready(parcel.0.with(|value| unsafe { *value }))
        }));
        assert_eq!(seen, 1);
        other.expect("it was polled").join().unwrap();
        assert_eq!(driver.count(), 0);
        drop(entered);
    });
}

// Two threads wake it at once: each time it runs, it is counted once.
#[test]
fn two_wakes_meet_block_on() {
    check(3, || {
        let (driver, model) = Counting::model();
        let entered = model.handle().enter();
        let flags = [Flag::new(), Flag::new()];
        let mut others = Vec::new();
        block_on(poll_fn(|cx| {
            assert!(driver.count() >= 1, "a thread runs that is not counted");
            if others.is_empty() {
                others.extend(flags.clone().map(|flag| {
                    let waker = cx.waker().clone();
                    thread::spawn(move || {
                        flag.set();
                        waker.wake();
                    })
                }));
            }
            if flags.iter().all(Flag::is_set) { Poll::Ready(()) } else { Poll::Pending }
        }));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(driver.count(), 0);
        drop(entered);
    });
}
