//! C10: colors are compared by full identity, never by a slot.

use std::collections::HashSet;

use dapple_sched::{Color, Handle};

use crate::support::{occupy, runtime};

#[test]
fn c10_colors_never_exclude_one_another() {
    // Every color but one is free, whatever the hashes of their names.
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let held = Color::named(1);
    let gate = occupy(&held);
    let (tx, seen) = crate::support::collector();
    for name in 2..2_002u64 {
        let tx = tx.clone();
        Color::named(name << 32).post(move || tx.send(name).unwrap());
    }
    drop(tx);
    assert_eq!(seen.all().len(), 2_000);
    gate.open();
}

#[test]
fn c10_equal_names_are_one_color() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (first, second) = (Color::named(5), Color::named(5));
    assert_eq!(first, second);
    assert_eq!(HashSet::from([first.clone(), second, Color::named(6)]).len(), 2);
    assert_eq!(Color::of("key"), Color::of(&String::from("key")));
    assert_ne!(Color::of("key"), Color::of("other"));
    assert_ne!(Color::new(), Color::new());
    assert_eq!(format!("{first:?} {}", Color::DEFAULT), "Color(named 5) default");
}

#[test]
fn c10_a_named_color_is_one_as_long_as_anything_is_queued() {
    // The handle is dropped while callbacks wait; the name must still find the same color.
    let runtime = runtime(2);
    let _entered = runtime.enter();
    for round in 0..500u64 {
        let gate = occupy(&Color::named(round + 1));
        let (tx, seen) = crate::support::collector();
        Color::named(round + 1).post(move || tx.send(()).unwrap());
        gate.open();
        seen.all();
    }
}

#[test]
fn c10_runtimes_do_not_share_colors() {
    let (a, b) = (runtime(1), runtime(1));
    assert_ne!(a.handle().named_color(3), b.handle().named_color(3));
    let gate = occupy(&a.handle().named_color(3));
    b.block_on(async { Handle::current().named_color(3).spawn(async {}).await.unwrap() });
    gate.open();
}
