//! Random programs of nested holds and futures, a different one in each schedule; `tests/nested`
//! describes them. Without panics, which shuttle's locks do not survive.

use std::task::Waker;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::nested::{Env, Op, Program, World};
use crate::support::{Running, check, finish};

fn run_one(agents: usize, menu: &[Op]) {
    let program = Program::random(agents, menu, &mut |sides| thread_rng().gen_range(0..sides));
    let running = Running::start(2);
    let env = Env {
        pause: thread::yield_now,
        patience: Duration::MAX,
        beside: |work| thread::spawn(work).join().unwrap(),
        bomb: |_| Waker::noop().clone(),
        unwinds: false,
        stop: Box::new(|| ()),
    };
    let world = World::new(running.model.handle(), env);
    let agents: Vec<_> = program
        .agents
        .iter()
        .cloned()
        .map(|steps| {
            let world = world.clone();
            thread::spawn(move || world.run(&steps))
        })
        .collect();
    agents.into_iter().for_each(|agent| agent.join().unwrap());
    let wrong = world.end(&program);
    assert!(wrong.is_empty(), "{program:?}\n{wrong:#?}");
    // If programs forget, the world keeps what they kept.
    let forgot = program.forgets || world.forgot();
    drop(world);
    let model = running.stop();
    if !forgot {
        finish(&model);
    }
}

macro_rules! programs {
    ($($name:ident: $agents:expr, $schedules:expr, [$($op:ident)+];)+) => {$(
        #[test]
        fn $name() {
            check($schedules, || run_one($agents, &[$(Op::$op),+]));
        }
    )+};
}

programs! {
    holds_in_holds: 2, 10_000, [Try Try Try Post Beside Reads];
    futures_in_holds: 2, 20_000, [Try Try Start Start Poll Poll Poll Post Task Task Beside Reads];
    waits_that_are_dropped: 2, 10_000, [Try Try Start Poll Drop Drop Task Beside Reads];
    forgotten_futures: 2, 10_000, [Try Start Poll Forget Post Task Beside Reads];
}
