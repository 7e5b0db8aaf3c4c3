//! The behavior of each public future that is dropped, forgotten, or meets a panic, in each of its
//! states: the lines of the table in `docs/safety.md`.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dapple_sched::{Color, Colored, Pinned, Runtime, TryWithError, when, yield_now};

use crate::forget::forget;
use crate::support::{Gate, LONG, occupy};

type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;
type Closure = Arc<dyn Fn() + Send + Sync>;
type Make = fn(Colored<()>, Closure) -> Waiting;

/// Each future that waits for states, made of a closure that it runs inside.
const WAITS: [(&str, Make); 3] = [
    ("With", |state, run| Box::pin(async move { state.with(|()| run()).await })),
    ("Read", |state, run| Box::pin(async move { state.read(|()| run()).await })),
    ("WithAll", |state, run| {
        let other = Colored::new(());
        Box::pin(async move { when((&state, &other)).with(|((), ())| run()).await })
    }),
];

const DROPPED: (&str, fn(Waiting)) = ("dropped", drop);
const FORGOTTEN: (&str, fn(Waiting)) = ("forgotten", forget);

/// Notes that it was woken, and panics on request.
struct Signal(Mutex<Sender<()>>, bool);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
        if self.1 {
            explode();
        }
    }
}

fn explode() {
    // Not `panic!`: its hook would print.
    resume_unwind(Box::new("as the test says"));
}

fn signal(panics: bool) -> (Waker, impl Fn()) {
    let (tx, rx) = channel();
    (Arc::new(Signal(Mutex::new(tx), panics)).into(), move || rx.recv_timeout(LONG).expect("not woken"))
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

fn runtime() -> Runtime {
    Runtime::builder().workers(2).panic_handler(|_| ()).build().unwrap()
}

/// A state, and how often closures ran.
fn state() -> (Colored<()>, Arc<AtomicUsize>, Closure) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    (Colored::new(()), runs, Arc::new(move || _ = counted.fetch_add(1, SeqCst)))
}

/// The color is free, or will be after the earlier callbacks.
fn is_usable(state: &Colored<()>) {
    let (tx, rx) = channel();
    state.post(move |()| tx.send(()).unwrap());
    rx.recv_timeout(LONG).expect("the color is not let go of");
}

/// A future that was polled while its color was held, and the gate that holds it.
fn waiting(future: &mut Waiting, state: &Colored<()>, waker: &Waker) -> Gate {
    let gate = occupy(state.color());
    assert!(poll(future, waker).is_pending());
    gate
}

#[test]
fn a_wait_that_was_not_polled_leaves_nothing() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, make) in WAITS {
        for (end, over) in [DROPPED, FORGOTTEN] {
            let (state, runs, closure) = state();
            over(make(state.clone(), closure));
            assert_eq!((state.try_with(|()| ()), runs.load(SeqCst)), (Ok(()), 0), "{name} {end}");
        }
    }
}

#[test]
fn a_wait_that_is_dropped_while_it_waits_is_canceled() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, make) in WAITS {
        let (state, runs, closure) = state();
        let mut future = make(state.clone(), closure);
        let gate = waiting(&mut future, &state, Waker::noop());
        drop(future);
        gate.open();
        is_usable(&state);
        assert_eq!(runs.load(SeqCst), 0, "{name}");
    }
}

#[test]
fn a_wait_that_is_dropped_when_it_was_granted_lets_go() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, make) in WAITS {
        let (state, runs, closure) = state();
        let mut future = make(state.clone(), closure);
        let (waker, woken) = signal(false);
        waiting(&mut future, &state, &waker).open();
        woken();
        assert_eq!(state.try_with(|()| ()), Err(TryWithError::Busy), "{name}");
        drop(future);
        is_usable(&state);
        assert_eq!(runs.load(SeqCst), 0, "{name}");
    }
}

// On another executor, a color granted to a forgotten future stays held, and nothing else breaks.
#[test]
fn a_forgotten_wait_keeps_what_it_was_granted() {
    for (name, make) in WAITS {
        for forgotten_first in [true, false] {
            let runtime = runtime();
            let _entered = runtime.enter();
            let (state, runs, closure) = state();
            let mut future = make(state.clone(), closure);
            let (waker, woken) = signal(false);
            let gate = waiting(&mut future, &state, &waker);
            if forgotten_first {
                forget(future);
                gate.open();
                woken();
            } else {
                gate.open();
                woken();
                forget(future);
            }
            assert_eq!(state.try_with(|()| ()), Err(TryWithError::Busy), "{name}");
            is_usable(&Colored::new(()));
            assert_eq!((state.try_read(|()| ()).is_ok(), runs.load(SeqCst)), (name == "Read", 0), "{name}");
        }
    }
}

// In a Dapple task the grant is revoked at the end of the poll.
#[test]
fn a_wait_that_a_task_forgets_gives_back_what_it_was_granted() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, make) in WAITS {
        for polls in [1, 2] {
            let (state, runs, closure) = state();
            let mut future = Some(make(state.clone(), closure));
            let gate = occupy(state.color());
            let (tx, rx) = channel();
            let mut polled = 0;
            // The first poll asks, the second one has the grant.
            let task = runtime.spawn(poll_fn(move |cx| {
                polled += 1;
                if polled == 1 {
                    assert!(poll(future.as_mut().unwrap(), cx.waker()).is_pending());
                    tx.send(()).unwrap();
                }
                if polled < polls {
                    return Poll::Pending;
                }
                forget(future.take());
                Poll::Ready(())
            }));
            rx.recv_timeout(LONG).unwrap();
            gate.open();
            runtime.block_on(task).unwrap();
            is_usable(&state);
            assert_eq!(runs.load(SeqCst), 0, "{name}");
        }
    }
}

#[test]
fn a_wait_that_was_ready_has_nothing_left() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, make) in WAITS {
        for (end, over) in [DROPPED, FORGOTTEN] {
            let (state, runs, closure) = state();
            let mut future = make(state.clone(), closure);
            assert!(poll(&mut future, Waker::noop()).is_ready());
            over(future);
            assert_eq!((state.try_with(|()| ()), runs.load(SeqCst)), (Ok(()), 1), "{name} {end}");
        }
    }
}

#[test]
fn a_closure_that_panics_poisons_what_it_writes_and_lets_go() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, make) in WAITS {
        for waits in [false, true] {
            let (state, ..) = state();
            let mut future = make(state.clone(), Arc::new(explode));
            if waits {
                let (waker, woken) = signal(false);
                waiting(&mut future, &state, &waker).open();
                woken();
            }
            assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut future, Waker::noop()))).is_err());
            drop(future);
            assert_eq!(state.is_poisoned(), name != "Read", "{name}");
            state.clear_poison();
            is_usable(&state);
        }
    }
}

#[test]
fn a_waker_that_panics_costs_nothing_else() {
    let runtime = runtime();
    let _entered = runtime.enter();
    for (name, make) in WAITS {
        let (state, runs, closure) = state();
        let mut future = make(state.clone(), closure.clone());
        let (waker, woken) = signal(true);
        let gate = waiting(&mut future, &state, &waker);
        let neighbor = runtime.spawn(make(state.clone(), closure));
        gate.open();
        woken();
        assert!(poll(&mut future, Waker::noop()).is_ready(), "{name}");
        runtime.block_on(neighbor).unwrap();
        is_usable(&state);
        assert_eq!(runs.load(SeqCst), 2, "{name}");
    }
}

/// Polls a handle of a task that waits for a gate, opens the gate first if the task `ends`, and
/// drops the handle.
fn let_go_of_a_handle(polled: bool, ends: bool, over: impl Fn(Pin<Box<dyn Future<Output = ()> + Send>>)) {
    let runtime = runtime();
    let color = runtime.handle().new_color();
    let gate = occupy(&color);
    let output = Arc::new(());
    let kept = output.clone();
    let task = color.spawn(async move { kept });
    let mut joined: Waiting = Box::pin(async move { _ = task.await });
    let (waker, woken) = signal(false);
    if polled {
        assert!(poll(&mut joined, &waker).is_pending());
    }
    if ends {
        gate.open();
        woken();
    }
    over(joined);
    gate.open();
    let (tx, rx) = channel();
    color.post(move || tx.send(()).unwrap());
    rx.recv_timeout(LONG).expect("the task has run, and its color goes on");
    drop(output);
}

#[test]
fn a_join_handle_lets_its_task_run_whatever_becomes_of_it() {
    for (polled, ends) in [(false, false), (true, false), (true, true)] {
        let_go_of_a_handle(polled, ends, drop);
        let_go_of_a_handle(polled, ends, forget);
    }
}

#[test]
fn a_joiner_with_a_waker_that_panics_costs_nothing_else() {
    let runtime = runtime();
    let color = runtime.handle().new_color();
    let gate = occupy(&color);
    let mut task = Box::pin(color.spawn(async {}));
    let (waker, woken) = signal(true);
    assert!(poll(&mut task, &waker).is_pending());
    gate.open();
    woken();
    assert!(matches!(poll(&mut task, Waker::noop()), Poll::Ready(Ok(()))));
    let (tx, rx) = channel();
    color.post(move || tx.send(()).unwrap());
    rx.recv_timeout(LONG).expect("the color goes on");
}

#[test]
fn a_task_that_panics_tells_its_handle() {
    let runtime = runtime();
    let task = runtime.spawn(async { explode() });
    assert!(runtime.block_on(task).unwrap_err().is_panic());
}

#[test]
fn a_yield_can_be_dropped_and_forgotten() {
    let runtime = runtime();
    for polls in [0, 1, 2] {
        for forgets in [false, true] {
            let task = runtime.spawn(async move {
                let mut future = Box::pin(yield_now());
                for _ in 0..polls {
                    let _ = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
                }
                if forgets { forget(future) } else { drop(future) }
            });
            runtime.block_on(task).unwrap();
        }
    }
    let mut future = Box::pin(yield_now());
    // Its waker is called in its own poll.
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut future, &signal(true).0))).is_err());
    assert!(poll(&mut future, Waker::noop()).is_ready());
}

#[test]
fn others_that_wait_for_the_end_learn_of_it() {
    let runtime = runtime();
    let handle = runtime.handle().clone();
    let closing = || Box::pin(handle.closing());
    let ((bomb, exploded), (waker, woken)) = (signal(true), signal(false));
    let mut futures = [(); 4].map(|()| closing());
    let [dropped, forgotten, panics, waits] = &mut futures;
    assert!(poll(dropped, Waker::noop()).is_pending());
    assert!(poll(forgotten, Waker::noop()).is_pending());
    assert!(poll(panics, &bomb).is_pending());
    assert!(poll(waits, &waker).is_pending());
    let [dropped, forgotten, _panics, mut waits] = futures;
    drop(dropped);
    forget(forgotten);
    drop(closing());
    forget(closing());
    runtime.shutdown(LONG);
    exploded();
    woken();
    assert!(poll(&mut waits, Waker::noop()).is_ready());
    drop(waits);
}

#[test]
fn a_pinned_wait_that_is_forgotten_runs_and_one_that_is_dropped_does_not() {
    let runtime = runtime();
    let _entered = runtime.enter();
    let state = Pinned::new(&Color::pinned(1), || 0);
    for (polled, forgets, runs) in [(false, false, 0), (false, true, 0), (true, false, 0), (true, true, 1)] {
        let before = runtime.block_on(state.with(|n| *n));
        let gate = occupy(state.color());
        let mut future = Box::pin(state.with(|n| *n += 1));
        if polled {
            assert!(poll(&mut future, Waker::noop()).is_pending());
        }
        if forgets {
            forget(future)
        } else {
            drop(future)
        }
        gate.open();
        assert_eq!(runtime.block_on(state.with(|n| *n)), before + runs);
    }
    let panics = AssertUnwindSafe(|| runtime.block_on(state.with(|_| explode())));
    assert!(catch_unwind(panics).is_err() && state.is_poisoned());
    state.clear_poison();
    let (waker, woken) = signal(true);
    let gate = occupy(state.color());
    let mut future = Box::pin(state.with(|_| ()));
    assert!(poll(&mut future, &waker).is_pending());
    gate.open();
    woken();
    assert!(poll(&mut future, Waker::noop()).is_ready());
}
