//! The invariants of the scheduler, on workers that the seed steps.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_sched::{Color, Colored, environment, spawn, when, yield_now};
use dapple_sim::time::sleep;
use dapple_sim::{Simulation, check};

/// Callbacks that have run in a color: the number of the poster, and their own.
type Order = Mutex<Vec<(usize, u64)>>;

/// A client of four workers.
fn on_four_workers<F>(sim: &mut Simulation, program: impl Fn() -> F + 'static)
where
    F: Future<Output = ()> + Send + 'static,
{
    sim.workers(4);
    sim.client("client", program);
}

fn some(end: u64) -> usize {
    (environment::random() % end) as usize
}

/// Whether a color is in use; that it is not when it begins to be.
#[derive(Default)]
struct InUse(AtomicBool);

impl InUse {
    fn during<R>(&self, f: impl FnOnce() -> R) -> R {
        assert!(!self.0.swap(true, Relaxed), "two at a time");
        let done = f();
        self.0.store(false, Relaxed);
        done
    }
}

#[test]
fn c1_and_c2_one_at_a_time_and_in_order() {
    check("c1_c2", 40, |sim| {
        on_four_workers(sim, || async {
            let colors: Vec<_> = (0..6).map(|_| (Color::new(), Arc::new(InUse::default()))).collect();
            let order: Arc<Vec<Order>> = Arc::new((0..6).map(|_| Mutex::default()).collect());
            let posters: Vec<_> = (0..8)
                .map(|poster| {
                    let (colors, order) = (colors.clone(), order.clone());
                    Color::new().spawn(async move {
                        for number in 0..40 {
                            let at = some(6);
                            let ((color, in_use), order) = (colors[at].clone(), order.clone());
                            color.post(move || in_use.during(|| order[at].lock().unwrap().push((poster, number))));
                            if some(4) == 0 {
                                yield_now().await;
                            }
                        }
                    })
                })
                .collect();
            for poster in posters {
                poster.await.unwrap();
            }
            for (color, _) in &colors {
                color.spawn(async {}).await.unwrap();
            }
            let all: usize = order.iter().map(|order| order.lock().unwrap().len()).sum();
            assert_eq!(all, 320, "C7: each runs once");
            for of_color in order.iter() {
                for poster in 0..8 {
                    let of_color = of_color.lock().unwrap();
                    let numbers: Vec<u64> =
                        of_color.iter().filter(|(by, _)| *by == poster).map(|(_, number)| *number).collect();
                    assert!(numbers.is_sorted(), "C2: {numbers:?}");
                }
            }
        });
    });
}

#[test]
fn c3_a_callback_without_a_color_has_the_default_one() {
    check("c3", 20, |sim| {
        on_four_workers(sim, || async {
            let in_use = Arc::new(InUse::default());
            let count = Arc::new(AtomicU64::new(0));
            for _ in 0..100 {
                let (in_use, count) = (in_use.clone(), count.clone());
                Color::DEFAULT.post(move || in_use.during(|| _ = count.fetch_add(1, Relaxed)));
            }
            assert!(!spawn(async { Color::current().is_default() }).await.unwrap());
            Color::DEFAULT.spawn(async {}).await.unwrap();
            assert_eq!(count.load(Relaxed), 100);
        });
    });
}

#[test]
fn c4_sets_are_atomic_and_end() {
    check("c4", 40, |sim| {
        on_four_workers(sim, || async {
            let accounts: Vec<Colored<i64>> = (0..6).map(|_| Colored::new(100)).collect();
            let tasks: Vec<_> = (0..12)
                .map(|_| {
                    let accounts = accounts.clone();
                    spawn(async move {
                        for _ in 0..15 {
                            let (from, by) = (some(6), 1 + some(5));
                            let to = (from + by) % 6;
                            let amount = some(50) as i64;
                            when((&accounts[from], &accounts[to]))
                                .with(|(from, to)| {
                                    *from -= amount;
                                    *to += amount;
                                })
                                .await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let mut sum = 0;
            for account in &accounts {
                sum += account.with(|balance| *balance).await;
            }
            assert_eq!(sum, 600);
        });
    });
}

#[test]
fn c5_readers_see_no_writer() {
    check("c5", 30, |sim| {
        on_four_workers(sim, || async {
            let pair = Colored::new((0_u64, 0_u64));
            let tasks: Vec<_> = (0..10_u64)
                .map(|number| {
                    let pair = pair.clone();
                    spawn(async move {
                        for _ in 0..20 {
                            if number % 3 == 0 {
                                pair.with(|pair| *pair = (pair.0 + 1, pair.1 + 1)).await;
                            } else {
                                pair.read(|pair| assert_eq!(pair.0, pair.1)).await;
                            }
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(pair.with(|pair| *pair).await, (80, 80));
        });
    });
}

#[test]
fn c6_no_wake_up_is_lost() {
    check("c6", 40, |sim| {
        on_four_workers(sim, || async {
            // Each hop goes to another color, after all workers had the time to fall asleep.
            let colors: Arc<Vec<Color>> = Arc::new((0..5).map(|_| Color::new()).collect());
            let hops = Arc::new(AtomicUsize::new(0));
            for chain in 0..3 {
                let (colors, hops) = (colors.clone(), hops.clone());
                let _detached = spawn(async move {
                    for hop in 0..20 {
                        let hops = hops.clone();
                        colors[(chain + hop) % 5].spawn(async move { hops.fetch_add(1, Relaxed) }).await.unwrap();
                        if some(2) == 0 {
                            sleep(Duration::from_millis(1 + some(5) as u64)).await;
                        }
                    }
                });
            }
            // A lost one would leave a chain behind for ever: ten seconds are a thousand times what it takes.
            sleep(Duration::from_secs(10)).await;
            assert_eq!(hops.load(Relaxed), 60);
        });
    });
}

#[test]
fn c7_all_workers_take_part() {
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let inside = seen.clone();
    check("c7", 20, move |sim| {
        let seen = inside.clone();
        on_four_workers(sim, move || {
            let seen = seen.clone();
            async move {
                let tasks: Vec<_> = (0..64)
                    .map(|_| {
                        let seen = seen.clone();
                        spawn(async move {
                            for _ in 0..10 {
                                seen.lock().unwrap().insert(dapple_sched::Handle::current().worker_index());
                                yield_now().await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            }
        });
    });
    assert!(seen.lock().unwrap().len() >= 2, "only {:?} worked", seen.lock().unwrap());
}

thread_local! {
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

#[test]
fn c8_a_panic_ends_its_task_and_poisons_its_state() {
    check("c8", 10, |sim| {
        on_four_workers(sim, || async {
            let state = Colored::new(0);
            let inside = state.clone();
            let failed = spawn(async move {
                inside
                    .with(|count| {
                        *count = 1;
                        PANICS.set(PANICS.get() + 1);
                        std::panic::resume_unwind(Box::new("on purpose"));
                    })
                    .await
            });
            assert!(failed.await.is_err());
            assert!(state.is_poisoned());
            state.clear_poison();
            assert_eq!(state.with(|count| *count).await, 1);
        });
    });
}
