//! A process after its only runtime has ended. It is alone in its program, because a thread without
//! a runtime gets the oldest one of the process.

use std::time::Instant;

use dapple_sched::{Color, Runtime};
use dapple_stage::post_before;

#[test]
fn a_deadline_needs_a_runtime_that_looks_at_the_clock() {
    let runtime = Runtime::builder().workers(1).build().expect("a runtime starts");
    let (color, instead) = {
        let _entered = runtime.enter();
        (Color::new(), Color::new().wrap(|_| ()))
    };
    drop(runtime);
    let error = post_before(&color, Instant::now(), || (), instead).expect_err("no timer can run");
    assert!(!error.to_string().is_empty());
}
