//! C4: several colors at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::task::{Context, Waker};

use dapple_sched::{Color, Colored, Priority, Runtime, TryWithError, block_on, spawn, when, yield_now};

use crate::support::{Gate, LONG, collector, occupy, runtime};

#[test]
fn c4_a_closure_holds_all_states_that_it_names() {
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let (a, b, c) = (Colored::new(1), Colored::new("b".to_owned()), Color::new());
        let (tx, rx) = channel();
        when((&a, &b, &c)).post(move |(a, b, ())| {
            *a += 1;
            b.push('!');
            tx.send((*a, b.clone())).unwrap();
        });
        assert_eq!(rx.recv_timeout(LONG), Ok((2, "b!".to_owned())));
        let text = runtime.block_on(when((&b, &a)).with(|(b, a)| format!("{b}{a}")));
        assert_eq!(text, "b!2");
        assert_eq!(when((&a, &b)).with_blocking(|(a, b)| *a + b.len()), 4);
    }
}

/// The end of a turn may release a color of a set; but the next callback in the same turn finds it
/// free.
#[test]
fn c4_what_a_set_has_held_is_free_for_the_next_callback_of_its_turn() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let colors = [Color::new(), Color::new(), Color::new()];
    let (tx, rx) = channel();
    // From a callback, so that all of them wait when the turn begins.
    let poster = Color::new();
    for set in [&colors[..2], &colors[..]] {
        for runs_in in 0..set.len() {
            let (set, colors, tx) = (set.to_vec(), colors.clone(), tx.clone());
            poster.post(move || {
                when(&set).post(|_| ());
                let others = colors.clone();
                colors[runs_in].post(move || {
                    let free = others.iter().filter(|color| Colored::with_color((), color).try_with(|()| ()).is_ok());
                    tx.send(free.count()).unwrap();
                });
            });
            assert_eq!(rx.recv_timeout(LONG), Ok(3), "with its own");
        }
    }
}

/// A color held by a set can get another home while the set's closure runs: by a set of another
/// worker that waits for it.
#[test]
fn c4_what_a_set_has_held_is_let_go_of_where_it_has_come_to() {
    let runtime = runtime(2);
    let handle = runtime.handle();
    let pinned = [0, 1].map(|worker| handle.pinned_color(worker));
    let (held, runner) = (handle.new_color_at(1), handle.new_color_at(1));
    // The callbacks of this color are long enough to be measured, but short enough that the other
    // set is still brought together.
    occupy(&pinned[0]).open();
    let (begin, posted) = (Gate::default(), Gate::default());
    let (tx, seen) = collector();
    let (ready_tx, ready) = collector();
    let (held_by_both, other, begins, has_posted, second) =
        (held.clone(), pinned[0].clone(), begin.clone(), posted.clone(), tx.clone());
    pinned[0].post(move || {
        ready_tx.send(()).unwrap();
        begins.wait();
        when((&held_by_both, &other)).post(move |_| second.send("second").unwrap());
        has_posted.open();
    });
    ready.next();
    // A callback there posts them, so that both have their home there when the set is posted.
    let (held_first, third) = (held.clone(), tx.clone());
    pinned[1].post(move || {
        when((&held_first, &runner)).post(move |_| {
            begin.open();
            posted.wait();
            tx.send("first").unwrap();
        });
    });
    assert_eq!([seen.next(), seen.next()], ["first", "second"]);
    held.post(move || third.send("third").unwrap());
    assert_eq!(seen.next(), "third");
}

#[test]
fn c4_no_other_callback_is_in_any_of_the_colors() {
    const COLORS: usize = 4;
    for workers in [1, 2, 8] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let colors: Vec<Color> = (0..COLORS).map(|_| Color::new()).collect();
        let inside: Arc<Vec<AtomicBool>> = Arc::new((0..COLORS).map(|_| AtomicBool::new(false)).collect());
        let (alive, all_over) = collector::<()>();
        let enter = |held: Vec<usize>| {
            let (inside, alive) = (inside.clone(), alive.clone());
            move || {
                for color in &held {
                    assert!(!inside[*color].swap(true, SeqCst), "two callbacks in color {color}");
                }
                std::hint::black_box((0..50).sum::<u64>());
                for color in &held {
                    inside[*color].store(false, SeqCst);
                }
                drop(alive);
            }
        };
        for round in 0..2_000usize {
            let (a, b) = (round % COLORS, (round * 7 + 1) % COLORS);
            match round % 3 {
                0 => colors[a].post(enter(vec![a])),
                1 if a != b => {
                    let run = enter(vec![a, b]);
                    when((&colors[a], &colors[b])).post(move |_| run());
                }
                _ => {
                    let run = enter((0..COLORS).collect());
                    when(&colors).post(move |_| run());
                }
            }
        }
        drop(alive);
        all_over.all();
        let panics: u64 = runtime.handle().stats().workers.iter().map(|worker| worker.panics).sum();
        assert_eq!(panics, 0);
    }
}

#[test]
fn c4_sets_in_every_order_do_not_deadlock() {
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let states: Vec<Colored<u64>> = (0..3).map(|_| Colored::new(0)).collect();
    let runs = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (states, runs) = (&states, &runs);
            scope.spawn(move || {
                for round in 0..300usize {
                    let (one, other) = ((thread + round) % 3, (thread + round + 1 + round % 2) % 3);
                    if one == other {
                        continue;
                    }
                    let runs = runs.clone();
                    if round % 2 == 0 {
                        when((&states[one], &states[other])).with_blocking(|(a, b)| {
                            *a += 1;
                            *b += 1;
                        });
                    } else {
                        when((&states[one], &states[other])).post(|(a, b)| {
                            *a += 1;
                            *b += 1;
                        });
                    }
                    runs.fetch_add(1, SeqCst);
                }
            });
        }
    });
    let sum = when(&states).with_blocking(|states| states.iter().map(|state| **state).sum::<u64>());
    assert_eq!(sum, 2 * runs.load(SeqCst) as u64);
}

#[test]
fn c4_a_set_takes_its_place_in_each_color() {
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let (a, b) = (Color::new(), Color::new());
        let gate = occupy(&a);
        let (tx, seen) = collector();
        let note = |text: &'static str| {
            let tx = tx.clone();
            move || tx.send(text).unwrap()
        };
        a.post(note("a before"));
        b.post(note("b before"));
        let both = note("both");
        when((&a, &b)).post(move |_| both());
        a.post(note("a after"));
        b.post(note("b after"));
        let again = note("again");
        when((&b, &a)).post(move |_| again());
        gate.open();
        drop(tx);
        let seen = seen.all();
        let at = |text: &str| seen.iter().position(|seen| *seen == text).unwrap();
        for color in ["a", "b"] {
            assert!(at(&format!("{color} before")) < at("both"), "{seen:?}");
            assert!(at("both") < at(&format!("{color} after")), "{seen:?}");
            assert!(at(&format!("{color} after")) < at("again"), "{seen:?}");
        }
    }
}

#[test]
fn c4_overlapping_sets_keep_the_order_of_acceptance() {
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let colors: Vec<Color> = (0..4).map(|_| Color::new()).collect();
    let seen: Vec<Colored<Vec<usize>>> = colors.iter().map(|color| Colored::with_color(Vec::new(), color)).collect();
    for round in 0..1_000usize {
        let (a, b) = (round % 4, (round + 1 + round % 3) % 4);
        let pair = [seen[a].clone(), seen[b].clone()];
        when(&pair).post(move |mut pair| pair.iter_mut().for_each(|seen| seen.push(round)));
    }
    for seen in &seen {
        let seen = seen.with_blocking(|seen| seen.clone());
        assert!(seen.is_sorted(), "one thread posted them in order, and a color ran {seen:?}");
    }
}

#[test]
fn c4_a_color_named_twice_counts_once() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::new();
    let (a, b) = (Colored::with_color(1, &color), Colored::with_color(2, &color));
    assert_eq!(runtime.block_on(when((&a, &b, &color, &color)).with(|(a, b, (), ())| *a + *b)), 3);
    let many: Vec<Color> = (0..40).map(|_| color.clone()).chain((0..20).map(|_| Color::new())).collect();
    let (tx, rx) = channel();
    when(&many).post(move |all| tx.send(all.len()).unwrap());
    assert_eq!(rx.recv_timeout(LONG), Ok(60));
    // Read once and written once is written.
    let (tx, rx) = channel();
    when((a.reading(), &b)).post(move |(a, b)| tx.send(*a + *b).unwrap());
    assert_eq!(rx.recv_timeout(LONG), Ok(3));
}

#[test]
#[should_panic(expected = "names the same state twice")]
fn c4_a_state_named_twice_is_refused() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let state = Colored::new(1);
    when((&state, &state)).post(|_| ());
}

#[test]
#[should_panic(expected = "different runtimes")]
fn c4_colors_of_two_runtimes_are_refused() {
    let (one, two) = (runtime(1), runtime(1));
    let (a, b) = (one.handle().new_color(), two.handle().new_color());
    when((&a, &b)).post(|_| ());
}

#[test]
fn c4_an_empty_set_holds_nothing_and_runs() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let none: [Colored<u8>; 0] = [];
    let (tx, rx) = channel();
    when(&none).post(move |all| tx.send(all.len()).unwrap());
    assert_eq!(rx.recv_timeout(LONG), Ok(0));
    assert_eq!(runtime.block_on(when(&none).with(|all| all.len())), 0);
}

#[test]
fn c4_the_default_color_can_be_named() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let state = Colored::new(0);
    let (tx, rx) = channel();
    when((&Color::DEFAULT, &state)).post(move |((), n)| tx.send(*n).unwrap());
    assert_eq!(rx.recv_timeout(LONG), Ok(0));
}

#[test]
fn c4_tasks_wait_for_sets_that_contain_their_own_color() {
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let colors: Vec<Color> = (0..3).map(|_| Color::new()).collect();
        let states: Vec<Colored<u64>> = colors.iter().map(|color| Colored::with_color(0, color)).collect();
        let tasks: Vec<_> = (0..30usize)
            .map(|n| {
                let states = states.clone();
                colors[n % 3].spawn(async move {
                    for round in 0..20usize {
                        let (a, b) = (&states[(n + round) % 3], &states[(n + round + 1) % 3]);
                        let text = format!("{n}"); // borrowed across the wait
                        when((a, b))
                            .with(|(a, b)| {
                                *a += u64::from(!text.is_empty());
                                *b += 1;
                            })
                            .await;
                        // The read side of its own color must not wait for itself.
                        when((a.reading(), b)).with(|(_, b)| *b += 1).await;
                        yield_now().await;
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        let sum: u64 = states.iter().map(|state| state.with_blocking(|n| *n)).sum();
        assert_eq!(sum, 30 * 20 * 3);
    }
}

#[test]
fn c4_a_wait_that_is_dropped_lets_go_of_what_it_has_at_once() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (free, busy) = (Colored::new(0), Colored::new(0));
    let gate = occupy(busy.color());
    for _ in 0..3 {
        let mut wait = Box::pin(when((&free, &busy)).with(|_| ()));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(free.try_with(|_| ()), Err(TryWithError::Busy));
        drop(wait);
        assert_eq!(free.try_with(|n| *n += 1), Ok(()));
        assert_eq!(when((free.reading(),)).try_with(|(n,)| *n > 0), Ok(true));
    }
    gate.open();
    runtime.block_on(when((&busy, &free)).with(|(busy, free)| assert_eq!((*busy, *free), (0, 3))));
}

#[test]
fn c4_a_wait_that_is_dropped_never_runs_and_lets_the_others_go() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let (a, b) = (Colored::new(0), Colored::new(0));
        let gate = occupy(a.color());
        let ran = Arc::new(AtomicBool::new(false));
        {
            let mut wait = std::pin::pin!(when((&a, &b)).with(|_| ran.store(true, SeqCst)));
            let waker = std::task::Waker::noop();
            assert!(wait.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        }
        gate.open();
        assert_eq!(when((&b, &a)).with_blocking(|(b, a)| *a + *b), 0);
        assert!(!ran.load(SeqCst));
    }
}

#[test]
fn c4_aborted_tasks_leave_nothing_held() {
    let runtime = runtime(3);
    let _entered = runtime.enter();
    let states: Vec<Colored<u64>> = (0..4).map(|_| Colored::new(0)).collect();
    for round in 0..300usize {
        let pair = [states[round % 4].clone(), states[(round + 1) % 4].clone()];
        let task = spawn(async move {
            loop {
                when(&pair).with(|mut pair| *pair[0] += 1).await;
                yield_now().await;
            }
        });
        std::thread::yield_now();
        task.abort();
        let _ = runtime.block_on(task);
    }
    assert_eq!(when(&states).with_blocking(|states| states.len()), 4);
}

#[test]
fn c4_a_panic_poisons_what_was_held_for_writing() {
    let runtime = Runtime::builder().workers(2).panic_handler(|_| ()).build().unwrap();
    let _entered = runtime.enter();
    let (a, b, c) = (Colored::new(1), Colored::new(2), Colored::new(3));
    when((&a, b.reading(), &c)).post(|_| panic!("in the middle"));
    // The colors are free again, and their states show the result.
    let color = Color::new();
    when((&color, a.color(), b.color(), c.color())).with_blocking(|_| ());
    assert!(a.is_poisoned() && !b.is_poisoned() && c.is_poisoned());
    assert_eq!(when((&b, &c)).try_with(|_| ()), Err(TryWithError::Poisoned));
    c.clear_poison();
    assert_eq!(when((&b, &c)).try_with(|(b, c)| *b + *c), Ok(5));
}

#[test]
fn c4_in_line_only_if_all_are_free() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (a, b) = (Colored::new(1), Colored::new(2));
    assert_eq!(when((&a, &b)).try_with(|(a, b)| *a + *b), Ok(3));
    let gate = occupy(b.color());
    assert_eq!(when((&a, &b)).try_with(|_| ()), Err(TryWithError::Busy));
    // ... and nothing was left held.
    assert_eq!(a.try_with(|a| *a), Ok(1));
    gate.open();
    // Inside a callback of one of them, that one is held already.
    let (tx, rx) = channel();
    let (a2, b2) = (a.clone(), b.clone());
    b.with_blocking(|_| ());
    a.color().post(move || tx.send(when((&a2, &b2)).try_with(|(a, b)| *a + *b)).unwrap());
    assert_eq!(rx.recv_timeout(LONG).unwrap(), Ok(3));
}

#[test]
fn c4_shutdown_drops_what_waits_and_runs_its_destructors() {
    struct Counted(Arc<AtomicU64>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    for workers in [1, 2, 4] {
        let runtime = runtime(workers);
        let dropped = Arc::new(AtomicU64::new(0));
        let colors: Vec<Color> = (0..5).map(|_| runtime.handle().new_color()).collect();
        let gates: Vec<_> = colors.iter().take(workers).map(occupy).collect();
        for n in 0..100usize {
            let counted = Counted(dropped.clone());
            when((&colors[n % 5], &colors[(n + 1) % 5])).post(move |_| drop(counted));
        }
        let opener = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            gates.iter().for_each(|gate| gate.open());
        });
        drop(runtime);
        opener.join().unwrap();
        // After the end, too.
        let counted = Counted(dropped.clone());
        when((&colors[0], &colors[1])).post(move |_| drop(counted));
        drop(colors);
        let deadline = std::time::Instant::now() + LONG;
        while dropped.load(SeqCst) < 101 {
            assert!(std::time::Instant::now() < deadline, "{} of 101 were dropped", dropped.load(SeqCst));
            std::thread::yield_now();
        }
    }
}

#[test]
fn c4_a_priority_counts_for_all_colors() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let gate = occupy(&Color::new());
    let (tx, seen) = collector();
    let (low, a, b) = (Color::new(), Color::new(), Color::new());
    let sender = tx.clone();
    low.post(move || sender.send("low").unwrap());
    when((&a, &b)).priority(Priority::HIGHEST).post(move |_| tx.send("high").unwrap());
    gate.open();
    assert_eq!(seen.all(), ["high", "low"]);
}

#[test]
fn c4_another_executor_can_wait_for_a_set() {
    let runtime = runtime(2);
    let (a, b) = {
        let _entered = runtime.enter();
        (Colored::new(0), Colored::new(0))
    };
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (a, b) = (a.clone(), b.clone());
            std::thread::spawn(move || {
                for _ in 0..200 {
                    block_on(when((&a, &b)).with(|(a, b)| {
                        *a += 1;
                        *b += 1;
                    }));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(a.with_blocking(|a| *a), 800);
}

#[test]
fn c4_tasks_that_wait_for_each_others_colors_get_out() {
    for workers in [2, 4] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let colors = [Color::new(), Color::new()];
        let states = colors.each_ref().map(|color| Colored::with_color(0u64, color));
        let tasks: Vec<_> = (0..16usize)
            .map(|n| {
                let (mine, other) = (states[n % 2].clone(), states[(n + 1) % 2].clone());
                colors[n % 2].spawn(async move {
                    for round in 0..100 {
                        other.with(|other| *other += 1).await;
                        when((&other, &mine)).post(|(other, mine)| std::mem::swap(other, mine));
                        if round % 4 == 0 {
                            other.read(|other| std::hint::black_box(*other)).await;
                            yield_now().await;
                        }
                    }
                })
            })
            .collect();
        runtime.block_on(async {
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(when(&states).with_blocking(|states| *states[0] + *states[1]), 1600);
    }
}
