// Nor from there.

use dapple_sched::{Color, Pinned};
use std::rc::Rc;

async fn leak(state: Pinned<Rc<i32>>) {
    state.with(|rc| rc.clone()).await;
}

fn main() {
    let state = Pinned::new(&Color::pinned(0), || Rc::new(1));
    dapple_sched::block_on(leak(state));
}
