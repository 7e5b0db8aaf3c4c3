//! A state is borrowed like a `RefCell`, by the closures of the thread that holds its color; and no
//! hold ends under an open closure.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};

use dapple_sched::{Color, Colored, Reading, Runtime, TryWithError, When, when};

use crate::support::runtime;

const BUSY: Result<(), TryWithError> = Err(TryWithError::Busy);

/// Another state of a color, so that a thread can hold the color without being inside the first
/// state.
fn two(color: &Color) -> (Colored<()>, Colored<Vec<u32>>) {
    (Colored::with_color((), color), Colored::with_color(vec![1, 2], color))
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Checks that `state` can be read and cannot be written now.
fn assert_read_only(state: &Colored<Vec<u32>>) {
    assert_eq!(state.try_with(|_| ()), BUSY);
    assert_eq!(when((state,)).try_with(|_| ()), BUSY);
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut state.with(|_| ())))).is_err());
    assert_eq!(state.try_read(|list| list.len()), Ok(2));
    assert_eq!(when((state.reading(),)).try_with(|(list,)| list.len()), Ok(2));
    assert_eq!(poll(&mut state.read(|list| list.len())), Poll::Ready(2));
}

/// Checks that `state` can be neither read nor written now.
fn assert_closed(state: &Colored<Vec<u32>>) {
    assert_eq!(state.try_with(|_| ()), BUSY);
    assert_eq!(state.try_read(|_| ()), BUSY);
    let sets: [When<(Reading<'_, Vec<u32>>,)>; 1] = [when((state.reading(),))];
    sets.into_iter().for_each(|set| assert_eq!(set.try_with(|_| ()), BUSY));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut state.read(|_| ())))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut when((state.reading(),)).with(|_| ())))).is_err());
}

fn assert_open(state: &Colored<Vec<u32>>) {
    assert_eq!(state.try_with(|list| list.len()), Ok(2));
    assert_eq!(state.try_read(|list| list.len()), Ok(2));
}

#[test]
fn a_read_keeps_the_thread_that_holds_the_color_from_writing() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (gate, state) = two(&Color::new());
    gate.try_with(|()| {
        state.try_read(|_| assert_read_only(&state)).unwrap();
        assert_eq!(poll(&mut state.read(|_| assert_read_only(&state))), Poll::Ready(()));
        when((state.reading(),)).try_with(|_| assert_read_only(&state)).unwrap();
        assert_open(&state);
    })
    .unwrap();
    // A set of both, the state for reading: the color is held for writing.
    when((&gate, state.reading())).try_with(|_| assert_read_only(&state)).unwrap();
    assert_open(&state);
}

#[test]
fn a_callback_that_reads_does_not_write_inside() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let color = Color::new();
    let (_gate, state) = two(&color);
    let (tx, rx) = mpsc::channel();
    color.post(move || {
        state.try_read(|_| assert_read_only(&state)).unwrap();
        assert_open(&state);
        tx.send(()).unwrap();
    });
    rx.recv().unwrap();
}

#[test]
fn a_write_keeps_its_own_thread_from_reading() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (gate, state) = two(&Color::new());
    state.try_with(|_| assert_closed(&state)).unwrap();
    when((&gate, &state)).try_with(|_| assert_closed(&state)).unwrap();
    assert_open(&state);
}

#[test]
fn a_panic_in_a_closure_gives_the_borrow_back() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (gate, state) = two(&Color::new());
    gate.try_with(|()| {
        let read = || state.try_read(|_| panic!("in a read"));
        assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
        let read = || when((state.reading(),)).try_with(|_| panic!("in a read of a set"));
        assert!(catch_unwind(AssertUnwindSafe(read)).is_err());
        assert_open(&state);
        let write = || when((&state,)).try_with(|_| panic!("in a write"));
        assert!(catch_unwind(AssertUnwindSafe(write)).is_err());
        state.clear_poison();
        assert_open(&state);
    })
    .unwrap();
}

/// A task waits for a color and is polled in the turn that reaches it. It polls its wait inside of
/// a closure of the same color, made by `open`; that closure must still have the color alone
/// afterwards.
fn waits_inside(open: impl Fn(&Colored<()>, &mut dyn FnMut()) + Send + 'static) {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::new();
    let (wanted, other) = (Colored::with_color((), &color), Colored::with_color((), &color));
    let (queued_tx, queued_rx) = mpsc::channel();
    let (tried_tx, tried_rx) = mpsc::channel::<bool>();
    let (polled_tx, polled_rx) = mpsc::channel();
    let overlapped = Arc::new(AtomicBool::new(false));
    let task = {
        let (wanted, other, overlapped) = (wanted.clone(), other.clone(), overlapped.clone());
        async move {
            let mut wait = pin!(wanted.with(|()| ()));
            poll_fn(|cx| {
                assert!(wait.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            queued_tx.send(()).unwrap();
            let mut done = false;
            poll_fn(move |cx| {
                open(&other, &mut || {
                    if !done && wait.as_mut().poll(cx).is_ready() {
                        done = true;
                        polled_tx.send(()).unwrap();
                        overlapped.store(tried_rx.recv().unwrap(), SeqCst);
                    }
                });
                if done { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    };
    let wait = || {
        let task = Color::new().spawn(task);
        queued_rx.recv().unwrap();
        task
    };
    let task = wanted.try_with(|()| wait()).unwrap();
    polled_rx.recv().unwrap();
    // The task is inside a closure of the color.
    tried_tx.send(wanted.try_with(|()| ()).is_ok() || wanted.try_read(|()| ()).is_ok()).unwrap();
    runtime.block_on(task).unwrap();
    assert!(!overlapped.load(SeqCst), "two threads were in one color");
    assert_eq!(runtime.block_on(wanted.with(|()| ())), ());
}

#[test]
fn no_turn_ends_under_an_open_closure() {
    waits_inside(|state, inner| _ = state.try_with(|()| inner()));
}

#[test]
fn no_turn_ends_under_an_open_read() {
    waits_inside(|state, inner| _ = state.try_read(|()| inner()));
}

#[test]
fn no_turn_ends_under_an_open_set() {
    waits_inside(|state, inner| _ = when((state, &Color::new())).try_with(|_| inner()));
}

#[test]
fn no_turn_ends_under_an_open_set_of_what_is_held_already() {
    waits_inside(|state, inner| _ = when((state,)).try_with(|_| inner()));
}

#[test]
fn no_turn_ends_under_a_set_that_reads_what_is_held_already() {
    waits_inside(|state, inner| _ = when((state.reading(),)).try_with(|_| inner()));
}

/// As [`waits_inside`], for a task that waits for a set.
#[test]
fn no_set_is_let_go_of_under_an_open_closure() {
    let runtime: Runtime = runtime(2);
    let _entered = runtime.enter();
    let (left, right) = (Color::new(), Color::new());
    let (wanted, other) = (Colored::with_color((), &left), Colored::with_color((), &left));
    let (also, held) = (Colored::with_color((), &right), Colored::with_color((), &right));
    let (queued_tx, queued_rx) = mpsc::channel();
    let (tried_tx, tried_rx) = mpsc::channel::<bool>();
    let (polled_tx, polled_rx) = mpsc::channel();
    let task = {
        let (wanted, also) = (wanted.clone(), also.clone());
        async move {
            let mut wait = pin!(when((&wanted, &also)).with(|_| ()));
            poll_fn(|cx| {
                assert!(wait.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            queued_tx.send(()).unwrap();
            let mut overlapped = None;
            poll_fn(move |cx| {
                for state in [&other, &held] {
                    let _ = state.try_with(|()| {
                        if overlapped.is_none() && wait.as_mut().poll(cx).is_ready() {
                            polled_tx.send(()).unwrap();
                            overlapped = Some(tried_rx.recv().unwrap());
                        }
                    });
                    if let Some(overlapped) = overlapped {
                        return Poll::Ready(overlapped);
                    }
                }
                Poll::Pending
            })
            .await
        }
    };
    let wait = || {
        let task = Color::new().spawn(task);
        queued_rx.recv().unwrap();
        task
    };
    let task = when((&wanted, &also)).try_with(|_| wait()).unwrap();
    polled_rx.recv().unwrap();
    tried_tx.send(wanted.try_with(|()| ()).is_ok()).unwrap();
    assert!(!runtime.block_on(task).unwrap(), "two threads were in one color");
    assert_eq!(runtime.block_on(when((&wanted, &also)).with(|_| 1)), 1);
}
