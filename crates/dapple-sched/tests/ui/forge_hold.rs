//! A hold cannot be forged: its constructor is private, and so is the proof that it is held.
use dapple_sched::{Color, Colored};

fn forge(state: &Colored<u32>, color: &Color) {
    let _ = state.write(dapple_sched::hold::held::Held::by_hold(color));
    let _ = dapple_sched::hold::try_hold(color.alive(), false, std::panic::Location::caller());
}

fn main() {}
