//! A hold cannot be forged: what takes hold of a color is private, and so is what shows that it is held.
use dapple_sched::{Color, Colored};

fn forge(state: &Colored<u32>, color: &Color) {
    let _ = state.write(dapple_sched::hold::held::Held::by_hold(color));
    let _ = dapple_sched::hold::try_hold(color.alive(), false, std::panic::Location::caller());
}

fn main() {}
