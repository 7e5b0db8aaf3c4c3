use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dapple_sched::{Color, Runtime};
use dapple_stage::{Reason, post_before};

fn runtime(workers: usize) -> Runtime {
    dapple_io::runtime_builder().workers(workers).build().expect("a runtime starts")
}

#[test]
fn what_has_not_begun_in_time_is_dropped_while_its_color_is_busy() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (busy, answers) = (Color::new(), Color::new());
    let (release, until) = mpsc::channel::<()>();
    busy.post(move || until.recv().expect("the test lets it go on"));
    let state = Arc::new(());
    let (held, freed): (_, Weak<()>) = (state.clone(), Arc::downgrade(&state));
    drop(state);
    let (tx, rx) = mpsc::channel();
    let instead = answers.wrap(move |refused| tx.send((refused, freed.strong_count())).unwrap());
    let ran = move || unreachable!("{held:?} has expired");
    post_before(&busy, Instant::now() + Duration::from_millis(20), ran, instead).unwrap();
    // The color is still busy when this arrives.
    let (refused, count) = rx.recv_timeout(Duration::from_secs(60)).expect("the drop callback runs");
    assert_eq!((refused.reason, count), (Reason::Deadline, 0));
    release.send(()).unwrap();
    let (tx, rx) = mpsc::channel();
    busy.post(move || tx.send(()).unwrap());
    rx.recv_timeout(Duration::from_secs(60)).expect("the color goes on");
}

#[test]
fn exactly_one_of_the_two_runs() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let answers = Color::new();
    let (tx, rx) = mpsc::channel();
    for index in 0..2_000u64 {
        let (ran, late) = (tx.clone(), tx.clone());
        let instead = answers.wrap(move |_| late.send(index).unwrap());
        let deadline = Instant::now() + Duration::from_micros(index % 1_500);
        post_before(&Color::new(), deadline, move || ran.send(index).unwrap(), instead).unwrap();
    }
    drop(tx);
    let mut seen: Vec<u64> = rx.iter().collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..2_000).collect::<Vec<_>>());
}
