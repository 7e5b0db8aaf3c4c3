//! Random programs of nested holds and futures, on real threads (`tests/nested` describes them),
//! and random programs of guards of entered runtimes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_sched::{EnterGuard, Handle, Runtime};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};

use crate::forget::forget;
use crate::nested::{Env, Op, Program, World};
use crate::nested_bomb;

/// Runs the program that these dice choose; zeros follow.
fn check(agents: usize, menu: &[Op], dice: &[u8]) -> Result<(), TestCaseError> {
    let mut dice = dice.iter();
    let program = Program::random(agents, menu, &mut |sides| usize::from(*dice.next().unwrap_or(&0)) % sides);
    let runtime = Runtime::builder().workers(2).panic_handler(|_| ()).build().unwrap();
    let handle = runtime.handle().clone();
    let runtime = Arc::new(Mutex::new(Some(runtime)));
    let env = Env {
        pause: std::thread::yield_now,
        patience: Duration::from_secs(20),
        beside: |work| std::thread::spawn(work).join().unwrap(),
        bomb: nested_bomb::waker,
        unwinds: true,
        stop: Box::new({
            let runtime = runtime.clone();
            move || {
                let runtime = runtime.lock().unwrap().take();
                if let Some(runtime) = runtime {
                    runtime.shutdown(Duration::ZERO);
                }
            }
        }),
    };
    let world = World::new(handle, env);
    std::thread::scope(|scope| {
        for steps in &program.agents {
            let world = &world;
            scope.spawn(move || world.run(steps));
        }
    });
    let wrong = world.end(&program);
    prop_assert!(wrong.is_empty(), "{program:?}\n{wrong:#?}");
    Ok(())
}

/// `DAPPLE_NESTING_PERCENT=10000` runs a hundred times as many programs.
fn percent() -> u32 {
    std::env::var("DAPPLE_NESTING_PERCENT").map_or(100, |text| text.parse().expect("a number"))
}

/// Dice of programs that random ones hardly ever reach, for the steps of `futures_in_holds`. While
/// the agent holds a color, a task begins to wait for it, alone or with another one. In the turn
/// that reaches the task, a closure with other states of these colors polls that wait until it
/// resolves: the colors have to stay with the closure.
const SELDOM: &[&[u8]] = &[
    &[1, 0, 0, 0, 1, 8, 5, 2, 3, 0, 0, 0, 3, 0, 1, 0, 1, 5, 0, 3, 1, 0],
    &[1, 0, 0, 0, 1, 8, 5, 2, 3, 0, 1, 6, 0, 3, 0, 1, 1, 7, 1, 5, 0, 3, 1, 0],
];

/// Dice for programs: any; if some are given, also these with a few of them changed.
fn dice(seldom: &'static [&'static [u8]]) -> BoxedStrategy<Vec<u8>> {
    let any_dice = prop::collection::vec(any::<u8>(), 0..120);
    if seldom.is_empty() {
        return any_dice.boxed();
    }
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let changed = (prop::sample::select(seldom), changes).prop_map(|(dice, changes)| {
        let mut dice = dice.to_vec();
        changes.into_iter().for_each(|(at, die)| *at.get_mut(&mut dice) = die);
        dice
    });
    prop_oneof![3 => any_dice, 1 => changed].boxed()
}

/// Runs so many programs of these steps.
fn programs(agents: usize, cases: u32, menu: &[Op], seldom: &'static [&'static [u8]]) {
    let config = ProptestConfig {
        cases: cases * percent() / 100,
        max_shrink_time: 60_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if let Err(error) = TestRunner::new(config).run(&dice(seldom), |dice| check(agents, menu, &dice)) {
        let TestError::Fail(why, dice) = error else { panic!("{error}") };
        panic!("{why}\nThe dice: {dice:?}");
    }
}

macro_rules! programs {
    ($($name:ident: $agents:expr, $cases:expr, [$($op:ident)+], $seldom:expr;)+) => {$(
        #[test]
        fn $name() {
            programs($agents, $cases, &[$(Op::$op),+], $seldom);
        }
    )+};
}

programs! {
    holds_in_holds: 1, 512, [Try Try Try Post Beside Reads], &[];
    futures_in_holds: 1, 1024, [Try Try Start Start Poll Poll Poll Task Task Beside], SELDOM;
    waits_that_are_dropped: 1, 512, [Try Try Start Drop Drop Beside], &[];
    forgotten_futures: 2, 256, [Try Start Poll Forget Post Task Beside], &[];
    foreign_code_that_panics: 1, 512, [Try Try Start Poll Post Beside Panic Bombs], &[];
    panics_in_a_stopped_runtime: 1, 512, [Try Try Start Poll Post Beside Stop Panic Bombs], &[];
    all_that_meets_in_closures: 3, 512, [Try Try Start Poll Poll Drop Post Task Beside Panic Bombs Reads], &[];
}

/// Guards are made, dropped and forgotten in any order: the newest one that is left decides.
fn guards(runtimes: &[Runtime], dice: Vec<(u8, usize)>) -> Result<(), TestCaseError> {
    // Not the guard of that thread: it was forgotten, and so stays.
    let mut entered: Vec<(Option<EnterGuard>, usize)> = Vec::new();
    for (what, which) in dice {
        let at = which % entered.len().max(1);
        match what {
            0 if entered.get(at).is_some_and(|(guard, _)| guard.is_some()) => drop(entered.remove(at)),
            1 if at < entered.len() => forget(entered[at].0.take()),
            _ => entered.push((Some(runtimes[which % runtimes.len()].enter()), which % runtimes.len() + 1)),
        }
        let current = Handle::of_thread().map(|handle| handle.workers());
        prop_assert_eq!(current, entered.last().map(|(_, workers)| *workers));
    }
    Ok(())
}

#[test]
fn guards_in_any_order() {
    let runtimes = [1, 2, 3].map(|workers| Runtime::builder().workers(workers).build().unwrap());
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let dice = prop::collection::vec((0u8..4, 0usize..12), 0..24);
    // Each has a thread, because the forgotten guards stay entered.
    let run = |dice| std::thread::scope(|scope| scope.spawn(|| guards(&runtimes, dice)).join().unwrap());
    if let Err(error) = TestRunner::new(config).run(&dice, run) {
        panic!("{error}");
    }
}
