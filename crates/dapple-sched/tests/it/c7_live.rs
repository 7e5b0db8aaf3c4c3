//! C7: every accepted callback runs once, or is canceled, refused, or dropped at shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use dapple_sched::{Color, PostError};

use crate::support::{collector, occupy, runtime};

#[test]
fn c7_a_full_color_refuses_and_returns_the_closure() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let color = Color::new();
    color.set_capacity(Some(2));
    let gate = occupy(&color);
    let (tx, seen) = collector();
    let send = |n| {
        let tx = tx.clone();
        move || tx.send(n).unwrap()
    };
    color.try_post(send(1)).unwrap();
    color.post(send(2));
    let refused = color.try_post(send(3)).unwrap_err();
    assert!(matches!(refused, PostError::Full(_)), "{refused}");
    // `post` never refuses, but its callbacks count.
    color.post(send(4));
    assert!(matches!(color.try_post(send(5)), Err(PostError::Full(_))));
    refused.into_inner()();
    drop(tx);
    gate.open();
    assert_eq!(seen.all(), [3, 1, 2, 4]);
    let (tx, seen) = collector();
    color.try_post(move || tx.send(()).unwrap()).expect("there is room again");
    seen.all();
    assert_eq!(color.queue_len_max(), 3);
}

#[test]
fn c7_capacity_holds_against_many_posters() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::new();
    color.set_capacity(Some(100));
    let gate = occupy(&color);
    let accepted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    if color.try_post(|| ()).is_ok() {
                        accepted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    gate.open();
    assert_eq!(accepted.into_inner(), 100);
}

#[test]
fn c7_the_high_water_mark_is_counted_for_all() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let color = Color::new();
    let gate = occupy(&color);
    let (tx, seen) = collector::<()>();
    for _ in 0..1_000 {
        let tx = tx.clone();
        color.post(move || drop(tx));
    }
    drop(tx);
    assert_eq!(color.queue_len_max(), 1_000, "also while the color is busy");
    gate.open();
    seen.all();
    assert_eq!(color.queue_len_max(), 1_000);
}

#[test]
fn c7_a_canceled_callback_does_not_run() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let color = Color::new();
    let gate = occupy(&color);
    let ran = Arc::new(AtomicUsize::new(0));
    let post = || {
        let ran = ran.clone();
        color.post_cancellable(move || {
            ran.fetch_add(1, Ordering::Relaxed);
        })
    };
    let (first, second) = (post(), post());
    assert!(first.cancel());
    assert!(!first.cancel(), "once is enough");
    gate.open();
    let (tx, seen) = collector();
    color.post(move || tx.send(()).unwrap());
    seen.all();
    assert!(!second.cancel(), "it has run");
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

#[test]
fn c7_nothing_is_lost_under_load() {
    const COLORS: usize = 100;
    const EACH: usize = crate::support::rounds(500);
    for workers in [1, 2, 4, 8] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let ran = Arc::new(AtomicUsize::new(0));
        let (tx, done) = collector::<()>();
        let colors: Vec<_> = (0..COLORS).map(|_| Color::new()).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (colors, ran, tx) = (&colors, ran.clone(), tx.clone());
                scope.spawn(move || {
                    for n in 0..COLORS * EACH {
                        let (ran, tx, next) = (ran.clone(), tx.clone(), colors[(n * 7) % COLORS].clone());
                        colors[n % COLORS].post(move || {
                            ran.fetch_add(1, Ordering::Relaxed);
                            next.post(move || drop((tx, ran.fetch_add(1, Ordering::Relaxed))));
                        });
                    }
                });
            }
        });
        drop(tx);
        done.all();
        assert_eq!(ran.load(Ordering::Relaxed), 2 * 2 * COLORS * EACH);
        let callbacks: u64 = runtime.handle().stats().workers.iter().map(|worker| worker.callbacks).sum();
        assert!(callbacks <= (2 * 2 * COLORS * EACH) as u64, "a callback was counted twice: {callbacks}");
    }
}

/// Records which of two colors ran. One worker writes it with plain stores: a lock would make the
/// callbacks too long for a turn to go on.
struct Order {
    len: AtomicUsize,
    names: Vec<AtomicU8>,
}

impl Order {
    fn push(&self, name: u8) {
        // Relaxed: one thread writes; the last store below releases.
        let at = self.len.load(Ordering::Relaxed);
        self.names[at].store(name, Ordering::Relaxed);
        self.len.store(at + 1, Ordering::Release);
    }
}

/// Returns the order in which two colors ran, each of which posts its next callback to itself, or
/// polls a task that yields.
fn turns_of_two(yields: bool) -> Vec<u8> {
    const EACH: usize = 20_000;
    fn step(color: Arc<Color>, name: u8, left: usize, order: Arc<Order>) {
        order.push(name);
        if left > 1 {
            let next = color.clone();
            color.post(move || step(next, name, left - 1, order));
        }
    }
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let names = (0..2 * EACH).map(|_| AtomicU8::new(0)).collect();
    let order = Arc::new(Order { len: AtomicUsize::new(0), names });
    let kept = order.clone();
    let start = move |name: u8| {
        let (color, order) = (Arc::new(Color::new()), kept.clone());
        let of = color.clone();
        of.spawn(async move {
            if !yields {
                let next = color.clone();
                return color.post(move || step(next, name, EACH, order));
            }
            for _ in 0..EACH {
                order.push(name);
                dapple_sched::yield_now().await;
            }
        })
    };
    // On the worker: neither begins before both are there.
    let both = Color::new().spawn(async move { [start(0), start(1)] });
    for task in runtime.block_on(both).unwrap() {
        runtime.block_on(task).unwrap();
    }
    // Acquire pairs with the store in `push`.
    while order.len.load(Ordering::Acquire) < 2 * EACH {
        std::thread::yield_now();
    }
    order.names.iter().map(|name| name.load(Ordering::Relaxed)).collect()
}

/// The longest run of turns of one color while the other was runnable too.
fn longest_stretch(seen: &[u8]) -> usize {
    let both = |at: usize| [0, 1].iter().all(|name| seen[at..].contains(name) && seen[..at].contains(name));
    let first = (0..seen.len()).find(|&at| both(at)).expect("they take turns");
    let last = (0..seen.len()).rfind(|&at| both(at)).expect("they take turns");
    seen[first..last].chunk_by(|a, b| a == b).map(<[u8]>::len).max().expect("it is not empty")
}

#[test]
fn c7_a_color_that_posts_to_itself_lets_others_run() {
    let longest = longest_stretch(&turns_of_two(false));
    assert!((1..=8).contains(&longest), "{longest} callbacks in a row");
}

#[test]
fn c7_tasks_that_yield_take_turns_one_by_one() {
    let seen = turns_of_two(true);
    let longest = longest_stretch(&seen);
    assert_eq!(longest, 1, "polls in a row");
}
