//! Windows: they are kept, permits of dropped senders are not lost, and a growing window admits
//! waiters.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dapple_stage::operators::direct::FlowControlled;
use shuttle::future::block_on;
use shuttle::thread;
use tower::{ServiceExt, service_fn};

use super::{check, pause, poll_once};

// Meant to catch: a claim that is dropped without waking the next ones, and a release that wakes no
// waiter (deadlocks).
#[test]
fn a_window_is_kept_and_no_place_is_lost() {
    check(4_000, || {
        let inside = Arc::new(AtomicUsize::new(0));
        let sink = {
            let inside = inside.clone();
            FlowControlled::new(
                service_fn(move |()| {
                    let inside = inside.clone();
                    async move {
                        assert!(inside.fetch_add(1, Ordering::SeqCst) < 1, "two in a window of one");
                        pause().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        Ok::<_, Infallible>(())
                    }
                }),
                1,
            )
        };
        let senders = [0, 1].map(|_| {
            let sink = sink.clone();
            thread::spawn(move || block_on(sink.oneshot(())).unwrap())
        });
        let hasty = {
            let mut sink = sink.clone();
            thread::spawn(move || {
                let _in_line = poll_once(pin!(sink.ready()));
                thread::yield_now();
            })
        };
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        hasty.join().unwrap();
        assert_eq!(sink.window().in_use(), 0);
    });
}

// Meant to catch: a changed limit that wakes no waiter (deadlock).
#[test]
fn a_window_that_grows_admits_waiters() {
    check(2_000, || {
        let sink = FlowControlled::new(service_fn(async |()| Ok::<_, Infallible>(())), 0);
        let senders = [0, 1].map(|_| {
            let sink = sink.clone();
            thread::spawn(move || block_on(sink.oneshot(())).unwrap())
        });
        let window = sink.window();
        thread::spawn(move || window.set(1)).join().unwrap();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}
