// The future need not be `Send`, but its output must be.

use dapple_sched::Color;
use std::rc::Rc;

fn main() {
    drop(Color::pinned(0).spawn_pinned(|| async { Rc::new(1) }));
}
