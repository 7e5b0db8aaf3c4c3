//! Chains of queues, handlers and sources.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dapple_flow::flow::{self, CloseAtEnd, EndReason, Handler, Lines, PopError, Queue, WhenFull};
use dapple_sched::{Color, spawn};

use crate::{LIMIT, run, runtime, wait_until};

#[test]
fn through_a_map_and_a_filter() {
    run(2, async {
        let (from, to) = (Queue::new(3), Queue::new(2));
        let flow = from.chain_map(|n: u32| n.is_multiple_of(3).then(|| format!("{n}")), CloseAtEnd(to.clone()));
        let producer = spawn(async move {
            from.push_many(0..100).await.unwrap();
            from.close();
        });
        let mut seen = Vec::new();
        while let Some(text) = to.pop().await {
            seen.push(text.parse::<u32>().unwrap());
        }
        assert!(seen.into_iter().eq((0..100).filter(|n| n % 3 == 0)));
        producer.await.unwrap();
        let ended = flow.await.unwrap();
        assert_eq!(ended.count, 34);
        assert!(matches!(ended.reason, EndReason::Finished));
    });
}

/// Gribble's Figure 32: several queues into one.
#[test]
fn several_queues_join_one() {
    run(2, async {
        let joined = Queue::new(2);
        let queues: Vec<Queue<(u32, u32)>> = (0..5).map(|_| Queue::new(1)).collect();
        let flows: Vec<_> = queues.iter().map(|queue| queue.chain(joined.clone())).collect();
        for (which, queue) in (0..).zip(queues) {
            spawn(async move {
                for n in 0..50 {
                    queue.push((which, n)).await.unwrap();
                }
                queue.close();
            });
        }
        let mut seen = Vec::new();
        while seen.len() < 250 {
            seen.extend(joined.pop_many(100).await);
        }
        for which in 0..5 {
            let of_one: Vec<u32> = seen.iter().filter(|item| item.0 == which).map(|item| item.1).collect();
            assert!(of_one.into_iter().eq(0..50));
        }
        for flow in flows {
            assert_eq!(flow.await.unwrap().count, 50);
        }
        assert!(!joined.is_closed(), "an unwanted item");
    });
}

/// Items without room stay in place; idle chains keep no room from others.
#[test]
fn nothing_leaves_a_queue_without_room_in_the_next() {
    run(2, async {
        let (from, idle, to) = (Queue::new(10), Queue::<u32>::new(1), Queue::new(1));
        let _idle = idle.chain(to.clone());
        let flow = from.chain(to.clone());
        from.push_many(0..10).await.unwrap();
        while to.is_empty() {
            dapple_sched::yield_now().await;
        }
        assert_eq!((to.len(), from.len()), (1, 9));
        let ended = flow.stop().await.unwrap();
        assert!(matches!(ended.reason, EndReason::Stopped));
        assert_eq!((ended.count, to.try_pop(), ended.upstream.len()), (1, Ok(0), 9));
    });
}

/// If a chain gets room for an item, and another consumer takes the item, the chain gives the room
/// back.
#[test]
fn a_chain_without_items_keeps_no_room() {
    run(2, async {
        let (from, to) = (Queue::new(1), Queue::new(1));
        to.push(0).await.unwrap();
        let _flow = from.chain(to.clone());
        for round in 1..50 {
            from.push(round).await.unwrap();
            // Usually the chain waits for room by then. If not, this round shows nothing.
            dapple_io::time::sleep(Duration::from_micros(200)).await;
            assert_eq!(from.pop().await, Some(round));
            assert_eq!(to.pop().await, Some(round - 1));
            assert_eq!(to.push_timeout(round, LIMIT).await, Ok(()));
        }
    });
}

/// Every item is on one side or the other, at whatever point the flow is stopped.
#[test]
fn stopping_loses_nothing() {
    run(2, async {
        for round in 0..200 {
            let (from, to) = (Queue::new(1000), Queue::new(1000));
            from.push_many(0..500).await.unwrap();
            let flow = from.chain_map(move |n| (n != round).then_some(n), to.clone());
            for _ in 0..round % 20 {
                dapple_sched::yield_now().await;
            }
            let ended = flow.stop().await.unwrap();
            let mut all = to.try_pop_many(1000);
            assert_eq!(all.len() as u64, ended.count);
            all.extend(ended.upstream.try_pop_many(1000));
            let expected = (0..500).filter(|&n| n != round || all.contains(&n));
            assert!(expected.eq(all.iter().copied()), "{round}");
        }
    });
}

#[test]
fn a_map_that_panics_ends_its_flow_only() {
    run(2, async {
        let (from, to) = (Queue::new(10), Queue::new(10));
        from.push_many(0..10).await.unwrap();
        let flow = from.chain_map(|n| if n == 4 { panic!("not four") } else { Some(n) }, to.clone());
        let error = flow.await.unwrap_err();
        assert!(error.to_string().contains("not four"), "{error}");
        assert_eq!(to.try_pop_many(10), [0, 1, 2, 3]);
        assert_eq!(from.try_pop_many(10), [5, 6, 7, 8, 9]);
    });
}

#[test]
fn a_slow_callback_gets_a_batch_and_no_more() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (open, gate) = mpsc::channel::<()>();
    let called = Arc::new(AtomicUsize::new(0));
    let slow = Color::new().wrap({
        let called = called.clone();
        move |_: usize| {
            called.fetch_add(1, Ordering::Relaxed);
            _ = gate.recv();
        }
    });
    let queue = Queue::new(1000);
    (0..1000).for_each(|n| queue.try_push(n).unwrap());
    let flow = queue.chain(slow);
    wait_until("the callback runs", || called.load(Ordering::Relaxed) == 1);
    // The rest stays in the queue, and is not posted.
    assert!(queue.len() >= 1000 - 64, "{}", queue.len());
    drop(open);
    queue.close();
    assert_eq!(dapple_sched::block_on(flow).unwrap().count, 1000);
    assert_eq!(called.load(Ordering::Relaxed), 1000, "the callback has run by then");
}

#[test]
fn a_callback_that_panics_gets_the_next() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (tx, rx) = mpsc::channel();
    let callback = Color::new().wrap(move |n: u32| {
        assert!(n.is_multiple_of(2), "odd");
        tx.send(n).unwrap();
    });
    let queue = Queue::new(4);
    let flow = queue.chain(callback);
    (0..10).for_each(|n| queue.push_blocking(n, Some(LIMIT)).unwrap());
    queue.close();
    assert_eq!(dapple_sched::block_on(flow).unwrap().count, 10);
    assert_eq!(rx.iter().collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
}

#[test]
fn batches_to_a_callback_and_a_handler_chosen_at_run_time() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let queue = Queue::new(200);
    (0..200).for_each(|n| queue.try_push(n).unwrap());
    queue.close();
    let (tx, rx) = mpsc::channel();
    let callback = Color::new().wrap(move |batch: Vec<u32>| tx.send(batch).unwrap());
    let handler: Box<dyn Handler<u32>> = match queue.len() {
        200 => Box::new(callback),
        _ => Box::new(queue.clone()),
    };
    queue.chain(handler).detach();
    let batches: Vec<Vec<u32>> = rx.iter().collect();
    assert!(batches.len() < 10 && batches.iter().all(|batch| batch.len() <= 64), "{}", batches.len());
    assert!(batches.into_iter().flatten().eq(0..200));
}

#[test]
fn a_full_target_may_refuse_or_forget() {
    run(2, async {
        for (when_full, expected) in [(WhenFull::Refuse, [0, 1]), (WhenFull::DropOldest, [98, 99])] {
            let (from, to) = (Queue::new(100), Queue::with(2, when_full));
            from.push_many(0..100).await.unwrap();
            from.close();
            from.chain(to.clone()).await.unwrap();
            assert_eq!(to.try_pop_many(5), expected);
            assert_eq!(to.refused_count() + to.dropped_count(), 98);
        }
    });
}

#[test]
fn a_closed_target_ends_the_flow() {
    run(2, async {
        let (from, to) = (Queue::new(10), Queue::new(1));
        let flow = from.chain(to.clone());
        from.push_many([1, 2, 3]).await.unwrap();
        while to.is_empty() {
            dapple_sched::yield_now().await;
        }
        to.close();
        let ended = flow.await.unwrap();
        assert!(matches!(ended.reason, EndReason::HandlerFailed(_)), "{ended:?}");
        assert_eq!((to.pop().await, to.pop().await), (Some(1), None));
        assert_eq!(from.try_pop_many(5), [2, 3]);
    });
}

#[test]
fn dropping_a_flow_stops_it_and_detaching_does_not() {
    run(2, async {
        let (one, other, to) = (Queue::new(4), Queue::new(4), Queue::new(9));
        drop(one.chain(to.clone()));
        other.chain(to.clone()).detach();
        other.push(2).await.unwrap();
        assert_eq!(to.pop().await, Some(2));
        one.push(1).await.unwrap();
        assert_eq!(to.pop_timeout(Duration::from_millis(5)).await, Err(PopError::Empty));
        assert_eq!(one.len(), 1);
    });
}

/// A plain thread waiting at the end of a chain learns that its runtime has gone.
#[test]
fn a_shutdown_closes_what_is_to_be_closed() {
    let runtime = runtime(2);
    let entered = runtime.enter();
    let (from, to) = (Queue::<u32>::new(1), Queue::new(1));
    from.chain(CloseAtEnd(to.clone())).detach();
    let waits = thread::spawn({
        let to = to.clone();
        move || (to.pop_blocking(Some(LIMIT)), to.pop_blocking(Some(LIMIT)))
    });
    from.try_push(1).unwrap();
    wait_until("the item has passed", || from.is_empty() && to.is_empty());
    drop(entered);
    drop(runtime);
    assert_eq!(waits.join().unwrap(), (Ok(1), Err(PopError::Closed)));
}

/// A stopped source keeps the data that had arrived.
#[test]
fn a_stopped_source_has_the_rest() {
    run(2, async {
        let (sink, source) = flow::pipe().unwrap();
        let queue = Queue::new(1);
        let flow = source.decode(Lines::new(80)).chain(queue.clone());
        sink.write("one\ntwo\nthree\nfo").await.unwrap();
        while queue.is_empty() {
            dapple_sched::yield_now().await;
        }
        let mut source = flow.stop().await.unwrap().upstream;
        assert_eq!(queue.pop().await.unwrap(), "one");
        assert_eq!(source.next_many(9).await.unwrap(), ["two", "three"]);
        sink.write("ur\n").await.unwrap();
        assert_eq!(source.next().await.unwrap().unwrap(), "four");
    });
}
