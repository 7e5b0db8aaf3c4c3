//! Nor can the future be opened that waits for a state, nor a handle.
use dapple_sched::{Color, With};

fn forge(color: &Color, future: With<'_, u32, fn(&mut u32), ()>) {
    let _ = future.wait;
    let _ = color.cell;
}

fn main() {}
