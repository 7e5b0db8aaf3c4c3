//! Wrapped callbacks (the papers' `cwrap` and `cpwrap`).

use std::sync::Arc;

use dapple_sched::{Callback, Color, Priority};

use crate::support::{collector, occupy, runtime};

#[test]
fn a_wrapped_callback_runs_in_its_color_many_times() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::new();
    let (tx, seen) = collector();
    let mut count = 0;
    let expected = color.clone();
    let callback: Callback<u32> = color.wrap(move |arg| {
        assert_eq!(Color::current(), expected);
        count += arg;
        tx.send(count).unwrap();
    });
    let other = callback.clone();
    callback.call(1);
    other.call(10);
    callback.call(100);
    assert_eq!(callback.color(), &color);
    drop((callback, other));
    // The channel closes when the closure is freed, without any request.
    assert_eq!(seen.all(), [1, 11, 111]);
}

#[test]
fn a_wrapped_callback_carries_its_priority() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let gate = occupy(&Color::new());
    let (tx, seen) = collector();
    let calls: Vec<_> = [(0, "normal"), (7, "high"), (3, "middle")]
        .into_iter()
        .map(|(level, name)| {
            let tx = tx.clone();
            Color::new().wrap_with(Priority::new(level), move |()| tx.send(name).unwrap())
        })
        .collect();
    drop(tx);
    calls.iter().for_each(|callback| callback.call(()));
    gate.open();
    drop(calls);
    assert_eq!(seen.all(), ["high", "middle", "normal"]);
}

#[test]
fn large_closures_and_large_alignments_are_kept() {
    #[repr(align(128))]
    #[derive(Clone, Copy)]
    struct Wide([u64; 16]);
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (tx, seen) = collector();
    let wide = Wide([7; 16]);
    let keep = Arc::new(());
    let held = keep.clone();
    Color::new().post(move || {
        assert_eq!((&raw const wide).addr() % 128, 0);
        tx.send(wide.0.iter().sum::<u64>()).unwrap();
        drop(held);
    });
    assert_eq!(seen.all(), [112]);
    assert_eq!(Arc::strong_count(&keep), 1);
}
