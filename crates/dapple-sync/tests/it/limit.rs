//! Limits: a model of the line, and the behavior across tasks, panics and dropped waits.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::spawn;
use dapple_sync::sync::limit::{Limit, LimitError, Turn, Turns};
use proptest::prelude::*;

use crate::bombs::{bomb, counting, drop_bomb};
use crate::run;

/// A step of one user of the line.
#[derive(Clone, Copy, Debug)]
enum Step {
    TryTake,
    Poll(usize),
    Leave(usize),
    GiveBack,
    SetMax(usize),
    SetPaused(bool),
    SetWaitingMax(usize),
    Close,
}

const WAITERS: usize = 5;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::TryTake),
        8 => (0..WAITERS).prop_map(Step::Poll),
        3 => (0..WAITERS).prop_map(Step::Leave),
        6 => Just(Step::GiveBack),
        2 => (0..4_usize).prop_map(Step::SetMax),
        1 => any::<bool>().prop_map(Step::SetPaused),
        1 => (0..WAITERS).prop_map(Step::SetWaitingMax),
        1 => Just(Step::Close),
    ]
}

/// The rule in its simplest form: a list of waiters, and a list of granted ones that have not
/// polled.
#[derive(Debug, Default)]
struct Model {
    max: usize,
    held: usize,
    line: Vec<usize>,
    granted: Vec<usize>,
    woken: [usize; WAITERS],
    waiting_max: usize,
    is_paused: bool,
    is_closed: bool,
}

impl Model {
    fn has_room(&self) -> bool {
        self.held + self.granted.len() < self.max && !self.is_paused && !self.is_closed
    }

    fn try_take(&mut self) -> bool {
        let is_taken = self.has_room() && self.line.is_empty();
        self.held += usize::from(is_taken);
        is_taken
    }

    fn poll(&mut self, waiter: usize) -> Poll<Result<(), LimitError>> {
        if let Some(at) = self.granted.iter().position(|granted| *granted == waiter) {
            self.granted.remove(at);
            self.held += 1;
            return Poll::Ready(Ok(()));
        }
        if self.line.contains(&waiter) {
            return Poll::Pending;
        }
        if self.is_closed {
            return Poll::Ready(Err(LimitError::Closed));
        }
        if self.try_take() {
            return Poll::Ready(Ok(()));
        }
        if self.line.len() >= self.waiting_max {
            return Poll::Ready(Err(LimitError::Full { waiting: self.line.len() }));
        }
        self.line.push(waiter);
        Poll::Pending
    }

    fn leave(&mut self, waiter: usize) {
        self.line.retain(|other| *other != waiter);
        self.granted.retain(|other| *other != waiter);
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.granted.clear();
        self.line.drain(..).for_each(|waiter| self.woken[waiter] += 1);
    }

    /// Grants as many permits as there are, in order, and wakes each waiter.
    fn grant(&mut self) {
        while self.has_room() && !self.line.is_empty() {
            let first = self.line.remove(0);
            self.woken[first] += 1;
            self.granted.push(first);
        }
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 2_000 }))]

    #[test]
    fn the_line_does_what_its_model_does(max in 0..4_usize, steps in prop::collection::vec(step(), 0..60)) {
        let mut turns = Turns::new(max);
        let mut model = Model { max, waiting_max: usize::MAX, ..Model::default() };
        let mut own: [Turn; WAITERS] = Default::default();
        let counts: [Arc<Count>; WAITERS] = Default::default();
        for step in steps {
            match step {
                Step::TryTake => prop_assert_eq!(turns.try_take(), model.try_take()),
                Step::Poll(waiter) => {
                    let waker = Waker::from(counts[waiter].clone());
                    let (poll, wakers) = turns.poll_take(&mut own[waiter], waker.into());
                    wakers.run();
                    prop_assert_eq!(poll, model.poll(waiter));
                }
                Step::Leave(waiter) => {
                    turns.leave(&mut own[waiter]).run();
                    model.leave(waiter);
                }
                Step::GiveBack if model.held > 0 => {
                    turns.give_back(1).run();
                    model.held -= 1;
                }
                Step::GiveBack => {}
                Step::SetMax(max) => {
                    turns.set_max(max).run();
                    model.max = max;
                }
                Step::SetPaused(is_paused) => {
                    turns.set_paused(is_paused).run();
                    model.is_paused = is_paused;
                }
                Step::SetWaitingMax(waiting_max) => {
                    turns.set_waiting_max(waiting_max);
                    model.waiting_max = waiting_max;
                }
                Step::Close => {
                    turns.close().run();
                    model.close();
                }
            }
            model.grant();
            prop_assert_eq!(turns.used(), model.held + model.granted.len());
            prop_assert_eq!(turns.waiting_len(), model.line.len());
            let woken: Vec<usize> = counts.iter().map(|count| count.0.load(SeqCst)).collect();
            prop_assert_eq!(&woken[..], &model.woken[..], "each grant wakes its waiter, once");
        }
    }
}

#[test]
fn no_more_are_in_than_may_be_and_all_come_in() {
    run(4, async {
        let limit = Limit::new(3);
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..40)
            .map(|_| {
                let (limit, inside, most) = (limit.clone(), inside.clone(), most.clone());
                spawn(async move {
                    for _ in 0..20 {
                        let _permit = limit.acquire().await.expect("the line is unbounded");
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        dapple_sched::yield_now().await;
                        inside.fetch_sub(1, SeqCst);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no task panics");
        }
        assert!((1..=3).contains(&most.load(SeqCst)));
        assert_eq!((limit.used(), limit.waiting_len()), (0, 0));
    });
}

#[test]
fn a_holder_that_panics_gives_its_permit_back() {
    run(1, async {
        let limit = Limit::new(1);
        let own = limit.clone();
        let task = spawn(async move {
            let _permit = own.acquire().await;
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(task.await.is_err());
        assert!(limit.acquire().await.is_ok());
    });
}

#[test]
fn a_wait_that_is_dropped_passes_its_permit_on() {
    let limit = Limit::new(1);
    let permit = limit.try_acquire().expect("a permit is free");
    let (calls, waker) = counting();
    let mut cx = Context::from_waker(&waker);
    let mut first = Box::pin(limit.acquire());
    let mut second = Box::pin(limit.acquire());
    assert!(first.as_mut().poll(&mut cx).is_pending() && second.as_mut().poll(&mut cx).is_pending());
    drop(permit);
    assert_eq!((calls.count(), limit.used()), (1, 1));
    drop(first);
    assert_eq!(calls.count(), 2);
    assert!(matches!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
    assert_eq!(limit.used(), 0, "the permit of the second was dropped");
}

#[test]
fn a_close_and_a_raised_limit_reach_all_despite_wakers_that_panic() {
    for bad in [bomb, drop_bomb] {
        for closes in [true, false] {
            let limit = Limit::new(0);
            let (calls, waker) = counting();
            let (mut one, mut two) = (pin!(limit.acquire()), pin!(limit.acquire()));
            assert!(one.as_mut().poll(&mut Context::from_waker(&bad())).is_pending());
            assert!(two.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            if closes {
                limit.close();
            } else {
                limit.set_max(2);
            }
            assert_eq!(calls.count(), 1);
            let polled = two.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(matches!(polled, Poll::Ready(Err(LimitError::Closed)) if closes) || !closes && polled.is_ready());
        }
    }
}
