// Only the closure that makes the future is sent, and it must be fit for that.

use dapple_sched::Color;
use std::rc::Rc;

fn main() {
    let rc = Rc::new(1);
    drop(Color::pinned(0).spawn_pinned(move || async move { *rc }));
}
