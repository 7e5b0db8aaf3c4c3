//! Transactions under random schedules: random programs with a history that must have an order, and
//! scenes of tasks that wait. Larger than loom can search; shuttle's memory is sequentially
//! consistent.
//!
//! `RUSTFLAGS="--cfg dapple_shuttle" cargo test -p dapple-stm --release --test shuttle`
//!
//! A comment at each model names the deliberate bugs that it has caught; `tests/mutations.txt` has
//! them as patches, which `cargo xtask mutants` applies. A failure prints its schedule, which also
//! determines the program: set `DAPPLE_SHUTTLE_REPLAY` to it and run the same test.
//! `DAPPLE_SHUTTLE_PERCENT` scales the number of schedules.

#![cfg(dapple_shuttle)]

mod history;
mod scenes;

use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Runs a model under this many schedules, half of them random, half with few, well-placed
/// preemptions.
fn check(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    if let Ok(schedule) = std::env::var("DAPPLE_SHUTTLE_REPLAY") {
        return shuttle::replay(model, &schedule);
    }
    let percent = std::env::var("DAPPLE_SHUTTLE_PERCENT").map_or(100, |text| text.parse().expect("a number"));
    let half = (schedules * percent).div_ceil(200);
    let model = Arc::new(model);
    let random = model.clone();
    let started = std::time::Instant::now();
    let config = Config::default();
    let ran = Runner::new(RandomScheduler::new(half), config.clone()).run(move || random())
        + Runner::new(PctScheduler::new(3, half), config).run(move || model());
    println!("{ran} schedules in {:?}", started.elapsed());
}
