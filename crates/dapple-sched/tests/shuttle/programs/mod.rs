//! Random programs, a different one in each schedule: at least three colors on three workers,
//! posted to from outside, by callbacks and by tasks, with sets, readers, waits, cancels, aborts,
//! panics, thefts and a shutdown.
//!
//! [`program`] makes them, [`run`] runs them, [`history`] checks the observations: a holder of a
//! color for writing is alone in it (C1), an agent's posts to a color are there in their order,
//! sets included (C2, C4), and every accepted callback runs once, or is dropped once if it was
//! canceled or the runtime stopped (C7).

mod history;
mod program;
mod run;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::support::{Running, check, finish_after};
use program::Program;
use run::World;

const WORKERS: usize = 3;

/// Runs one program; `stops` is whether the workers may be stopped in the middle of it.
fn run_one(stops: bool) {
    let program = Program::random(&mut thread_rng());
    let running = Running::start(WORKERS);
    let world = World::new(&running, &program);
    let monitor = thread::spawn({
        let model = running.model.clone();
        let victims: Vec<usize> = (0..4).map(|_| thread_rng().gen_range(0..WORKERS)).collect();
        move || {
            for victim in victims {
                model.mark_overdue(victim);
                thread::yield_now();
            }
        }
    });
    let agents: Vec<_> = program
        .agents
        .into_iter()
        .enumerate()
        .map(|(agent, ops)| {
            let world = world.clone();
            thread::spawn(move || world.act(agent, &ops))
        })
        .collect();
    let model = if stops {
        for _ in 0..thread_rng().gen_range(0..40) {
            thread::yield_now();
        }
        let model = running.stop();
        agents.into_iter().for_each(|agent| agent.join().unwrap());
        model
    } else {
        agents.into_iter().for_each(|agent| agent.join().unwrap());
        world.wait_until_all_is_over();
        running.stop()
    };
    monitor.join().unwrap();
    let panics = world.end(stops);
    finish_after(&model, panics);
}

// Everything accepted runs, or a thread of the model waits for ever.
//
// Caught, in the shipped code: a granted read that lost its mode, and was returned as a hold
// (deadlock, overtaken callbacks); an aborted task and its granted wait that kept each other alive
// (a color that was not freed).
#[test]
fn programs_run_to_their_end() {
    check(60_000, || run_one(false));
}

// The workers are stopped somewhere in the middle.
#[test]
fn programs_are_stopped() {
    check(60_000, || run_one(true));
}
