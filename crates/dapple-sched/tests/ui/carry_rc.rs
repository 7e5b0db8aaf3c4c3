//! Nothing that is bound to a thread is carried into a color.
use std::rc::Rc;

use dapple_sched::{Color, Colored, spawn};

fn as_state() {
    let _ = Colored::new(Rc::new(1));
}

fn in_a_callback(color: Color) {
    let count = Rc::new(1);
    color.post(move || println!("{count}"));
}

fn in_a_posted_closure(state: Colored<u32>) {
    let count = Rc::new(1);
    state.post(move |n| *n += *count);
}

fn across_an_await(state: Colored<u32>) {
    drop(spawn(async move {
        let count = Rc::new(1);
        state.with(|n| *n += 1).await;
        println!("{count}");
    }));
}

fn main() {}
