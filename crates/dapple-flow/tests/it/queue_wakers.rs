//! Queues: wakers that panic or read the queue, and tasks that always find it ready.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};

use dapple_flow::flow::Queue;
use dapple_sched::spawn;

use crate::bombs::{bomb, counting, drop_bomb};
use crate::clones::on_clone;
use crate::{LIMIT, MANY, runtime};

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

#[test]
fn c7_queues_let_others_go() {
    lets_others_go!("a queue", { Queue::new(2) }, |queue| {
        queue.push(1).await.unwrap();
        assert_eq!(queue.pop().await, Some(1));
    });
    lets_others_go!("a queue that only fills", { Queue::new(MANY) }, |queue| { queue.push(1).await.unwrap() });
    lets_others_go!("a queue that is emptied in batches", { Queue::new(2) }, |queue| {
        queue.try_push(1).unwrap();
        assert_eq!(queue.pop_many(2).await, [1]);
    });
}

#[test]
fn poppers_of_a_queue_are_woken_despite_one_that_panics() {
    for bad in [bomb, drop_bomb] {
        let runtime = quiet();
        let _entered = runtime.enter();
        let queue = Queue::<u32>::new(4);
        let (calls, waker) = counting();
        let (mut one, mut two) = (pin!(queue.pop()), pin!(queue.pop()));
        assert!(poll(one.as_mut(), &bad()).is_pending());
        assert!(poll(two.as_mut(), &waker).is_pending());
        queue.close();
        assert_eq!(calls.count(), 1);
        assert!(poll(two.as_mut(), &waker).is_ready());
    }
}

#[test]
fn a_waker_is_cloned_without_a_lock() {
    let (done, is_done) = channel();
    // On its own thread: a self-deadlock would otherwise hang the test.
    std::thread::spawn(move || {
        let queue = Queue::<u32>::new(1);
        queue.try_push(1).unwrap();
        let own_queue = queue.clone();
        let waker = on_clone(move || {
            assert!(poll(pin!(own_queue.push(2)), Waker::noop()).is_pending());
        });
        assert!(poll(pin!(queue.push(2)), &waker).is_pending());
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LIMIT).expect("a clone waits for a lock that its own thread holds");
}

/// A runtime that does not print its panics.
fn quiet() -> dapple_sched::Runtime {
    let builder = dapple_io::runtime_builder().workers(1);
    builder.panic_handler(|_| ()).build().expect("a runtime can be built")
}
