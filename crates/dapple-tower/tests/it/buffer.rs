//! A service shared by many callers.

use std::future::{Future, Ready, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dapple_tower::BoxError;
use dapple_tower::middleware::Buffer;
use dapple_tower::middleware::buffer::{ResponseFuture, ServiceError};
use tower::{Service, ServiceExt};

use crate::executors::{on_each, poll_once};

/// Cannot be cloned; takes a request on a signal, and keeps a list.
#[derive(Default)]
struct Gate {
    is_open: Arc<AtomicBool>,
    fails: bool,
    waker: Arc<Mutex<Option<Waker>>>,
    seen: Arc<Mutex<Vec<u32>>>,
}

impl Gate {
    fn open(is_open: &AtomicBool, waker: &Mutex<Option<Waker>>) {
        is_open.store(true, Ordering::SeqCst);
        let waker = waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Service<u32> for Gate {
    type Response = u32;
    type Error = BoxError;
    type Future = Ready<Result<u32, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        *self.waker.lock().unwrap() = Some(cx.waker().clone());
        match self.is_open.load(Ordering::SeqCst) {
            true if self.fails => Poll::Ready(Err("out of order".into())),
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    fn call(&mut self, request: u32) -> Self::Future {
        assert_ne!(request, u32::MAX, "the service panics, as the test wants");
        self.seen.lock().unwrap().push(request);
        std::future::ready(Ok(request))
    }
}

type Buffered = Buffer<u32, Ready<Result<u32, BoxError>>>;

fn ask(buffer: &Buffered, request: u32) -> impl Future<Output = Result<u32, BoxError>> + Send + use<> {
    buffer.clone().oneshot(request)
}

#[test]
fn requests_reach_the_service_in_order_from_many_tasks() {
    on_each(|| async {
        let gate = Gate::default();
        let (is_open, waker, seen) = (gate.is_open.clone(), gate.waker.clone(), gate.seen.clone());
        let buffer = Buffer::new(gate, 100);
        let mut responses: Vec<_> = (0..100).map(|n| Box::pin(ask(&buffer, n))).collect();
        for response in &mut responses {
            assert!(poll_once(response.as_mut()).is_pending());
        }
        assert_eq!(buffer.len(), 100);
        assert!(poll_once(pin!(buffer.clone().ready())).is_pending(), "the queue is full");
        std::thread::spawn(move || Gate::open(&is_open, &waker));
        // The last one first: any awaited response moves all on.
        while let Some(response) = responses.pop() {
            assert_eq!(response.await.unwrap(), responses.len() as u32);
        }
        assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
        assert!(buffer.is_empty());
    });
}

#[test]
fn one_service_is_used_from_many_threads() {
    let gate = Gate { is_open: Arc::new(AtomicBool::new(true)), ..Gate::default() };
    let seen = gate.seen.clone();
    let buffer = Buffer::new(gate, 4);
    let threads = (0..4).map(|thread| {
        let mut buffer = buffer.clone();
        std::thread::spawn(move || {
            dapple_sched::block_on(async move {
                for n in 0..500 {
                    let request = thread * 500 + n;
                    assert_eq!(buffer.ready().await.unwrap().call(request).await.unwrap(), request);
                }
            });
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.sort_unstable();
    assert_eq!(seen, (0..2_000).collect::<Vec<_>>());
}

#[test]
fn the_driver_of_the_queue_may_go_at_any_time() {
    let gate = Gate::default();
    let (is_open, waker, seen) = (gate.is_open.clone(), gate.waker.clone(), gate.seen.clone());
    let buffer = Buffer::new(gate, 3);
    let mut responses: Vec<_> = (0..3).map(|n| Box::pin(ask(&buffer, n))).collect();
    for response in &mut responses {
        assert!(poll_once(response.as_mut()).is_pending());
    }
    let last = responses.pop().unwrap();
    let waits = std::thread::spawn(move || dapple_sched::block_on(last).unwrap());
    drop(responses);
    Gate::open(&is_open, &waker);
    assert_eq!(waits.join().unwrap(), 2);
    assert_eq!(*seen.lock().unwrap(), [2], "dropped requests did not reach the service");
    assert!(poll_once(pin!(buffer.clone().ready())).is_ready());
}

#[test]
fn a_service_that_fails_or_panics_fails_all() {
    let gate = Gate { fails: true, ..Gate::default() };
    let (is_open, waker) = (gate.is_open.clone(), gate.waker.clone());
    let buffer = Buffer::new(gate, 3);
    let mut responses: Vec<_> = (0..3).map(|n| Box::pin(ask(&buffer, n))).collect();
    for response in &mut responses {
        assert!(poll_once(response.as_mut()).is_pending());
    }
    Gate::open(&is_open, &waker);
    for response in responses {
        let error = dapple_sched::block_on(response).unwrap_err();
        assert!(error.is::<ServiceError>());
        assert_eq!(error.to_string(), "the buffered service has failed: out of order");
    }
    assert!(dapple_sched::block_on(buffer.clone().ready()).is_err());

    let buffer = Buffer::new(Gate { is_open: Arc::new(AtomicBool::new(true)), ..Gate::default() }, 3);
    let panics = buffer.clone().oneshot(u32::MAX);
    assert!(std::thread::spawn(|| dapple_sched::block_on(panics)).join().is_err());
    assert!(dapple_sched::block_on(buffer.oneshot(1)).unwrap_err().is::<ServiceError>());
}

#[test]
fn all_waits_for_a_place_see_a_failure() {
    let gate = Gate { fails: true, ..Gate::default() };
    let (is_open, waker) = (gate.is_open.clone(), gate.waker.clone());
    let buffer = Buffer::new(gate, 1);
    let mut first = Box::pin(ask(&buffer, 0));
    assert!(poll_once(first.as_mut()).is_pending());
    // They keep their handles, and any place granted since.
    let mut waits = [0; 3].map(|_| (buffer.clone(), Arc::new(Woken::default())));
    for (buffer, woken) in &mut waits {
        let waker = Waker::from(woken.clone());
        assert!(buffer.poll_ready(&mut Context::from_waker(&waker)).is_pending());
    }
    Gate::open(&is_open, &waker);
    assert!(dapple_sched::block_on(first).is_err());
    assert!(waits.iter().all(|(_, woken)| woken.0.load(Ordering::SeqCst)));
    assert!(waits.into_iter().all(|(mut buffer, _)| dapple_sched::block_on(buffer.ready()).is_err()));
}

type Kept = Arc<Mutex<Option<Pin<Box<ResponseFuture<u32, Ready<Result<u32, BoxError>>>>>>>>;

/// While it takes request 2, it handles the response to it.
struct Meddles<F> {
    second: Kept,
    with: F,
}

impl<F: FnMut(&mut Kept)> Service<u32> for Meddles<F> {
    type Response = u32;
    type Error = BoxError;
    type Future = Ready<Result<u32, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, n: u32) -> Self::Future {
        if n == 2 {
            (self.with)(&mut self.second);
        }
        ready(Ok(n))
    }
}

#[test]
fn a_look_during_the_hand_over_is_woken() {
    let second = Kept::default();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let meddles = Meddles {
        second: second.clone(),
        with: move |second: &mut Kept| {
            let mut second = second.lock().unwrap();
            let second = second.as_mut().unwrap();
            assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        },
    };
    let mut buffer = Buffer::new(meddles, 4);
    let mut first = dapple_sched::block_on(buffer.clone().ready_oneshot()).unwrap().call(1);
    dapple_sched::block_on(buffer.ready()).unwrap();
    *second.lock().unwrap() = Some(Box::pin(buffer.call(2)));
    assert!(poll_once(pin!(&mut first)).is_ready());
    assert!(woken.0.load(Ordering::SeqCst));
    let second = second.lock().unwrap().take().unwrap();
    assert_eq!(dapple_sched::block_on(second).unwrap(), 2);
}

#[test]
fn a_drop_during_the_hand_over_leaves_nothing() {
    let second = Kept::default();
    let meddles = Meddles { second: second.clone(), with: |second: &mut Kept| *second.lock().unwrap() = None };
    let mut buffer = Buffer::new(meddles, 4);
    let mut first = dapple_sched::block_on(buffer.clone().ready_oneshot()).unwrap().call(1);
    dapple_sched::block_on(buffer.ready()).unwrap();
    *second.lock().unwrap() = Some(Box::pin(buffer.call(2)));
    assert!(poll_once(pin!(&mut first)).is_ready());
    assert!(second.lock().unwrap().is_none());
    assert_eq!(dapple_sched::block_on(buffer.oneshot(3)).unwrap(), 3, "the queue goes on");
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
