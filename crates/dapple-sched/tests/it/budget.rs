//! C7: a task with awaits that are all ready at once yields to others.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use dapple_sched::{
    Color, Colored, JoinHandle, Pinned, Runtime, block_on, budgeted, consume_budget, poll_budget, spawn, unconstrained,
    when,
};

use crate::support::runtime;

/// More rounds than any budget has.
const MANY: usize = 10_000;

/// The number of ready awaits in the budget of a poll.
const BUDGET: usize = 128;

#[test]
fn c7_a_loop_that_waits_for_a_condition_does_not_keep_the_only_worker() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let ready = Colored::new(false);
    let waiter = spawn({
        let ready = ready.clone();
        async move { while !ready.with(|ready| *ready).await {} }
    });
    let setter = spawn(async move { ready.with(|ready| *ready = true).await });
    runtime.block_on(async {
        setter.await.unwrap();
        waiter.await.unwrap();
    });
}

#[test]
fn c7_awaits_that_are_ready_at_once_let_others_go() {
    lets_others_go("with", |state| async move { state.with(|n| *n += 1).await });
    lets_others_go("read", |state| async move { state.read(|_| ()).await });
    lets_others_go("when", |state| async move {
        let other = Colored::new(0);
        when((&state, &other)).with(|_| ()).await;
    });
    lets_others_go("consume_budget", |_| consume_budget());
    lets_others_go("budgeted", |_| budgeted(async {}));
    lets_others_go("poll_budget", |_| poll_fn(|cx| poll_budget(cx)));
}

#[test]
fn c7_a_pinned_state_lets_others_go() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let color = Color::pinned(0);
    let state = Pinned::new(&color, || 0);
    let rounds = rounds_until_another_starts(&runtime, |task| spawn(task), move || state.with(|n| *n += 1));
    assert!(rounds < MANY);
}

#[test]
fn c7_joins_of_tasks_that_have_ended_let_others_go() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let tasks: Vec<_> = (0..MANY).map(|_| spawn(async {})).collect();
    runtime.block_on(async {
        for task in &tasks {
            poll_fn(|cx| task.poll_finished(cx)).await;
        }
    });
    let tasks = std::sync::Mutex::new(tasks);
    let join = move || {
        let task = tasks.lock().unwrap().pop().expect("there are enough");
        async move { task.await.unwrap() }
    };
    assert!(rounds_until_another_starts(&runtime, |task| spawn(task), join) < MANY);
}

#[test]
fn c7_tasks_of_one_color_let_each_other_go() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (color, state) = (Color::new(), Colored::new(0));
    let rounds = rounds_until_another_starts(
        &runtime,
        move |task| color.spawn(task),
        move || {
            let state = state.clone();
            async move { state.with(|n| *n += 1).await }
        },
    );
    assert!(rounds < MANY);
}

#[test]
fn c7_each_poll_begins_with_a_whole_budget() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    for color in [None, Some(Color::new())] {
        let polls = async {
            let mut first = 0;
            // For the rest of this poll.
            dapple_sched::yield_now().await;
            for _ in 0..3 {
                first = ready_in_this_poll().await;
            }
            first
        };
        let task = match color {
            Some(color) => color.spawn(polls),
            None => spawn(polls),
        };
        assert_eq!(runtime.block_on(task).unwrap(), BUDGET);
    }
    // So does one on a plain thread.
    assert_eq!(block_on(ready_in_this_poll()), BUDGET);
}

#[test]
fn c7_callbacks_and_other_executors_have_no_budget() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let ready = |state: &Colored<usize>| {
        let mut cx = Context::from_waker(Waker::noop());
        (0..MANY).all(|_| pin!(state.with(|n| *n += 1)).poll(&mut cx).is_ready())
    };
    // A plain thread that drives no future.
    assert!(ready(&state));
    // A callback, even one after a task that has used up its budget.
    let color = Color::new();
    let used_up = color.spawn(async { while poll_fn(|cx| Poll::Ready(poll_budget(cx))).await.is_ready() {} });
    let (tx, rx) = std::sync::mpsc::channel();
    color.post({
        let state = state.clone();
        move || tx.send(ready(&state)).unwrap()
    });
    assert_eq!(rx.recv(), Ok(true));
    runtime.block_on(used_up).unwrap();
}

#[test]
fn c7_an_executor_inside_a_task_is_not_refused_for_good() {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    // Like a budget of another library, which ignores Dapple's budget and polls again as soon as it
    // is woken.
    fn drive<F: Future>(future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let sum = spawn(async move {
        for _ in 0..MANY {
            drive(state.with(|n| *n += 1));
        }
        drive(state.with(|n| *n))
    });
    assert_eq!(runtime.block_on(sum).unwrap(), MANY);
}

#[test]
fn c7_a_look_at_a_future_is_not_refused() {
    // Wakes of this waker go nowhere, so a refusal would be final.
    async fn looks(state: Colored<usize>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        (0..MANY).all(|_| pin!(state.with(|n| *n += 1)).poll(&mut cx).is_ready())
    }
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    assert!(runtime.block_on(looks(state.clone())));
    assert!(runtime.block_on(spawn(looks(state.clone()))).unwrap());
    assert!(runtime.block_on(Color::new().spawn(looks(state))).unwrap());
}

#[test]
fn c7_many_futures_in_one_poll_all_end() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let task = spawn(async move {
        let mut all: Vec<_> = (0..MANY).map(|_| Box::pin(state.with(|n| *n += 1))).collect();
        poll_fn(|cx| {
            all.retain_mut(|future| future.as_mut().poll(cx).is_pending());
            if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        drop(all);
        state.with(|n| *n).await
    });
    assert_eq!(runtime.block_on(task).unwrap(), MANY);
}

#[test]
fn c7_a_budgeted_future_that_waits_spends_nothing() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let task = spawn(async {
        let mut waits = pin!(budgeted(std::future::pending::<()>()));
        poll_fn(|cx| {
            for _ in 0..MANY {
                assert!(waits.as_mut().poll(cx).is_pending());
            }
            poll_budget(cx)
        })
        .await;
        ready_in_this_poll().await
    });
    assert_eq!(runtime.block_on(task).unwrap(), BUDGET - 1);
}

#[test]
fn an_unconstrained_future_goes_on_and_gives_the_budget_back() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let rounds = rounds_until_another_starts(&runtime, |task| spawn(unconstrained(task)), {
        let state = state.clone();
        move || {
            let state = state.clone();
            async move { state.with(|n| *n += 1).await }
        }
    });
    assert_eq!(rounds, MANY);
    let task = spawn(async move {
        unconstrained(async {
            for _ in 0..MANY {
                state.with(|n| *n += 1).await;
            }
        })
        .await;
        ready_in_this_poll().await
    });
    assert_eq!(runtime.block_on(task).unwrap(), BUDGET);
}

/// Checks that a task which awaits `round` again and again lets another start.
fn lets_others_go<F>(name: &str, round: impl Fn(Colored<usize>) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let rounds = rounds_until_another_starts(&runtime, |task| spawn(task), move || round(state.clone()));
    assert!(rounds < MANY, "{name}: no other task has started");
}

type Busy = std::pin::Pin<Box<dyn Future<Output = usize> + Send>>;

/// The number of rounds, out of `MANY`, that a task makes before another task starts, which it
/// spawned on the only worker.
fn rounds_until_another_starts<F>(
    runtime: &Runtime,
    start: impl Fn(Busy) -> JoinHandle<usize> + Clone + Send + 'static,
    round: impl Fn() -> F + Send + 'static,
) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    let started = Arc::new(AtomicBool::new(false));
    let inside = start.clone();
    let busy = async move {
        let other = started.clone();
        drop(inside(Box::pin(async move {
            other.store(true, Relaxed);
            0
        })));
        let mut rounds = 0;
        while rounds < MANY && !started.load(Relaxed) {
            round().await;
            rounds += 1;
        }
        rounds
    };
    runtime.block_on(start(Box::pin(busy))).unwrap()
}

/// The number of awaits that are ready in this poll until one is refused.
async fn ready_in_this_poll() -> usize {
    let mut ready = 0;
    let mut first = true;
    poll_fn(|cx| {
        if !std::mem::take(&mut first) {
            return Poll::Ready(());
        }
        while poll_budget(cx).is_ready() {
            ready += 1;
        }
        // Refused, and so woken.
        Poll::Pending
    })
    .await;
    ready
}
