//! A hold cannot be forged: what takes hold of a color is private.
use dapple_sched::{Color, Colored};

fn forge(state: &Colored<u32>, color: &Color) {
    // SAFETY: there is none; it is not to compile.
    let _ = unsafe { state.access(|n| *n) };
    // SAFETY: there is none; it is not to compile.
    let _ = unsafe { dapple_sched::hold::try_hold(color.cell(), std::panic::Location::caller()) };
}

fn main() {}
