//! The threads that post from outside, and block while they wait.

use super::book::Kind;
use super::lane::{Entry, Mode, be_outside_thread};
use super::life::Life;
use super::ops::act;
use super::sets::{self, Members};
use super::state::State;
use super::tasks::any_wait;
use super::token::Token;
use crate::rng::Rng;
use dapple_sched::block_on;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Runs the `index`-th of these threads until the end.
pub(crate) fn run(life: &Arc<Life>, index: usize, seed: u64) {
    be_outside_thread(index, life.plan.lanes());
    let _entered = life.handle.enter();
    let mut rng = Rng::new(seed);
    while life.is_open() {
        if life.is_full() {
            std::thread::sleep(Duration::from_micros(rng.range(20, 200)));
        }
        // An inline panic comes back to its caller.
        if catch_unwind(AssertUnwindSafe(|| step(life, &mut rng))).is_err() {
            life.book.panics.caught.fetch_add(1, Relaxed);
        }
    }
}

fn step(life: &Arc<Life>, rng: &mut Rng) {
    match rng.below(24) {
        0 => with_blocking(life, life.pick_state(rng), rng),
        1 => read_blocking(life.pick_state(rng), rng),
        2 => sets::with_blocking(life, rng),
        3 => glance(life, rng),
        4 => {
            if let Some(task) = life.bag.take_task(rng) {
                if rng.once_in(4) {
                    task.abort();
                }
                if rng.once_in(2) && !task.endless {
                    life.joined(block_on(task.handle));
                }
            }
        }
        5 => drop(life.bag.take_bell(rng)),
        _ if !life.is_full() => act(life, rng, rng.clone().below(5) as u8),
        _ => {}
    }
}

fn with_blocking(life: &Life, state: &State, rng: &mut Rng) {
    let token = Token::new(&state.lane, Kind::WithBlocking);
    state.state.with_blocking(|value| {
        token.run(Mode::Write, Entry::Inline, || {
            if life.panics(rng) {
                value.tear();
            }
            value.write(rng);
        });
    });
}

fn read_blocking(state: &State, rng: &mut Rng) {
    let token = Token::new(&state.lane, Kind::ReadBlocking);
    state.state.read_blocking(|value| token.run(Mode::Read, Entry::Inline, || value.read(rng)));
}

/// Starts a wait, polls it once, and drops it: nothing must stay held for it.
fn glance(life: &Life, rng: &mut Rng) {
    let members = Members::draw(life, rng);
    let mut wait = pin!(any_wait(life, &members, rng));
    if rng.once_in(2) {
        block_on(wait);
    } else if wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {
        std::thread::yield_now();
    }
}
