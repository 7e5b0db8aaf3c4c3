// A value that is bound to a thread cannot be carried to the worker.

use dapple_sched::{Color, Pinned};
use std::rc::Rc;

fn main() {
    let state = Pinned::new(&Color::pinned(0), || 1);
    let rc = Rc::new(2);
    state.post(move |n| *n += *rc);
}
