//! A short sequential model of the scheduler, as oracle: random programs run on the real one, and
//! the model must be able to replay their observed order.
//!
//! Programs have posts, of one color or of several, for writing and for reading, with priorities, a
//! capacity, cancels and panics; holds in line, even inside of callbacks that hold their colors;
//! waits that begin anywhere, with wakers that panic, and are then dropped or moved to a task; and
//! tasks that wait and are aborted.
//!
//! The model knows that a wait is accepted in one step, at some time after the task's earlier
//! steps. It leaves open that an outrun task asks again. It does not know when a task is polled.
//!
//! Seen to catch, as in `mutations.txt`: an inbox that is drained in the wrong order; a set that is
//! accepted in parts; a color that has a turn while it is held; a lost callback; a waiter that
//! loses its place.

mod model;
mod program;
mod real;

use dapple_sched::{Color, Runtime, SeededRandom};
use proptest::prelude::*;

use self::model::Model;
use self::program::{COLORS, Kind, Op, agent, number};
use self::real::{Event, Fate, World};
use crate::support::collector;

/// `seed`: of a policy that picks colors at random.
fn check(workers: usize, mut program: Vec<Vec<Op>>, capacity: Option<usize>, seed: Option<u64>) {
    let ops = program.iter_mut().fold(0, |count, ops| number(ops, count));
    let mut builder = Runtime::builder().workers(workers).panic_handler(|_| ());
    if let Some(seed) = seed {
        builder = builder.policy(move |worker| Box::new(SeededRandom::new(seed ^ worker as u64)));
    }
    let runtime = builder.build().unwrap();
    let _entered = runtime.enter();
    let colors: Vec<Color> = (0..COLORS).map(|_| Color::new()).collect();
    // Only the first color is ever full.
    colors[0].set_capacity(capacity);
    let world = World::new(colors, ops);
    let (alive, all_over) = collector();
    let handle = runtime.handle();
    std::thread::scope(|scope| {
        for ops in &program {
            let (world, alive) = (&world, alive.clone());
            scope.spawn(move || {
                // Fresh colors of tasks must belong to this runtime, whatever others there are in
                // the process.
                let _entered = handle.enter();
                world.act(ops, &[], &alive);
            });
        }
    });
    drop(alive);
    all_over.all();

    let fates = world.fates();
    let seen: Vec<Vec<Event>> = world.seen.iter().map(|seen| seen.lock().unwrap().clone()).collect();
    assert!(world.wrong.lock().unwrap().is_empty(), "{:?} in {program:#?}", world.wrong);
    let model = Model::replay(&program, &seen, &fates);
    if let Some(stuck) = model.stuck() {
        panic!("no sequential execution of {program:#?} runs {seen:?} with fates {fates:?}:\n{stuck}");
    }
    for color in 0..COLORS {
        let account = &world.account[color];
        let poisoned = account.is_poisoned();
        account.clear_poison();
        assert_eq!((account.with_blocking(|uses| *uses), poisoned), model.account[color]);
    }
    let panics: u64 = runtime.handle().stats().workers.iter().map(|worker| worker.panics).sum();
    let poisoned = model.account.iter().filter(|(_, poisoned)| *poisoned).count() as u64;
    // Wakers that panic are counted as well.
    let bombs = program.iter().flatten().any(Op::has_bomb);
    assert!(panics == poisoned || (bombs && panics > poisoned), "{panics} panics");
    program.iter().for_each(|ops| check_fates(ops, &fates, capacity));
}

/// Only operations that may be refused are refused.
fn check_fates(ops: &[Op], fates: &[Fate], capacity: Option<usize>) {
    for op in ops {
        let may_be_full = op.kind == Kind::TryPost && op.parts[0].color == 0 && capacity.is_some();
        match fates[op.id] {
            Fate::Refused => assert!(may_be_full || op.kind == Kind::Hold, "{op:?} was refused"),
            Fate::Canceled => {
                let bomb = matches!(op.kind, Kind::Moved { bomb: Some(_) });
                assert!(bomb || matches!(op.kind, Kind::Cancel | Kind::Glance { .. }), "{op:?} was canceled");
            }
            Fate::Runs => {
                assert!(!may_be_full || capacity != Some(0), "{op:?} went over the capacity");
                check_fates(&op.inner, fates, capacity);
            }
            // An aborted task did not reach that step; the model has checked the others.
            Fate::Unknown => {}
        }
    }
}

/// Miri runs few cases, and lets no test read the file with the earlier failures.
fn config() -> ProptestConfig {
    let mut config = ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 });
    if cfg!(miri) {
        config.failure_persistence = None;
    }
    config
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn random_programs_have_a_sequential_execution(
        workers in 1usize..9,
        program in prop::collection::vec(agent(false), 1..4),
        capacity in prop::option::of(0usize..3),
        seed in prop::option::of(any::<u64>()),
    ) {
        check(workers, program, capacity, seed);
    }

    /// With tasks that wait and are aborted.
    #[test]
    fn random_programs_with_tasks_have_a_sequential_execution(
        workers in 1usize..9,
        program in prop::collection::vec(agent(true), 1..4),
        capacity in prop::option::of(0usize..3),
        seed in prop::option::of(any::<u64>()),
    ) {
        check(workers, program, capacity, seed);
    }
}
