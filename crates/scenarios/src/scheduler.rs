//! The invariants of the scheduler, on four workers that the seed steps.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dapple_sched::{Color, Colored, environment, spawn, when, yield_now};
use dapple_sim::Simulation;
use dapple_sim::time::sleep;

use crate::Scenario;

pub(crate) const ORDER: Scenario = Scenario {
    name: "order",
    holds: "callbacks of a color run once, one at a time, in the order of their posts (C1, C2, C3, C7)",
    setup: |sim| order(sim, false),
    bugs: &[("callbacks that belong together have no color in common", |sim| order(sim, true))],
};

pub(crate) const SETS: Scenario = Scenario {
    name: "sets",
    holds: "a callback of several colors holds all of them at once (C4)",
    setup: |sim| sets(sim, false),
    bugs: &[("two states are changed one after the other", |sim| sets(sim, true))],
};

pub(crate) const READERS: Scenario = Scenario {
    name: "readers",
    holds: "a reader sees no writer's half-done work (C5)",
    setup: |sim| readers(sim, false),
    bugs: &[("a writer does its work in two steps", |sim| readers(sim, true))],
};

pub(crate) const WAKES: Scenario = Scenario {
    name: "wakes",
    holds: "no wake-up is lost, also where all workers sleep (C6, C7)",
    setup: wakes,
    bugs: &[],
};

pub(crate) const PANICS: Scenario = Scenario {
    name: "panics",
    holds: "a panic ends its task alone, and poisons the state that it held (C8)",
    setup: panics,
    bugs: &[],
};

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

/// Callbacks that have run in a color: the number of the poster, and their own.
type Order = Mutex<Vec<(usize, u64)>>;

const COLORS: usize = 6;
const POSTERS: usize = 8;

fn order(sim: &mut Simulation, without_color: bool) {
    on_four_workers(sim, move || async move {
        let colors: Vec<_> = (0..COLORS).map(|at| if at == 0 { Color::DEFAULT } else { Color::new() }).collect();
        let ran: Arc<Vec<(AtomicBool, Order)>> = Arc::new((0..COLORS).map(|_| Default::default()).collect());
        let posters: Vec<_> = (0..POSTERS)
            .map(|poster| {
                let (colors, ran) = (colors.clone(), ran.clone());
                Color::new().spawn(async move {
                    for number in 0..40 {
                        let at = some(COLORS as u64);
                        let ran = ran.clone();
                        let color = if without_color { Color::new() } else { colors[at].clone() };
                        color.post(move || {
                            let (in_use, order) = &ran[at];
                            assert!(!in_use.swap(true, Relaxed), "two callbacks of a color at a time");
                            order.lock().unwrap_or_else(PoisonError::into_inner).push((poster, number));
                            in_use.store(false, Relaxed);
                        });
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
        // Time moves when all that was posted has run.
        sleep(Duration::from_secs(1)).await;
        let orders: Vec<_> = ran.iter().map(|(_, order)| order.lock().unwrap().clone()).collect();
        assert_eq!(orders.iter().map(Vec::len).sum::<usize>(), POSTERS * 40, "each runs once");
        for of_color in orders {
            for poster in 0..POSTERS {
                let numbers = of_color.iter().filter(|(by, _)| *by == poster).map(|(_, number)| number);
                assert!(numbers.is_sorted(), "not in order: {of_color:?}");
            }
        }
    });
}

const ACCOUNTS: usize = 6;

fn sets(sim: &mut Simulation, apart: bool) {
    on_four_workers(sim, move || async move {
        let accounts: Vec<Colored<i64>> = (0..ACCOUNTS).map(|_| Colored::new(100)).collect();
        let tasks: Vec<_> = (0..12)
            .map(|_| {
                let accounts = accounts.clone();
                spawn(async move {
                    for _ in 0..15 {
                        let from = some(ACCOUNTS as u64);
                        let to = (from + 1 + some(ACCOUNTS as u64 - 1)) % ACCOUNTS;
                        let (amount, pair) = (some(50) as i64, (&accounts[from], &accounts[to]));
                        if apart {
                            let before = pair.0.with(|from| *from).await;
                            yield_now().await;
                            pair.0.with(|from| *from = before - amount).await;
                            pair.1.with(|to| *to += amount).await;
                        } else {
                            when(pair)
                                .with(|(from, to)| {
                                    *from -= amount;
                                    *to += amount;
                                })
                                .await;
                        }
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
        assert_eq!(sum, 600, "money was made or lost");
    });
}

fn readers(sim: &mut Simulation, in_steps: bool) {
    on_four_workers(sim, move || async move {
        let pair = Colored::new((0_u64, 0_u64));
        let tasks: Vec<_> = (0..10_u64)
            .map(|number| {
                let pair = pair.clone();
                spawn(async move {
                    for _ in 0..20 {
                        if number % 3 != 0 {
                            pair.read(|pair| assert_eq!(pair.0, pair.1, "half done")).await;
                        } else if in_steps {
                            pair.with(|pair| pair.0 += 1).await;
                            yield_now().await;
                            pair.with(|pair| pair.1 += 1).await;
                        } else {
                            pair.with(|pair| *pair = (pair.0 + 1, pair.1 + 1)).await;
                        }
                        if some(3) == 0 {
                            yield_now().await;
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
}

fn wakes(sim: &mut Simulation) {
    on_four_workers(sim, || async {
        // Each hop goes to another color, now and then after all workers had the time to fall asleep.
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
        assert_eq!(hops.load(Relaxed), 60, "a wake-up was lost");
    });
}

fn panics(sim: &mut Simulation) {
    on_four_workers(sim, || async {
        let states: Vec<Colored<u32>> = (0..3).map(|_| Colored::new(0)).collect();
        let tasks: Vec<_> = (0..6)
            .map(|number| {
                let state = states[number % 3].clone();
                spawn(async move {
                    yield_now().await;
                    state
                        .with(|count| {
                            *count += 1;
                            if number < 3 {
                                // Without the hook, which would print it.
                                std::panic::resume_unwind(Box::new("on purpose"));
                            }
                        })
                        .await;
                })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            let ended = task.await;
            assert!(ended.is_err() || number >= 3, "a panic was lost");
        }
        for state in &states {
            assert!(state.is_poisoned());
            state.clear_poison();
            assert!(state.with(|count| *count).await >= 1);
        }
    });
}
