// The future need not be fit to be sent, but what comes of it must.

use dapple_sched::Color;
use std::rc::Rc;

fn main() {
    drop(Color::pinned(0).spawn_pinned(|| async { Rc::new(1) }));
}
