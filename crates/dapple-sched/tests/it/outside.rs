//! The driver's reports about threads that run a future by `block_on`.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use dapple_sched::{Driver, Outside, Runtime, block_on, spawn};

use crate::support::LONG;

/// Parks by yielding, and notes the reports.
#[derive(Default)]
struct Notes(Mutex<Vec<Outside>>);

impl Driver for Notes {
    fn park(&self, _worker: usize, timeout: Option<Duration>) {
        thread::sleep(timeout.unwrap_or(LONG).min(Duration::from_micros(100)));
    }

    fn poll(&self, _worker: usize) -> bool {
        false
    }

    fn unpark(&self, _worker: usize) {}

    fn shutdown(&self) {}

    fn outside(&self, news: Outside) {
        self.0.lock().unwrap().push(news);
    }
}

fn runtime() -> (Runtime, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let given = notes.clone();
    let runtime = Runtime::builder().workers(1).driver(move |_| Ok(given)).build().unwrap();
    (runtime, notes)
}

#[test]
fn each_wait_is_ended_by_one_wake() {
    let (runtime, notes) = runtime();
    runtime.block_on(async {
        for _ in 0..200 {
            spawn(async {}).await.unwrap();
        }
    });
    let notes = notes.0.lock().unwrap();
    let count = |news| notes.iter().filter(|&&noted| noted == news).count();
    assert_eq!((notes.first(), notes.last()), (Some(&Outside::Begins), Some(&Outside::Ends)));
    assert_eq!((count(Outside::Begins), count(Outside::Ends)), (1, 1));
    assert_eq!(count(Outside::Waits), count(Outside::Woken));
    // A wait and its wake may come in either order, but two waits, or two wakes, never without the
    // other between them.
    let waits = notes.iter().scan(0i32, |waits, news| {
        *waits += i32::from(*news == Outside::Waits) - i32::from(*news == Outside::Woken);
        Some(*waits)
    });
    assert!(waits.into_iter().all(|waits| (-1..=1).contains(&waits)));
}

#[test]
fn a_thread_that_wakes_itself_never_waits() {
    let (runtime, notes) = runtime();
    let mut left = 100;
    runtime.block_on(std::future::poll_fn(|cx| {
        left -= 1;
        cx.waker().wake_by_ref();
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    }));
    assert_eq!(*notes.0.lock().unwrap(), [Outside::Begins, Outside::Ends]);
}

#[test]
fn a_panic_ends_it_too() {
    let (runtime, notes) = runtime();
    let _entered = runtime.enter();
    let panic = std::panic::catch_unwind(|| block_on(async { panic!("on purpose") }));
    assert!(panic.is_err());
    assert_eq!(*notes.0.lock().unwrap(), [Outside::Begins, Outside::Ends]);
}
