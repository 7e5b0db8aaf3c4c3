//! The gate of admission: a request that is granted a processor is woken, and one that ends, waits
//! or is dropped leaves the processor to the next. A request that is not woken is a deadlock here.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dapple_sync::sync::oneshot;
use dapple_tower::admission::{Admission, Class, Config, Offer};
use dapple_tower::{Reason, Refused, time_model};
use shuttle::future::block_on;
use shuttle::thread;

use super::{Inside, check, pause, poll_once};

const SCHEDULES: usize = 4_000;
/// The cost of a handler: high enough to wait for.
const COST: Duration = Duration::from_millis(5);

/// An admission that knows the cost of requests, because one has run.
fn learned(processors: usize, queue_len_max: usize) -> Admission {
    let mut config = Config::default();
    (config.processors, config.queue_len_max) = (Some(processors), queue_len_max);
    let admission = Admission::new(config);
    block_on(admission.offer(Offer::now()).unwrap().run(async || time_model::spend(COST))).unwrap();
    assert!(admission.is_busy());
    admission
}

/// A handler that runs twice, and waits for another event in between.
async fn work(inside: Inside) {
    for _ in 0..2 {
        let _one_of_them = inside.enter();
        time_model::spend(COST);
        thread::yield_now();
        drop(_one_of_them);
        pause().await;
    }
}

/// Checks that each request has ended in one way, no processor is in use, and new work gets one.
fn finish(admission: &Admission, finished: u64, cancelled: u64) {
    let stats = admission.stats();
    assert_eq!((stats.waiting, stats.in_service), (0, 0), "{stats:?}");
    assert_eq!((stats.finished, stats.cancelled), (finished + 1, cancelled), "{stats:?}");
    assert_eq!(stats.offered, stats.finished + stats.cancelled + stats.refused + stats.dropped, "{stats:?}");
    let mut gated = pin!(admission.offer(Offer::now()).unwrap().run(async || ()));
    // It is not granted if a processor was lost.
    assert!((0..8).any(|_| poll_once(gated.as_mut()).is_ready()), "no processor is free");
}

// Three run handlers that are suspended in between; a fourth is dropped after some polls: while it
// waits, with a processor, within its handler, or at its end.
#[test]
fn all_run_in_turns_and_a_dropped_request_leaves_its_processor() {
    for processors in [1, 2] {
        check(SCHEDULES, move || {
            let admission = learned(processors, 16);
            let inside = Inside::new(processors);
            let hasty = {
                let (admitted, inside) = (admission.offer(Offer::now()).unwrap(), inside.clone());
                thread::spawn(move || {
                    let mut gated = pin!(admitted.run(|| work(inside)));
                    (0..5).any(|_| {
                        thread::yield_now();
                        poll_once(gated.as_mut()).is_ready()
                    })
                })
            };
            let runs = [0; 3].map(|_| {
                let (admission, inside) = (admission.clone(), inside.clone());
                thread::spawn(move || {
                    let admitted = admission.offer(Offer::now()).expect("there is room, and time");
                    block_on(admitted.run(|| work(inside))).expect("it is not late");
                })
            });
            runs.into_iter().for_each(|run| run.join().unwrap());
            let done = u64::from(hasty.join().unwrap());
            finish(&admission, 3 + done, 1 - done);
        });
    }
}

// With one processor, one handler waits for a result that another one makes.
#[test]
fn a_handler_that_waits_for_the_next_one_lets_it_begin() {
    check(SCHEDULES, || {
        let admission = learned(1, 16);
        let (tx, rx) = oneshot::channel();
        let [first, second] = [0; 2].map(|_| admission.offer(Offer::now()).unwrap());
        let waits = thread::spawn(move || {
            block_on(first.run(async move || {
                time_model::spend(COST);
                rx.await.unwrap();
            }))
            .unwrap();
        });
        let works = thread::spawn(move || block_on(second.run(async move || tx.send(()).unwrap())).unwrap());
        waits.join().unwrap();
        works.join().unwrap();
        finish(&admission, 2, 0);
    });
}

// One request has the processor, one of a low class has the only place in the queue, and one of a
// higher class comes.
#[test]
fn a_request_dropped_for_a_higher_class_is_woken() {
    check(SCHEDULES, || {
        let admission = learned(1, 1);
        let holds = admission.offer(Offer::now()).unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        let asks = [Class::LOW, Class::HIGH].map(|class| {
            let (admission, dropped) = (admission.clone(), dropped.clone());
            thread::spawn(move || {
                let lost = |refused: &Refused| {
                    assert_eq!(class, Class::LOW, "{refused}");
                    assert!(matches!(refused.reason, Reason::Class | Reason::Full { .. }), "{refused}");
                    dropped.fetch_add(1, Ordering::SeqCst);
                };
                match admission.offer(Offer::now().class(class)) {
                    Ok(admitted) => match block_on(admitted.run(async || time_model::spend(COST))) {
                        Ok(()) => {}
                        Err(refused) => lost(&refused),
                    },
                    Err(refused) => lost(&refused),
                }
            })
        });
        let ends = thread::spawn(move || drop(holds));
        asks.into_iter().for_each(|ask| ask.join().unwrap());
        ends.join().unwrap();
        finish(&admission, 2 - dropped.load(Ordering::SeqCst) as u64, 1);
    });
}

// The waiting requests have a deadline, which passes while another one runs.
#[test]
fn a_request_past_its_deadline_is_woken() {
    check(SCHEDULES, || {
        let admission = learned(1, 16);
        // Of another kind, so that it teaches nothing about the waiting ones.
        let holds = admission.offer(Offer::now().kind(1)).unwrap();
        let waits = [0; 2].map(|_| {
            let admission = admission.clone();
            let soon = Offer::now().arrived + 4 * COST;
            thread::spawn(move || match admission.offer(Offer::now().deadline(soon)) {
                Ok(admitted) => block_on(admitted.run(async || time_model::spend(COST))),
                Err(refused) => Err(refused),
            })
        });
        let runs = thread::spawn(move || {
            block_on(holds.run(async || {
                thread::yield_now();
                time_model::spend(3 * COST);
            }))
            .unwrap();
        });
        runs.join().unwrap();
        let ran = waits.map(|wait| match wait.join().unwrap() {
            Ok(()) => 1,
            Err(refused) => {
                assert_eq!(refused.reason, Reason::Deadline);
                0
            }
        });
        let ran: u64 = ran.iter().sum();
        finish(&admission, 1 + ran, 0);
    });
}
