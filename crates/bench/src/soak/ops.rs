//! The operations that do not wait, for a callback, a task or any other thread.

use super::book::{Excuse, Kind};
use super::lane::{Entry, Lane, Mode};
use super::life::{Life, Wrapped, cancel};
use super::state::{State, panic_on_purpose, work};
use super::token::{KeptToken, Token};
use super::{sets, tasks};
use crate::rng::Rng;
use dapple_sched::{Color, Priority, TryWithError};
use std::hint::black_box;
use std::sync::Arc;

/// The number of operations.
pub(crate) const COUNT: usize = 19;

/// Does one operation, drawn by the weights of the plan. Its consequences may do more, `fuel`
/// levels deep.
pub(crate) fn act(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    match draw(life, rng) {
        0 => post(life, rng, fuel),
        1 => post_large(life, rng, fuel),
        2 => post_ranked(life, rng, fuel),
        3 => try_post(life, rng, fuel),
        4 => post_cancelable(life, rng, fuel),
        5 => cancel_one(life, rng),
        6 => wrap(life, rng),
        7 => call(life, rng, fuel),
        8 => post_to_state(life, life.pick_state(rng), rng, fuel),
        9 => post_read(life, life.pick_state(rng), rng, fuel),
        10 => sets::post(life, rng, fuel),
        11 => sets::try_with(life, rng),
        12 => try_with(life, life.pick_state(rng), rng),
        13 => try_read(life, life.pick_state(rng), rng),
        14 => tasks::start(life, rng, fuel),
        15 => tasks::start_background(life, rng),
        16 => abort_one(life, rng),
        17 => limit_one(life, rng),
        _ => pass_by(life, rng, fuel),
    }
}

fn draw(life: &Life, rng: &mut Rng) -> usize {
    let weights = &life.plan.weights;
    let mut left = rng.below(weights.iter().map(|weight| u64::from(*weight)).sum());
    let chosen = weights.iter().position(|weight| match left.checked_sub(u64::from(*weight)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    chosen.unwrap_or(0)
}

/// A seed for another item, with the fuel in its low byte, so that a closure with both stays small.
pub(crate) fn seed(rng: &mut Rng, fuel: u8) -> u64 {
    rng.draw() & !0xff | u64::from(fuel)
}

/// Reverses [`seed`].
pub(crate) fn unpack(seed: u64) -> (Rng, u8) {
    (Rng::new(seed), seed as u8)
}

/// The consequences of a callback: perhaps a panic, perhaps more operations.
pub(crate) fn follow(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    if life.panics(rng) {
        panic_on_purpose(&life.book);
    }
    if fuel > 0 && !life.is_full() {
        for _ in 0..rng.below(3) {
            act(life, rng, fuel - 1);
        }
    }
}

/// A plain callback.
fn run(token: Token, life: &Arc<Life>, seed: u64) {
    let lane = token.lane().clone();
    token.run(Mode::Write, Entry::Turn, || {
        let (mut rng, fuel) = unpack(seed);
        work(&mut rng);
        // A color of its own: this way takes no locked instruction.
        if fuel > 0 && rng.once_in(3) {
            post_to(life, &lane, &Color::current(), &mut rng, fuel - 1);
        }
        follow(life, &mut rng, fuel);
    });
}

fn post(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let (lane, color) = life.pick_color(rng);
    post_to(life, &lane, &color, rng, fuel);
}

fn post_to(life: &Arc<Life>, lane: &Arc<Lane>, color: &Color, rng: &mut Rng, fuel: u8) {
    let (life, seed) = (life.clone(), seed(rng, fuel));
    let token = Token::queued(lane, Kind::Post);
    color.post(move || run(token, &life, seed));
}

fn post_large(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let (lane, color) = life.pick_color(rng);
    let (life, seed) = (life.clone(), seed(rng, fuel));
    let ballast = [seed; 40];
    let token = Token::queued(&lane, Kind::Large);
    color.post(move || {
        if black_box(&ballast).iter().any(|item| *item != seed) {
            token.book().problem(|| "a large closure came damaged".to_owned());
        }
        run(token, &life, seed);
    });
}

fn post_ranked(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let (lane, color) = life.pick_color(rng);
    let (life, seed) = (life.clone(), seed(rng, fuel));
    let priority = Priority::new(rng.below(8) as u8);
    let token = Token::queued(&lane, Kind::Ranked);
    color.post_with(priority, move || run(token, &life, seed));
}

fn try_post(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let (lane, color) = life.pick_color(rng);
    let (own, seed) = (life.clone(), seed(rng, fuel));
    let token = Token::queued(&lane, Kind::TryPost);
    if let Err(refused) = color.try_post(move || run(token, &own, seed)) {
        drop(refused);
        life.book.excuse(Kind::TryPost, Excuse::Refused);
    }
}

fn post_cancelable(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let (lane, color) = life.pick_color(rng);
    let (own, seed) = (life.clone(), seed(rng, fuel));
    let token = Token::queued(&lane, Kind::Cancelable);
    let posted = color.post_cancellable(move || run(token, &own, seed));
    match rng.below(4) {
        0 => cancel(&posted, &life.book),
        1 => {}
        _ => life.bag.put_posted(posted, rng),
    }
}

fn cancel_one(life: &Life, rng: &mut Rng) {
    if let Some(posted) = life.bag.take_posted(rng) {
        cancel(&posted, &life.book);
    }
}

fn wrap(life: &Arc<Life>, rng: &mut Rng) {
    let (lane, color) = life.pick_color(rng);
    let (own, token) = (life.clone(), KeptToken::new(&lane, Kind::Wrap));
    let mut calls = 0u64;
    let callback = color.wrap_with(Priority::new(rng.below(8) as u8), move |(call, seed): (Token, u64)| {
        // One call at a time, so there is no lock.
        calls += 1;
        black_box((&token, calls));
        run(call, &own, seed);
    });
    life.bag.put_callback(Wrapped { callback, lane }, rng);
}

fn call(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    let Some(Wrapped { callback, lane }) = life.bag.take_callback(rng) else { return };
    for _ in 0..rng.range(1, 3) {
        let seed = seed(rng, fuel);
        callback.call((Token::queued(&lane, Kind::Call), seed));
    }
    if !rng.once_in(8) {
        life.bag.put_callback(Wrapped { callback, lane }, rng);
    }
}

fn post_to_state(life: &Arc<Life>, state: &State, rng: &mut Rng, fuel: u8) {
    let (life, seed) = (life.clone(), seed(rng, fuel));
    let token = Token::queued(&state.lane, Kind::StatePost);
    state.state.post(move |value| {
        token.run(Mode::Write, Entry::Turn, || {
            let (mut rng, fuel) = unpack(seed);
            if life.panics(&mut rng) {
                value.tear();
            }
            value.write(&mut rng);
            follow(&life, &mut rng, fuel);
        });
    });
}

fn post_read(life: &Arc<Life>, state: &State, rng: &mut Rng, fuel: u8) {
    let (life, seed) = (life.clone(), seed(rng, fuel));
    let token = Token::queued(&state.lane, Kind::PostRead);
    state.state.post_read(move |value| {
        token.run(Mode::Read, Entry::Turn, || {
            let (mut rng, fuel) = unpack(seed);
            value.read(&mut rng);
            follow(&life, &mut rng, fuel);
        });
    });
}

fn try_with(life: &Life, state: &State, rng: &mut Rng) {
    let token = Token::new(&state.lane, Kind::TryWith);
    let outcome = state.state.try_with(|value| {
        token.run(Mode::Write, Entry::Inline, || {
            if life.panics(rng) {
                value.tear();
            }
            value.write(rng);
        });
    });
    note(life, Kind::TryWith, outcome);
}

fn try_read(life: &Life, state: &State, rng: &mut Rng) {
    let token = Token::new(&state.lane, Kind::TryRead);
    let outcome = state.state.try_read(|value| token.run(Mode::Read, Entry::Inline, || value.read(rng)));
    note(life, Kind::TryRead, outcome);
}

/// Records why a closure that should run at once has not.
pub(crate) fn note(life: &Life, kind: Kind, outcome: Result<(), TryWithError>) {
    match outcome {
        Ok(()) => {}
        Err(TryWithError::Poisoned) => life.book.excuse(kind, Excuse::Poisoned),
        Err(_) => life.book.excuse(kind, Excuse::Refused),
    }
}

fn abort_one(life: &Life, rng: &mut Rng) {
    let Some(task) = life.bag.take_task(rng) else { return };
    task.abort();
    // Otherwise it is dropped here.
    if rng.once_in(2) {
        life.bag.put_task(task, rng);
    }
}

fn limit_one(life: &Life, rng: &mut Rng) {
    let (_, color) = life.pick_color(rng);
    let limit = rng.range(0, 20) as usize;
    color.set_capacity((!rng.once_in(3)).then_some(limit));
}

/// A color or a state that lives only as long as its queue.
fn pass_by(life: &Arc<Life>, rng: &mut Rng, fuel: u8) {
    if rng.once_in(2) {
        let (lane, color) = (Lane::private(&life.book), life.handle.new_color());
        for _ in 0..rng.range(1, 4) {
            post_to(life, &lane, &color, rng, fuel);
        }
        return;
    }
    let (lane, color) = life.pick_color(rng);
    let state = State::new(&lane, &color);
    for _ in 0..rng.range(0, 3) {
        if rng.once_in(2) {
            post_to_state(life, &state, rng, fuel);
        } else {
            post_read(life, &state, rng, fuel);
        }
    }
}
