//! C3: a callback that names no color has the default color; a task has a separate one; nothing is
//! inherited.

use dapple_sched::{Color, Colored, spawn};

use crate::support::{collector, runtime};

#[test]
fn c3_zero_is_the_default_color() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    assert_eq!(Color::named(0), Color::DEFAULT);
    assert_eq!(Color::default(), Color::DEFAULT);
    assert_ne!(Color::named(1), Color::DEFAULT);
    assert_ne!(Color::new(), Color::DEFAULT);
    assert!(Colored::with_color((), &Color::DEFAULT).color().is_default());
}

#[test]
fn c3_current_is_the_color_of_the_callback() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    assert_eq!(Color::current(), Color::DEFAULT);
    let (tx, seen) = collector();
    for color in [Color::DEFAULT, Color::new(), Color::named(9)] {
        let (tx, expected) = (tx.clone(), color.clone());
        color.post(move || tx.send(Color::current() == expected).unwrap());
    }
    drop(tx);
    assert_eq!(seen.all(), [true; 3]);
}

#[test]
fn c3_a_color_is_never_inherited() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let outer = Color::new();
    let expected = outer.clone();
    let colors = runtime.block_on(async {
        outer
            .spawn(async move {
                assert_eq!(Color::current(), expected);
                let task = spawn(async { Color::current() });
                (
                    task.color().clone(),
                    task.await.unwrap(),
                    Color::DEFAULT.spawn(async { Color::current() }).await.unwrap(),
                )
            })
            .await
            .unwrap()
    });
    assert_eq!(colors.0, colors.1);
    assert_ne!(colors.0, outer);
    assert_ne!(colors.0, Color::DEFAULT);
    assert_eq!(colors.2, Color::DEFAULT);
}

#[test]
fn c3_a_task_keeps_its_color() {
    let runtime = runtime(4);
    let _entered = runtime.enter();
    let color = Color::new();
    let other = Colored::new(0u32);
    let expected = color.clone();
    let task = color.spawn(async move {
        for _ in 0..1_000 {
            dapple_sched::yield_now().await;
            other.with(|n| *n += 1).await;
            assert_eq!(Color::current(), expected);
        }
    });
    runtime.block_on(task).unwrap();
}
