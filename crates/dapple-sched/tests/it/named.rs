//! Names of tasks: in dumps of the runtime and in reports of slow callbacks, and nowhere else.

use std::future::pending;
use std::sync::mpsc::channel;
use std::time::Duration;

use dapple_sched::{Color, Dump, Runtime, SlowCallback, named, spawn, yield_now};

use crate::support::{Gate, LONG, runtime};

fn names(dump: &Dump) -> Vec<&str> {
    dump.named.iter().map(|task| &*task.name).collect()
}

#[test]
fn waiting_tasks_are_shown_by_their_names_until_they_end() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let color = Color::new();
    let waits = named("waits").spawn_in(&color, pending::<()>());
    let ends = named(String::from("ends")).spawn(async {});
    let _unnamed = spawn(pending::<()>());
    runtime.block_on(ends).unwrap();
    let dump = runtime.handle().dump();
    assert_eq!(names(&dump), ["waits"]);
    assert_eq!((dump.named[0].color_id, dump.named[0].worker), (color.id(), None));
    assert!(dump.named[0].spawned_from.file().ends_with("named.rs"));
    assert!(dump.to_string().contains("task \"waits\": color"), "{dump}");
    waits.abort();
    assert!(runtime.block_on(waits).is_err());
    assert!(runtime.handle().dump().named.is_empty());
}

#[test]
fn a_running_task_is_shown_with_its_worker_and_reported_when_it_is_slow() {
    let (slow_tx, slow) = channel::<SlowCallback>();
    let report = move |slow: &SlowCallback| slow_tx.send(slow.clone()).unwrap();
    let runtime = Runtime::builder().workers(1).slow_callback(Duration::from_millis(20), report).build().unwrap();
    let _entered = runtime.enter();
    let (gate, (started_tx, started)) = (Gate::default(), channel());
    let inside = gate.clone();
    let task = named("slow").spawn(async move {
        yield_now().await;
        started_tx.send(()).unwrap();
        inside.wait();
    });
    started.recv_timeout(LONG).unwrap();
    let dump = runtime.handle().dump();
    assert_eq!(dump.workers[0].running.as_ref().unwrap().name.as_deref(), Some("slow"));
    assert_eq!(dump.named[0].worker, Some(0));
    assert!(dump.to_string().contains("(task \"slow\")"), "{dump}");
    assert_eq!(slow.recv_timeout(LONG).unwrap().name.as_deref(), Some("slow"));
    gate.open();
    runtime.block_on(task).unwrap();

    // The next callback of the worker does not inherit the name.
    let (gate, (started_tx, started)) = (Gate::default(), channel());
    let inside = gate.clone();
    let task = spawn(async move {
        started_tx.send(()).unwrap();
        inside.wait();
    });
    started.recv_timeout(LONG).unwrap();
    assert_eq!(runtime.handle().dump().workers[0].running.as_ref().unwrap().name, None);
    assert_eq!(slow.recv_timeout(LONG).unwrap().name, None);
    gate.open();
    runtime.block_on(task).unwrap();
}

#[test]
fn a_panic_takes_the_name_away_and_so_does_the_end_of_the_runtime() {
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let _entered = runtime.enter();
    let task = named("panics").spawn(async { panic!("on purpose") });
    assert!(runtime.block_on(task).unwrap_err().is_panic());
    assert!(handle.dump().named.is_empty());
    let _never_ends = named("never ends").spawn(pending::<()>());
    assert_eq!(names(&handle.dump()), ["never ends"]);
    drop(runtime);
    assert!(handle.dump().named.is_empty());
}

#[test]
fn more_than_a_thousand_are_counted() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let tasks: Vec<_> = (0..1_234).map(|n| named(format!("task {n}")).spawn(pending::<()>())).collect();
    let dump = runtime.handle().dump();
    assert_eq!((dump.named.len(), dump.named_left_out), (1_000, 234));
    assert_eq!((&*dump.named[0].name, &*dump.named[999].name), ("task 0", "task 999"));
    assert!(dump.to_string().contains("and 234 more tasks with names"));
    drop(tasks);
}
