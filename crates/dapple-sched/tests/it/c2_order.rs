//! C2: a color has one acceptance order, consistent with happens-before between posts.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};

use dapple_sched::{Color, Colored, Priority, when};

use crate::support::{LONG, collector, occupy, runtime};

#[test]
fn c2_posts_of_one_thread_run_in_order() {
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let color = Color::new();
    let seen = Colored::with_color(Vec::new(), &color);
    let count = crate::support::rounds(50_000);
    for n in 0..count {
        seen.post(move |seen| seen.push(n));
    }
    let seen = seen.with_blocking(std::mem::take);
    assert!(seen.into_iter().eq(0..count));
}

#[test]
fn c2_a_post_that_happened_before_comes_first() {
    // A callback of the color makes another thread post to it, waits for that, and posts itself.
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::new();
    for _ in 0..200 {
        let (tx, seen) = collector();
        let color = color.clone();
        let inner = color.clone();
        color.post(move || {
            let (told, hears) = channel();
            let (outside, tx_outside) = (inner.clone(), tx.clone());
            std::thread::spawn(move || {
                outside.post(move || tx_outside.send("outside").unwrap());
                told.send(()).unwrap();
            });
            hears.recv().unwrap();
            inner.post(move || tx.send("inside").unwrap());
        });
        assert_eq!(seen.all(), ["outside", "inside"]);
    }
}

#[test]
fn c2_order_is_kept_through_steals_and_home_moves() {
    // Chains that hop between colors, on more workers than cores; each color checks each sender's
    // numbers.
    const COLORS: usize = 16;
    const EACH: u64 = crate::support::rounds(4_000) as u64;
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let receivers: Vec<_> = (0..COLORS).map(|_| Colored::new(vec![0u64; COLORS])).collect();
    let (tx, done) = collector::<()>();
    for (sender, color) in (0..COLORS).map(|sender| (sender, Color::new())) {
        let (receivers, tx) = (receivers.clone(), tx.clone());
        let own = color.clone();
        fn send(own: Color, sender: usize, n: u64, receivers: Vec<Colored<Vec<u64>>>, tx: std::sync::mpsc::Sender<()>) {
            for receiver in &receivers {
                let tx = tx.clone();
                receiver.post(move |last| {
                    assert_eq!(last[sender] + 1, n, "out of order");
                    last[sender] = n;
                    drop(tx);
                });
            }
            if n < EACH {
                own.clone().post(move || send(own, sender, n + 1, receivers, tx));
            }
        }
        color.post(move || send(own, sender, 1, receivers, tx));
    }
    drop(tx);
    done.all();
    for receiver in receivers {
        assert!(receiver.with_blocking(|last| last.iter().all(|&n| n == EACH)));
    }
}

#[test]
fn c2_priority_orders_colors_and_never_one_color() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let gate = occupy(&Color::new());
    let (low, high) = (Color::new(), Color::new());
    let (tx, seen) = collector();
    for (color, name) in [(&low, "low"), (&high, "high")] {
        for n in 0..3 {
            let tx = tx.clone();
            // The last one has the priority, which must not let it overtake the first two.
            let priority = if name == "high" && n == 2 { Priority::HIGHEST } else { Priority::NORMAL };
            color.post_with(priority, move || tx.send((name, n)).unwrap());
        }
    }
    drop(tx);
    gate.open();
    assert_eq!(seen.all(), [("high", 0), ("high", 1), ("high", 2), ("low", 0), ("low", 1), ("low", 2)]);
}

#[test]
fn c2_priority_starves_no_color() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let urgent = Color::new();
    fn forever(urgent: Color) {
        urgent.clone().post_with(Priority::HIGHEST, move || forever(urgent));
    }
    forever(urgent);
    let (tx, done) = collector();
    Color::new().post(move || tx.send(()).unwrap());
    done.next();
}

#[test]
fn c2_what_runs_in_line_is_part_of_its_callback() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let (tx, seen) = collector();
    let inner = state.clone();
    state.color().post(move || {
        let queued = tx.clone();
        inner.post(move |n| queued.send(("queued", *n)).unwrap());
        inner.try_with(|n| *n += 1).expect("the color is held by this callback");
        tx.send(("in line", inner.try_with(|n| *n).unwrap())).unwrap();
    });
    assert_eq!(seen.all(), [("in line", 1), ("queued", 1)]);
}

/// Performs an action before it wakes the task.
struct Before {
    act: Box<dyn Fn() + Send + Sync>,
    task: Waker,
}

impl Wake for Before {
    fn wake(self: Arc<Self>) {
        (self.act)();
        self.task.wake_by_ref();
    }
}

impl Before {
    fn waker(cx: &Context<'_>, act: impl Fn() + Send + Sync + 'static) -> Waker {
        Waker::from(Arc::new(Before { act: Box::new(act), task: cx.waker().clone() }))
    }
}

const WAITER: u8 = 0;
const POSTED: u8 = 1;
const IN_LINE: u8 = 2;

/// A task that waits for a state is polled inside the turn of the state's color. Other callbacks of
/// the task's own color do not have the state: they would go before callbacks that the state's
/// color has accepted earlier.
#[test]
fn c2_only_the_waiter_has_its_grant() {
    for round in 0..20 {
        let runtime = runtime(2);
        let _entered = runtime.enter();
        let (log, other) = (Colored::new(Vec::new()), Colored::new(()));
        let gate = occupy(log.color());
        let own = Color::new();
        let (waits, is_waiting) = channel();
        let task = own.spawn({
            let (own, log, other) = (own.clone(), log.clone(), other.clone());
            async move {
                let one = log.with(|log| log.push(WAITER));
                let two = when((&log, &other)).with(|(log, ())| log.push(WAITER));
                let mut waiter: Pin<Box<dyn Future<Output = ()> + Send>> =
                    if round % 2 == 0 { Box::pin(one) } else { Box::pin(two) };
                std::future::poll_fn(|cx| {
                    let (own, log) = (own.clone(), log.clone());
                    let waker = Before::waker(cx, move || {
                        let log = log.clone();
                        own.post(move || _ = log.try_with(|log| log.push(IN_LINE)));
                    });
                    let polled = waiter.as_mut().poll(&mut Context::from_waker(&waker));
                    let _ = waits.send(());
                    polled
                })
                .await;
            }
        });
        is_waiting.recv_timeout(LONG).unwrap();
        log.post(|log| log.push(POSTED));
        gate.open();
        runtime.block_on(task).unwrap();
        let first: Vec<_> = log.with_blocking(|log| log.iter().copied().take(2).collect());
        assert_eq!(first, [WAITER, POSTED]);
    }
}

/// A poll that runs when its task gets a grant may have checked before: then the next poll has it,
/// in its place.
#[test]
fn c2_a_grant_that_comes_during_a_poll_is_kept() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let log = Colored::new(Vec::new());
    let gate = occupy(log.color());
    let (waits, is_waiting) = channel();
    // With a color from the start: the first poll is a callback of it.
    let task = Color::new().spawn({
        let log = log.clone();
        async move {
            let mut waiter = Box::pin(log.with(|log| log.push(WAITER)));
            let (grants, granted) = channel();
            let mut granted = Some(granted);
            std::future::poll_fn(|cx| {
                let grants = grants.clone();
                let waker = Before::waker(cx, move || _ = grants.send(()));
                let polled = waiter.as_mut().poll(&mut Context::from_waker(&waker));
                if let Some(granted) = granted.take() {
                    waits.send(()).unwrap();
                    granted.recv_timeout(LONG).unwrap();
                }
                polled
            })
            .await;
        }
    });
    is_waiting.recv_timeout(LONG).unwrap();
    log.post(|log| log.push(POSTED));
    gate.open();
    runtime.block_on(task).unwrap();
    assert_eq!(log.with_blocking(|log| log.clone()), [WAITER, POSTED]);
}
