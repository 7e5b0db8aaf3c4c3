//! Event loops of the program's own: answers, ends of every kind, bounds.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_flow::event_loop::{AskError, EventLoop, Inbox, Loop, LoopError, Reply, start, start_with};
use dapple_io::time::{Instant, sleep, timeout};
use dapple_sched::{Color, Colored, spawn};

use crate::{LIMIT, channel_callback, run, runtime, wait_until};

/// The loop's action on a request.
#[derive(Debug, PartialEq)]
enum Wish {
    Double(u64),
    /// Keep the reply until it ends.
    Keep,
    Forget,
    Panic,
    Return,
    /// Answer from another thread.
    Elsewhere(u64),
}

struct Obedient {
    /// The requests it still has at its end.
    ended: Sender<usize>,
    /// The signal that it awaits before it takes the first request.
    hold: Option<Receiver<()>>,
    /// The numbers it has doubled, in order.
    doubled: Doubled,
}

type Doubled = Arc<Mutex<Vec<u64>>>;

impl EventLoop for Obedient {
    type Request = Wish;
    type Answer = u64;

    fn run(self, inbox: Inbox<Wish, u64>) {
        let mut kept: Vec<Reply<u64>> = Vec::new();
        if let Some(hold) = &self.hold {
            let _ = hold.recv();
        }
        while !inbox.is_stopping() {
            while let Some(asked) = inbox.try_next() {
                match asked.request {
                    Wish::Double(n) => {
                        self.doubled.lock().unwrap().push(n);
                        asked.reply.send(2 * n);
                    }
                    Wish::Keep => kept.push(asked.reply),
                    Wish::Forget => drop(asked.reply),
                    Wish::Panic => panic!("the loop was told to"),
                    Wish::Return => return,
                    Wish::Elsewhere(n) => drop(std::thread::spawn(move || asked.reply.send(n))),
                }
            }
            inbox.wait(None);
        }
        let awaited = kept.iter().filter(|reply| reply.is_awaited()).count();
        let _ = self.ended.send(awaited);
    }
}

fn obedient() -> (Loop<Wish, u64>, Receiver<usize>) {
    let (ended, has_ended) = channel();
    (start("obedient", Obedient { ended, hold: None, doubled: Doubled::default() }).unwrap(), has_ended)
}

/// A loop with room for two that takes nothing before a signal.
fn held() -> (Loop<Wish, u64>, Sender<()>, Doubled) {
    let (release, hold) = channel();
    let (ended, _) = channel();
    let doubled = Doubled::default();
    let obedient = Obedient { ended, hold: Some(hold), doubled: doubled.clone() };
    (start_with("held", 2, obedient).unwrap(), release, doubled)
}

#[test]
fn tasks_of_any_color_ask_and_are_answered() {
    run(2, async {
        let (it, _) = obedient();
        let tasks: Vec<_> = (0..2_000)
            .map(|n| {
                let it = it.clone();
                spawn(async move { it.ask(if n % 2 == 0 { Wish::Double(n) } else { Wish::Elsewhere(2 * n) }).await })
            })
            .collect();
        for (n, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), Ok(2 * n as u64));
        }
    });
}

#[test]
fn callbacks_ask_and_get_the_answer_in_their_color() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (it, _) = obedient();
    let (tx, rx) = channel();
    let color = Color::new();
    for n in 0..50 {
        let (tx, id) = (tx.clone(), color.id());
        let callback = color.wrap(move |answer| {
            assert_eq!(Color::current().id(), id);
            tx.send(answer).unwrap();
        });
        it.try_ask_then(Wish::Double(n), callback).unwrap();
    }
    for n in 0..50 {
        assert_eq!(rx.recv_timeout(LIMIT).unwrap(), Ok(2 * n));
    }
}

#[test]
fn a_panic_of_the_loop_reaches_waiting_and_later_requests() {
    run(2, async {
        let (it, _) = obedient();
        let kept = it.clone();
        let kept = spawn(async move { kept.ask(Wish::Keep).await });
        // The kept request was taken before this one.
        assert_eq!(it.ask(Wish::Double(1)).await, Ok(2));
        let expected = Err(LoopError::Panicked("the loop was told to".to_owned()));
        assert_eq!(it.ask(Wish::Panic).await, expected);
        assert_eq!(kept.await.unwrap(), expected);
        assert_eq!(it.ask(Wish::Double(1)).await, expected);
        assert!(it.is_over());
        let (callback, _rx) = channel_callback();
        assert!(matches!(it.try_ask_then(Wish::Keep, callback), Err(AskError::Over(Wish::Keep))));
        // The runtime still works.
        assert_eq!(spawn(async { 1 }).await.unwrap(), 1);
    });
}

#[test]
fn a_loop_that_returns_or_forgets_says_so() {
    run(1, async {
        let (it, _) = obedient();
        assert_eq!(it.ask(Wish::Forget).await, Err(LoopError::Unanswered));
        let (callback, rx) = channel_callback();
        it.try_ask_then(Wish::Keep, callback).unwrap();
        assert_eq!(it.ask(Wish::Return).await, Err(LoopError::Unanswered));
        // The loop decides whether a reply is dropped before the result is known.
        assert!(matches!(rx.recv_timeout(LIMIT).unwrap(), Err(LoopError::Unanswered | LoopError::Ended)));
        wait_until("it is over", || it.is_over());
        assert_eq!(it.ask(Wish::Double(1)).await, Err(LoopError::Ended));
    });
}

#[test]
fn its_inbox_is_bounded_and_first_come_is_first_served() {
    run(2, async {
        let (it, release, doubled) = held();
        let ask = |n: u64| {
            let it = it.clone();
            async move { it.ask(Wish::Double(n)).await }
        };
        // One color, so that they queue in this order.
        let color = Color::new();
        let tasks: Vec<_> = (0..20).map(|n| color.spawn(ask(n))).collect();
        let given_up = color.spawn(ask(99));
        let last = color.spawn(ask(100));
        color.spawn(async {}).await.unwrap();
        let (callback, _rx) = channel_callback();
        assert!(matches!(it.try_ask_then(Wish::Keep, callback), Err(AskError::Full(Wish::Keep))));
        given_up.abort();
        release.send(()).unwrap();
        for (n, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.unwrap(), Ok(2 * n as u64));
        }
        assert_eq!(last.await.unwrap(), Ok(200));
        assert_eq!(*doubled.lock().unwrap(), (0..20).chain([100]).collect::<Vec<_>>());
    });
}

#[test]
fn a_dropped_place_is_passed_on() {
    run(2, async {
        for _ in 0..200 {
            let (it, release, _) = held();
            let tasks: Vec<_> = (0..10)
                .map(|n| {
                    let it = it.clone();
                    spawn(async move { it.ask(Wish::Double(n)).await })
                })
                .collect();
            release.send(()).unwrap();
            // In any of their states.
            tasks.iter().step_by(2).for_each(|task| task.abort());
            for (n, task) in tasks.into_iter().enumerate() {
                if let Ok(answer) = task.await {
                    assert_eq!(answer, Ok(2 * n as u64));
                }
            }
            assert_eq!(it.ask(Wish::Double(5)).await, Ok(10));
        }
    });
}

#[test]
fn the_loop_sees_canceled_requests() {
    run(1, async {
        let (it, ended) = obedient();
        let left = timeout(Duration::from_millis(5), it.ask(Wish::Keep)).await;
        assert!(left.is_err());
        let stays = it.clone();
        let stays = spawn(async move { stays.ask(Wish::Keep).await });
        while it.ask(Wish::Double(1)).await != Ok(2) || !stays_is_taken(&it).await {}
        it.stop();
        assert_eq!(ended.recv_timeout(LIMIT), Ok(1));
        assert!(matches!(stays.await.unwrap(), Err(LoopError::Unanswered | LoopError::Ended)));
    });
}

/// Requests are taken in order: after two more, an earlier request of a task in another color has
/// been taken.
async fn stays_is_taken(it: &Loop<Wish, u64>) -> bool {
    sleep(Duration::from_millis(5)).await;
    it.ask(Wish::Double(1)).await.is_ok()
}

#[test]
fn the_last_handle_stops_it() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (it, ended) = obedient();
    let other = it.clone();
    drop(it);
    assert_eq!(runtime.block_on(other.ask(Wish::Double(1))), Ok(2));
    drop(other);
    assert_eq!(ended.recv_timeout(LIMIT), Ok(0));
}

#[test]
fn a_shutdown_stops_it_after_the_tasks_and_ends_what_waits() {
    let runtime = runtime(2);
    let entered = runtime.enter();
    let (it, ended) = obedient();
    // A task that needs the loop to end in order.
    let last = it.clone();
    let polite = spawn(async move {
        dapple_sched::Handle::current().closing().await;
        last.ask(Wish::Double(4)).await
    });
    // A waiting thread outside the runtime.
    let outside = it.clone();
    let outside = std::thread::spawn(move || dapple_sched::block_on(outside.ask(Wish::Keep)));
    drop(entered);
    let report = runtime.shutdown(LIMIT);
    assert_eq!(report.tasks_dropped, 0);
    assert_eq!(dapple_sched::block_on(polite).unwrap(), Ok(8));
    assert!(ended.recv_timeout(LIMIT).is_ok());
    assert!(outside.join().unwrap().is_err());
    assert_eq!(dapple_sched::block_on(it.ask(Wish::Double(1))), Err(LoopError::Ended));
}

/// It never looks at its inbox.
struct Deaf(Receiver<()>);

impl EventLoop for Deaf {
    type Request = ();
    type Answer = ();

    fn run(self, _inbox: Inbox<(), ()>) {
        let _ = self.0.recv();
    }
}

#[test]
fn a_loop_that_does_not_listen_holds_up_no_shutdown() {
    let (release, hold) = channel();
    let runtime = runtime(1);
    let entered = runtime.enter();
    let deaf = start("deaf", Deaf(hold)).unwrap();
    let task = spawn({
        let deaf = deaf.clone();
        async move { deaf.ask(()).await }
    });
    drop(entered);
    let report = runtime.shutdown(Duration::ZERO);
    assert_eq!(report.tasks_dropped, 1);
    assert!(task.is_finished());
    assert!(!deaf.is_over());
    release.send(()).unwrap();
    wait_until("it is over", || deaf.is_over());
}

#[test]
fn the_loop_posts_unrequested_events() {
    /// Counts by itself.
    struct Ticker(Colored<u32>);

    impl EventLoop for Ticker {
        type Request = ();
        type Answer = u32;

        fn run(self, inbox: Inbox<(), u32>) {
            for n in 1..=100 {
                self.0.post(move |count| *count = n);
            }
            // An answer after the posts, from the state's own color.
            while !inbox.is_stopping() {
                while let Some(asked) = inbox.try_next() {
                    self.0.post(move |count| asked.reply.send(*count));
                }
                inbox.wait(Some(Duration::from_secs(1)));
            }
        }
    }

    run(2, async {
        let ticker = start("ticker", Ticker(Colored::new(0))).unwrap();
        assert_eq!(ticker.ask(()).await, Ok(100));
    });
}

#[test]
fn a_clock_that_stands_still_waits_for_the_answer() {
    let mut config = dapple_io::Config::default();
    config.standing_clock = true;
    let runtime = dapple_io::runtime_builder_with(config).workers(1).build().unwrap();
    runtime.block_on(async {
        let (it, release, _) = held();
        let start = Instant::now();
        let answer = spawn(async move { timeout(Duration::from_nanos(1), it.ask(Wish::Elsewhere(3))).await });
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30)); // in real time
            release.send(()).unwrap();
        });
        assert_eq!(answer.await.unwrap(), Ok(Ok(3)));
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
}

#[test]
fn without_a_runtime_there_is_none() {
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    drop(runtime);
    let _entered = handle.enter();
    let (ended, _rx) = channel();
    let error = start("late", Obedient { ended, hold: None, doubled: Doubled::default() }).unwrap_err();
    assert!(error.to_string().contains("shut down"), "{error}");
}
