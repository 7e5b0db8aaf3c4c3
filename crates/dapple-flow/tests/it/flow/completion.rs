//! Completions, named for each request.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use dapple_flow::flow::{self, Completion, Queue, SubmitError, WhenFull, Written};
use dapple_sched::{Color, spawn};

use super::poll_once;
use crate::{LIMIT, run, runtime, wait_until};

#[test]
fn writes_keep_their_order_for_any_recipients() {
    let runtime = runtime(2);
    runtime.block_on(async {
        let (sink, mut source) = flow::pipe().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let color = Color::new();
        let queue = Queue::new(400);
        for n in 0..300usize {
            let item = vec![n as u8; n * 7];
            match n % 3 {
                0 => sink
                    .submit(item, Completion::push(&queue, move |written: Written| (n, written.count)))
                    .await
                    .unwrap(),
                1 => {
                    let told = told.clone();
                    let tell = move |written: Written| told.lock().unwrap().push((n, written.count));
                    sink.submit(item, Completion::post(&color, tell)).await.unwrap();
                }
                _ => sink.submit(item, ()).await.unwrap(),
            }
            // Otherwise the pipe becomes full eventually.
            while let Some(Ok(bytes)) = source.try_next() {
                read(&bytes);
            }
        }
        let mut total = *READ.lock().unwrap();
        let closing = spawn({
            let sink = sink.clone();
            async move { sink.close().await }
        });
        while let Some(bytes) = source.next().await {
            read(&bytes.unwrap());
            total = *READ.lock().unwrap();
        }
        closing.await.unwrap().unwrap();
        assert_eq!(total.1, (0..300).map(|n| n * 7).sum::<usize>());
        let expected = |rest| (0..300).filter(move |n| n % 3 == rest).map(|n| (n, n * 7));
        assert!(queue.try_pop_many(400).into_iter().eq(expected(0)));
        wait_until("all completions have come", || told.lock().unwrap().len() == 100);
        assert!(told.lock().unwrap().iter().copied().eq(expected(1)));
    });

    /// The last byte, and the count.
    static READ: Mutex<(u8, usize)> = Mutex::new((0, 0));

    /// Each item consists of one byte value, one higher than that of the previous item.
    fn read(bytes: &[u8]) {
        let mut state = READ.lock().unwrap();
        for &byte in bytes {
            assert!(byte == state.0 || byte == state.0.wrapping_add(1) || state.1 == 0, "{byte} after {}", state.0);
            *state = (byte, state.1 + 1);
        }
    }
}

/// The callers share a sink and do not know of each other: each gets its own.
#[test]
fn each_party_gets_its_own_completions() {
    run(2, async {
        let (sink, source) = flow::pipe().unwrap();
        let all = Queue::new(10_000);
        let _reads = source.chain(all.clone());
        let parties: Vec<_> = (1..=4usize)
            .map(|party| {
                let sink = sink.clone();
                spawn(async move {
                    let done = Queue::new(8);
                    let mut completed = 0;
                    for _ in 0..200 {
                        sink.submit(vec![0; party], &done).await.unwrap();
                        assert_eq!(done.pop().await.unwrap().into_result().unwrap(), party);
                        completed += 1;
                    }
                    assert!(done.is_empty());
                    completed
                })
            })
            .collect();
        for party in parties {
            assert_eq!(party.await.unwrap(), 200);
        }
    });
}

#[test]
fn a_slow_handler_slows_its_sink_down() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (sink, _source) = flow::pipe().unwrap();
    sink.set_limits(3, 1_000);
    let (open, gate) = mpsc::channel::<()>();
    let slow = Color::new().wrap(move |_: Written| _ = gate.recv());
    for _ in 0..3 {
        sink.try_submit("x", &slow).unwrap();
    }
    wait_until("all is written", || sink.bytes() == 0);
    // Written, but not handled.
    assert!(matches!(sink.try_submit("y", &slow), Err(SubmitError::Full(_))));
    assert_eq!(sink.requests(), 3);
    open.send(()).unwrap();
    wait_until("one is handled", || sink.requests() == 2);
    sink.try_submit("y", &slow).unwrap();
    drop(open);
    wait_until("all are handled", || sink.requests() == 0);
}

/// The drop of the last handle closes the device, even while a completion is being handled.
#[test]
fn a_slow_handler_keeps_no_device_open() {
    let runtime = runtime(2);
    let (open, gate) = mpsc::channel::<()>();
    runtime
        .block_on(dapple_io::time::timeout(LIMIT, async {
            let (sink, mut source) = flow::pipe().unwrap();
            let slow = Color::new().wrap(move |_: Written| _ = gate.recv());
            sink.submit("x", &slow).await.unwrap();
            drop(sink);
            assert_eq!(source.next().await.unwrap().unwrap(), "x");
            assert!(source.next().await.is_none());
        }))
        .expect("the device is closed");
    drop(open);
}

#[test]
fn handlers_that_panic_harm_no_other() {
    let runtime = runtime(2);
    runtime.block_on(async {
        let (sink, mut source) = flow::pipe().unwrap();
        let color = Color::new();
        let queue = Queue::<u32>::new(2);
        for _ in 0..2_000 {
            sink.submit("x", Completion::post(&color, |_: Written| panic!("a handler"))).await.unwrap();
            sink.submit("y", Completion::push(&queue, |_: Written| panic!("a closure"))).await.unwrap();
        }
        assert_eq!(sink.write("z").await.unwrap(), 1);
        let mut read = 0;
        while read < 4_001 {
            read += source.next().await.unwrap().unwrap().len();
        }
        wait_until("all room is given back", || sink.requests() == 0);
        assert!(queue.is_empty());
    });
}

#[test]
fn a_completion_has_its_place_before_the_request_is_accepted() {
    run(2, async {
        let (sink, _source) = flow::pipe().unwrap();
        let done = Queue::new(2);
        sink.submit("a", &done).await.unwrap();
        sink.submit("b", &done).await.unwrap();
        sink.flush().await.unwrap();
        assert_eq!(done.len(), 2);
        assert!(matches!(sink.try_submit("c", &done), Err(SubmitError::CompletionsFull(item)) if item == "c"));
        // If a request waits for it, no other request is blocked; if the request is dropped, no
        // other is lost.
        assert!(poll_once(sink.submit("c", &done)).is_pending());
        assert_eq!(sink.write("d").await.unwrap(), 1);
        let waits = spawn({
            let (sink, done) = (sink.clone(), done.clone());
            async move { sink.submit("c", &done).await }
        });
        assert!(done.pop().await.is_some());
        waits.await.unwrap().unwrap();
        // A queue that drops its oldest is never full.
        let latest = Queue::with(1, WhenFull::DropOldest);
        for _ in 0..100 {
            sink.submit("e", &latest).await.unwrap();
        }
        sink.flush().await.unwrap();
        assert_eq!((latest.len(), latest.dropped_count()), (1, 99));
        // A closed queue still gets the promised items and no more.
        done.close();
        assert!(matches!(sink.try_submit("f", &done), Err(SubmitError::CompletionsClosed(_))));
        assert!(sink.submit("f", &done).await.is_err());
        sink.flush().await.unwrap();
        assert_eq!((done.pop().await.is_some(), done.pop().await.is_some()), (true, true));
        assert!(done.pop().await.is_none());
    });
}

/// A queue closed with reserved places ends with the last reserved item.
#[test]
fn a_closed_queue_waits_for_what_was_promised() {
    let runtime = runtime(2);
    runtime.block_on(async {
        let (sink, mut source) = flow::pipe().unwrap();
        let done = Queue::new(4);
        // More than the pipe holds: it is not written before it is read.
        sink.submit(vec![0; 200_000], &done).await.unwrap();
        done.close();
        assert!(done.try_pop().is_err());
        let waits: Vec<_> = (0..2)
            .map(|_| {
                let done = done.clone();
                spawn(async move { done.pop().await.map(|written: Written| written.count) })
            })
            .collect();
        let mut read = 0;
        while read < 200_000 {
            read += source.next().await.unwrap().unwrap().len();
        }
        let mut popped = Vec::new();
        for wait in waits {
            popped.push(dapple_io::time::timeout(LIMIT, wait).await.unwrap().unwrap());
        }
        popped.sort_unstable();
        assert_eq!(popped, [None, Some(200_000)]);
    });
}
