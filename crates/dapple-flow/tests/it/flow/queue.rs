//! Queues alone.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use dapple_flow::flow::{PopError, PushError, Queue, WhenFull};
use dapple_sched::{Color, spawn};
use futures_core::Stream;
use futures_sink::Sink;

use super::poll_once;
use crate::{LIMIT, run, runtime, wait_until};

/// Tasks, plain threads and callbacks at both ends.
#[test]
fn what_goes_in_comes_out_once_and_in_order() {
    const EACH: u64 = 2_000;
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let queue = Queue::new(7);
    let results = Queue::new(64);
    let mut producers = Vec::new();
    for producer in 0..2 {
        let queue = queue.clone();
        producers.push(spawn(async move {
            for n in 0..EACH {
                queue.push((producer, n)).await.unwrap();
            }
        }));
    }
    let thread = thread::spawn({
        let queue = queue.clone();
        move || (0..EACH).for_each(|n| queue.push_blocking((2, n), None).unwrap())
    });
    let callback = Color::new().wrap({
        let queue = queue.clone();
        // A callback cannot wait: it retries.
        move |n: u64| {
            while matches!(queue.try_push((3, n)), Err(PushError::Full(_))) {
                thread::yield_now();
            }
        }
    });
    (0..EACH).for_each(|n| callback.call(n));
    for _ in 0..2 {
        let (queue, results) = (queue.clone(), results.clone());
        spawn(async move {
            let mut seen = Vec::new();
            while let Some(item) = queue.pop().await {
                seen.push(item);
            }
            results.push(seen).await.unwrap();
        });
    }
    let popper = thread::spawn({
        let queue = queue.clone();
        move || std::iter::from_fn(|| queue.pop_blocking(Some(LIMIT)).ok()).collect::<Vec<_>>()
    });
    for producer in producers {
        dapple_sched::block_on(producer).unwrap();
    }
    thread.join().unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    callback.color().post(move || tx.send(()).unwrap());
    rx.recv_timeout(LIMIT).unwrap();
    assert!(queue.len() <= 7);
    queue.close();
    let mut all = popper.join().unwrap();
    let is_sorted =
        |seen: &[(u64, u64)]| (0..4).all(|producer| seen.iter().filter(|item| item.0 == producer).is_sorted());
    assert!(is_sorted(&all));
    for _ in 0..2 {
        let seen = results.pop_blocking(Some(LIMIT)).unwrap();
        assert!(is_sorted(&seen));
        all.extend(seen);
    }
    all.sort_unstable();
    let expected: Vec<(u64, u64)> = (0..4).flat_map(|producer| (0..EACH).map(move |n| (producer, n))).collect();
    assert!(all == expected, "{} of {} items", all.len(), expected.len());
}

#[test]
fn the_limit_holds_and_decides() {
    let waits = Queue::new(2);
    assert_eq!((waits.try_push(1), waits.try_push(2)), (Ok(()), Ok(())));
    assert_eq!(waits.try_push(3), Err(PushError::Full(3)));
    assert_eq!(waits.push_blocking(3, Some(Duration::from_millis(1))), Err(PushError::Full(3)));
    assert!(poll_once(waits.push(3)).is_pending());
    assert_eq!((waits.len(), waits.refused_count(), waits.dropped_count()), (2, 0, 0));

    let refuses = Queue::with(2, WhenFull::Refuse);
    assert_eq!((refuses.try_push(1), refuses.try_push(2)), (Ok(()), Ok(())));
    assert_eq!(poll_once(refuses.push(3)), Poll::Ready(Err(PushError::Full(3))));
    assert_eq!(refuses.push_blocking(4, None), Err(PushError::Full(4)));
    assert_eq!((refuses.len(), refuses.refused_count()), (2, 2));

    let loses = Queue::with(2, WhenFull::DropOldest);
    for n in 0..10 {
        assert_eq!(poll_once(loses.push(n)), Poll::Ready(Ok(())));
    }
    assert_eq!((loses.len(), loses.dropped_count()), (2, 8));
    assert_eq!(loses.try_pop_many(5), [8, 9]);
    assert!(catch_unwind(|| Queue::<()>::new(0)).is_err());
}

#[test]
fn waiters_for_room_get_it_in_order() {
    run(2, async {
        let queue = Queue::new(1);
        queue.push(0).await.unwrap();
        let (first, second, third) = (queue.clone(), queue.clone(), queue.clone());
        let (mut first, mut second) = (pin!(first.push(1)), pin!(second.push(2)));
        let mut third = Box::pin(third.push(3));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(third.as_mut().poll(&mut cx).is_pending());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert_eq!(queue.pop().await, Some(0));
        // There is room, and it is promised.
        assert_eq!(queue.try_push(9), Err(PushError::Full(9)));
        assert!(second.as_mut().poll(&mut cx).is_pending());
        assert_eq!(first.await, Ok(()));
        // Its turn comes, and it is dropped without a poll: the next one gets the room.
        assert_eq!(queue.pop().await, Some(1));
        drop(third);
        assert_eq!(second.await, Ok(()));
        assert_eq!(queue.pop().await, Some(2));
        assert_eq!(queue.try_push(9), Ok(()));
    });
}

#[test]
fn a_dropped_future_takes_nothing_and_passes_its_wake_on() {
    run(2, async {
        let queue = Queue::new(4);
        let (one, other) = (queue.clone(), queue.clone());
        let mut one = Box::pin(one.pop());
        assert!(poll_once(one.as_mut()).is_pending());
        // The task waits after this one.
        let (tx, rx) = std::sync::mpsc::channel();
        let waits = spawn(async move {
            let mut pop = pin!(other.pop());
            poll_fn(|cx| {
                let polled = pop.as_mut().poll(cx);
                let _ = tx.send(());
                polled
            })
            .await
        });
        rx.recv_timeout(LIMIT).unwrap();
        queue.push(7).await.unwrap();
        drop(one);
        assert_eq!(waits.await.unwrap(), Some(7));
        // Limits that pass while items come.
        let producer = spawn({
            let queue = queue.clone();
            async move {
                for n in 0..500 {
                    dapple_io::time::sleep(Duration::from_micros(n % 7 * 50)).await;
                    queue.push(n).await.unwrap();
                }
                queue.close();
            }
        });
        let mut seen = Vec::new();
        loop {
            match queue.pop_timeout(Duration::from_micros(100)).await {
                Ok(n) => seen.push(n),
                Err(PopError::Closed) => break,
                Err(_) => {}
            }
        }
        producer.await.unwrap();
        assert!(seen.iter().copied().eq(0..500), "{} came", seen.len());
    });
}

#[test]
fn closing_ends_all_waits() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let empty = Queue::<u32>::new(1);
    let full = Queue::new(1);
    full.try_push(1).unwrap();
    let pops = spawn({
        let empty = empty.clone();
        async move { empty.pop().await }
    });
    let streams = spawn({
        let mut empty = empty.clone();
        async move { poll_fn(|cx| Pin::new(&mut empty).poll_next(cx)).await }
    });
    let pushes = spawn({
        let full = full.clone();
        async move { full.push(2).await }
    });
    let thread = thread::spawn({
        let empty = empty.clone();
        move || empty.pop_blocking(None)
    });
    empty.close();
    full.close();
    assert_eq!(dapple_sched::block_on(pops).unwrap(), None);
    assert_eq!(dapple_sched::block_on(streams).unwrap(), None);
    assert_eq!(dapple_sched::block_on(pushes).unwrap(), Err(PushError::Closed(2)));
    assert_eq!(thread.join().unwrap(), Err(PopError::Closed));
    // Items in the queue can still be taken out.
    assert_eq!(full.try_push(3), Err(PushError::Closed(3)));
    assert_eq!((full.try_pop(), full.try_pop()), (Ok(1), Err(PopError::Closed)));
    assert_eq!(full.pop_blocking(None), Err(PopError::Closed));
}

#[test]
fn a_queue_is_a_stream_and_a_sink() {
    run(2, async {
        let queue = Queue::new(1);
        let mut sink = queue.clone();
        let producer = spawn(async move {
            for n in 0..100 {
                poll_fn(|cx| Pin::new(&mut sink).poll_ready(cx)).await.unwrap();
                Pin::new(&mut sink).start_send(n).unwrap();
            }
            poll_fn(|cx| Pin::new(&mut sink).poll_close(cx)).await.unwrap();
        });
        let (mut one, mut other) = (queue.clone(), queue.clone());
        let also = spawn(async move {
            let mut seen = Vec::new();
            while let Some(n) = poll_fn(|cx| Pin::new(&mut other).poll_next(cx)).await {
                seen.push(n);
            }
            seen
        });
        let mut seen = Vec::new();
        while let Some(n) = poll_fn(|cx| Pin::new(&mut one).poll_next(cx)).await {
            seen.push(n);
        }
        producer.await.unwrap();
        seen.extend(also.await.unwrap());
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..100));
        // Room of a handle goes back when it is dropped.
        let queue = Queue::new(1);
        let mut sink = queue.clone();
        poll_fn(|cx| Pin::new(&mut sink).poll_ready(cx)).await.unwrap();
        assert_eq!(queue.try_push(1), Err(PushError::Full(1)));
        drop(sink);
        assert_eq!(queue.try_push(1), Ok(()));
    });
}

/// If a stream was polled once and is not polled any more, it takes no item from others.
#[test]
fn a_forgotten_stream_delays_no_other() {
    run(1, async {
        let queue = Queue::new(2);
        let mut forgotten = queue.clone();
        assert!(Pin::new(&mut forgotten).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        let pops = spawn({
            let queue = queue.clone();
            async move { queue.pop().await }
        });
        dapple_sched::yield_now().await;
        queue.push(1).await.unwrap();
        assert_eq!(pops.await.unwrap(), Some(1));
        // Nor from another stream.
        assert!(Pin::new(&mut forgotten).poll_next(&mut Context::from_waker(Waker::noop())).is_pending());
        let (tx, rx) = std::sync::mpsc::channel();
        let streams = spawn({
            let mut queue = queue.clone();
            async move {
                poll_fn(|cx| {
                    let polled = Pin::new(&mut queue).poll_next(cx);
                    let _ = tx.send(());
                    polled
                })
                .await
            }
        });
        rx.recv_timeout(LIMIT).unwrap();
        queue.push(2).await.unwrap();
        assert_eq!(streams.await.unwrap(), Some(2));
    });
}

#[test]
fn waiting_on_a_worker_is_refused_with_advice() {
    let runtime = runtime(1);
    let queue = Queue::<u32>::new(1);
    for limit in [None, Some(LIMIT)] {
        let queue = queue.clone();
        let task = runtime.spawn(async move { queue.pop_blocking(limit) });
        let error = runtime.block_on(task).unwrap_err();
        assert!(error.to_string().contains("await"), "{error}");
    }
}

/// The queue drops its items, with all that they hold.
#[test]
fn dropping_it_drops_the_items() {
    let kept = std::sync::Arc::new(());
    let queue = Queue::with(3, WhenFull::DropOldest);
    for _ in 0..5 {
        queue.try_push(kept.clone()).unwrap();
    }
    assert_eq!(std::sync::Arc::strong_count(&kept), 4);
    drop(queue);
    assert_eq!(std::sync::Arc::strong_count(&kept), 1);
}

/// The drop of an item may use the queue: no lock is held.
#[test]
fn a_drop_may_use_the_queue() {
    struct Pushes(Option<Queue<Pushes>>);
    impl Drop for Pushes {
        fn drop(&mut self) {
            if let Some(queue) = self.0.take() {
                drop(queue.try_push(Pushes(None)));
            }
        }
    }
    let queue = Queue::with(1, WhenFull::DropOldest);
    for _ in 0..4 {
        queue.try_push(Pushes(Some(queue.clone()))).unwrap();
    }
    let result = catch_unwind(AssertUnwindSafe(|| queue.try_pop_many(9).len()));
    assert_eq!(result.unwrap(), 1);
    wait_until("the queue is empty", || queue.is_empty() || queue.try_pop().is_ok());
}
