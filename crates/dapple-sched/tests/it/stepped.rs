//! Runtimes with workers that the test steps itself.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use dapple_sched::environment::Simulated;
use dapple_sched::{Color, Colored, Runtime, SeededRandom, Step, Stepped, spawn, yield_now};

/// Steps any worker that is awake, in an order from the seed, until all sleep.
fn run(runtime: &mut Stepped, mut seed: u32) -> Vec<(usize, Step, u64)> {
    let mut trace = Vec::new();
    loop {
        let awake: Vec<usize> = (0..runtime.workers()).filter(|&worker| runtime.is_awake(worker)).collect();
        if awake.is_empty() {
            return trace;
        }
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let worker = awake[(seed >> 16) as usize % awake.len()];
        let step = runtime.step(worker);
        trace.push((worker, step, runtime.turns(worker)));
    }
}

/// Colors, states and tasks of all kinds, on four workers.
fn busy(seed: u32, policed: bool) -> (Vec<(usize, Step, u64)>, Vec<u64>) {
    let mut world = Simulated::new(SystemTime::UNIX_EPOCH, seed.into());
    world.set_noise(Duration::from_micros(5));
    world.around(|| {
        let mut builder = Runtime::builder().workers(4);
        if policed {
            builder = builder.policy(move |worker| Box::new(SeededRandom::new(u64::from(seed) + worker as u64)));
        }
        let mut runtime = builder.build_stepped(seed.into()).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let entered = runtime.handle().enter();
        let states: Vec<_> = (0..8).map(|_| Colored::new(0_u64)).collect();
        for number in 0..40_u64 {
            let (states, order) = (states.clone(), order.clone());
            let _detached = spawn(async move {
                for round in 0..10 {
                    let at = (number + round * 3) as usize % states.len();
                    states[at].with(|count| *count += 1).await;
                    yield_now().await;
                }
                order.lock().unwrap().push(number);
            });
            Color::new().post(|| {});
        }
        drop(entered);
        let trace = run(&mut runtime, seed);
        assert_eq!(runtime.handle().stats().tasks_live, 0);
        let order = order.lock().unwrap().clone();
        assert_eq!(order.len(), 40);
        (trace, order)
    })
}

#[test]
fn a_seed_decides_everything() {
    for policed in [false, true] {
        let first = busy(7, policed);
        assert_eq!(first, busy(7, policed), "policed: {policed}");
        assert_ne!(first.0, busy(8, policed).0, "policed: {policed}");
        assert!(first.0.iter().any(|(worker, ..)| *worker > 0), "others than the first worker have run");
    }
}

#[test]
fn a_post_wakes_a_worker_that_sleeps_and_no_other() {
    let mut runtime = Runtime::builder().workers(3).build_stepped(1).unwrap();
    run(&mut runtime, 1);
    runtime.handle().default_color().post(|| {});
    assert_eq!((0..3).filter(|&worker| runtime.is_awake(worker)).count(), 1);
    run(&mut runtime, 1);
    runtime.wake(2);
    assert!(runtime.is_awake(2));
    assert_eq!(runtime.step(2), Step::Sleeps, "there was nothing");
}

#[test]
fn a_panic_ends_its_callback_only() {
    let mut runtime = Runtime::builder().workers(1).panic_handler(|_| {}).build_stepped(1).unwrap();
    let color = runtime.handle().new_color();
    color.post(|| panic!("on purpose"));
    let after = color.spawn(async { 7 });
    run(&mut runtime, 1);
    assert!(after.is_finished());
}

#[test]
fn stopping_drops_what_waits() {
    let mut runtime = Runtime::builder().workers(2).build_stepped(1).unwrap();
    let held = Arc::new(());
    let inside = held.clone();
    let _detached = runtime.handle().spawn(async move {
        let _inside = inside;
        std::future::pending::<()>().await;
    });
    run(&mut runtime, 1);
    let report = runtime.stop();
    assert_eq!((report.tasks_dropped, report.workers_stuck), (1, 0));
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(!runtime.is_awake(0));
}
