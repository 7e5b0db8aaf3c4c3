//! A stage with its tasks on the scheduler's own workers, which are threads of the model: every
//! request ends once, the bounds hold at every step, and no request waits in vain (a deadlock
//! here).

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_sched::{Handle, yield_now};
use dapple_stage::{Overload, Reason, Stage, StageError, Status, Supervision};
use dapple_sync::sync::Notify;
use shuttle::thread;
use tower::{Service, ServiceExt};

use super::support::{self, block_on, with};
use super::{Inside, check, poll_once};

const SCHEDULES: usize = 3_000;

/// Runs a scene in a runtime of two workers, and checks that it leaves nothing behind.
fn scene(scene: impl Fn(&Handle) + Send + Sync + 'static) {
    scene_of(SCHEDULES, scene);
}

fn scene_of(schedules: usize, scene: impl Fn(&Handle) + Send + Sync + 'static) {
    check(schedules, move || support::scene(&scene));
}

/// A handler that yields in between.
fn serve(inside: Inside) -> impl Fn(u32) -> Serving + Clone + Send + 'static {
    move |n| {
        let inside = inside.clone();
        Box::pin(async move {
            let _one = inside.enter();
            yield_now().await;
            Ok(n)
        })
    }
}

type Serving = std::pin::Pin<Box<dyn Future<Output = Result<u32, Infallible>> + Send>>;

/// Waits for a place and uses it.
fn send<E: Send + 'static>(stage: &Stage<u32, u32, E>, n: u32) -> Result<u32, StageError<E>> {
    let mut stage = stage.clone();
    block_on(async {
        let response = stage.ready().await?.call(n);
        response.await
    })
}

// Two senders into a queue of one slot with one in service; two more give up: one a response, one a
// slot.
#[test]
fn every_request_ends_once_and_the_stage_comes_to_rest() {
    scene(|handle| {
        let stage = Stage::builder("s").queue_len_max(1).width(1).wrap_fn(serve(Inside::new(1)));
        let hasty = {
            let mut stage = stage.clone();
            with(handle, move || {
                let _perhaps_a_place = poll_once(pin!(ServiceExt::<u32>::ready(&mut stage)));
                thread::yield_now();
                let mut response = pin!(stage.ask(7).now());
                thread::yield_now();
                let _perhaps = poll_once(response.as_mut());
            })
        };
        let senders = [0, 10].map(|first| {
            let stage = stage.clone();
            with(handle, move || {
                for n in first..first + 2 {
                    assert_eq!(send(&stage, n), Ok(n));
                    let load = stage.load();
                    assert!(load.queue_len <= 1 && load.in_service <= 1, "{load:?}");
                }
            })
        });
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        hasty.join().unwrap();
        block_on(stage.stop());
        let stats = stage.stats();
        assert_eq!(stats.accepted, stats.served + stats.canceled, "{stats:?}");
        assert!(stats.served >= 4);
        assert_eq!((stats.queue_len, stats.in_service, stats.callers_waiting), (0, 0, 0));
    });
}

// The stage is stopped at once while some callers wait for a place, some requests wait in the
// queue, and one is served.
#[test]
fn a_stage_that_stops_answers_all_requests() {
    scene(|handle| {
        let stage = Stage::builder("s").queue_len_max(1).width(1).wrap_fn(serve(Inside::new(1)));
        let served = Arc::new(AtomicU64::new(0));
        let senders = [0, 1, 2].map(|n| {
            let (stage, served) = (stage.clone(), served.clone());
            with(handle, move || match send(&stage, n) {
                Ok(m) => {
                    assert_eq!(m, n);
                    served.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => assert_eq!(error.refused().expect("it is refused").reason, Reason::Stopping),
            })
        });
        block_on(stage.stop_now());
        let stats = stage.stats();
        assert_eq!((stats.queue_len, stats.in_service), (0, 0), "it rests");
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let stats = stage.stats();
        assert_eq!((stats.queue_len, stats.in_service, stats.callers_waiting), (0, 0, 0));
        assert_eq!(stats.served, served.load(Ordering::SeqCst));
    });
}

/// A handler that dies at once, or one that serves.
#[derive(Clone)]
struct Handler {
    lives: bool,
}

impl Service<u32> for Handler {
    type Response = u32;
    type Error = &'static str;
    type Future = std::future::Ready<Result<u32, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        thread::yield_now();
        Poll::Ready(if self.lives { Ok(()) } else { Err("dead") })
    }

    fn call(&mut self, n: u32) -> Self::Future {
        ready(Ok(n))
    }
}

// The handlers of a stage die, so that it goes out of service while some wait; another version
// takes over at any moment.
#[test]
fn a_stage_out_of_service_answers_all_and_returns_with_another_version() {
    // Perhaps before it dies, and just when it does.
    [false, true].into_iter().for_each(taken_out);
}

fn taken_out(is_replaced_after_a_death: bool) {
    scene(move |handle| {
        let supervision = Supervision {
            backoff_min: Duration::ZERO,
            backoff_max: Duration::ZERO,
            deaths_max: 1,
            ..Supervision::default()
        };
        let builder = Stage::builder("s").queue_len_max(1).width(1).supervision(supervision);
        let stage = builder.wrap(Handler { lives: false });
        let senders = [0, 1, 2].map(|n| {
            let stage = stage.clone();
            with(handle, move || match send(&stage, n) {
                Ok(m) => assert_eq!(m, n),
                Err(StageError::Service(error)) => assert_eq!(error, "dead"),
                Err(error) => assert_eq!(error.refused().expect("it is refused").reason, Reason::Unavailable),
            })
        });
        let replaces = {
            let stage = stage.clone();
            with(handle, move || {
                while is_replaced_after_a_death && stage.stats().failed == 0 {
                    thread::yield_now();
                }
                stage.replace(Handler { lives: true });
            })
        };
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        replaces.join().unwrap();
        assert_eq!(stage.stats().status, Status::Running);
        assert_eq!(send(&stage, 9), Ok(9), "the new version serves");
        block_on(stage.stop());
        let stats = stage.stats();
        assert_eq!((stats.queue_len, stats.in_service), (0, 0), "it rests");
    });
}

// The width grows while one request is served that waits for the second.
#[test]
fn a_wider_stage_starts_the_waiting_requests() {
    scene(|handle| {
        let stage = Stage::builder("s").width(1).wrap_fn({
            let (second, inside) = (Arc::new(Notify::new()), Inside::new(2));
            move |n: u32| {
                let (second, inside) = (second.clone(), inside.clone());
                async move {
                    let _one = inside.enter();
                    // The first call ends when the second has started in parallel.
                    if n == 0 {
                        second.notified().await
                    } else {
                        second.notify_one()
                    }
                    Ok::<_, Infallible>(n)
                }
            }
        });
        let first = stage.ask(0).now();
        let senders = [1, 2].map(|n| {
            let stage = stage.clone();
            with(handle, move || assert_eq!(send(&stage, n), Ok(n)))
        });
        let widens = {
            let stage = stage.clone();
            with(handle, move || stage.set_width(2))
        };
        assert_eq!(block_on(first), Ok(0));
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        widens.join().unwrap();
        block_on(stage.stop());
        assert_eq!(stage.stats().served, 3);
    });
}

/// Sends through a pipeline, waiting for a place.
fn send_through<S>(pipeline: &S, n: u32) -> Result<u32, S::Error>
where
    S: Service<u32, Response = u32> + Clone,
{
    let mut pipeline = pipeline.clone();
    block_on(async {
        let response = pipeline.ready().await?.call(n);
        response.await
    })
}

// Three send through two stages with a queue of one slot each; a fourth one gives up, in the first
// or the second.
#[test]
fn both_stages_serve_each_request_even_if_others_give_up() {
    scene(|handle| {
        let [first, second] =
            ["1", "2"].map(|name| Stage::builder(name).queue_len_max(1).width(1).wrap_fn(serve(Inside::new(1))));
        let pipeline = first.clone().then(second.clone());
        let hasty = {
            let mut pipeline = pipeline.clone();
            with(handle, move || {
                let mut response = pin!(block_on(pipeline.ready()).unwrap().call(7));
                for _ in 0..2 {
                    if poll_once(response.as_mut()).is_ready() {
                        break;
                    }
                    thread::yield_now();
                }
            })
        };
        let senders = [1, 2, 3].map(|n| {
            let pipeline = pipeline.clone();
            with(handle, move || assert_eq!(send_through(&pipeline, n), Ok(n)))
        });
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        hasty.join().unwrap();
        for stage in [first, second] {
            block_on(stage.stop());
            let stats = stage.stats();
            assert_eq!(stats.accepted, stats.served + stats.canceled, "{stats:?}");
            assert_eq!((stats.queue_len, stats.in_service, stats.callers_waiting), (0, 0, 0));
        }
    });
}

// One of two stages is stopped while three requests are in flight, at once or after it has served
// what it accepted.
#[test]
fn a_pipeline_with_a_stopped_stage_answers_all_and_comes_to_rest() {
    [(0, false), (0, true), (1, false), (1, true)].into_iter().for_each(|(which, at_once)| stopped(which, at_once));
}

fn stopped(which: usize, at_once: bool) {
    scene_of(SCHEDULES / 4, move |handle| {
        let stages =
            ["1", "2"].map(|name| Stage::builder(name).queue_len_max(1).width(1).wrap_fn(serve(Inside::new(1))));
        let pipeline = stages[0].clone().then(stages[1].clone());
        let senders = [1, 2, 3].map(|n| {
            let pipeline = pipeline.clone();
            with(handle, move || match send_through(&pipeline, n) {
                Ok(m) => {
                    assert_eq!(m, n);
                    1
                }
                Err(error) => {
                    assert_eq!(error.refused().expect("it is refused").reason, Reason::Stopping);
                    0
                }
            })
        });
        let stage = &stages[which];
        if at_once {
            block_on(stage.stop_now())
        } else {
            block_on(stage.stop())
        };
        let stats = stage.stats();
        assert_eq!((stats.queue_len, stats.in_service), (0, 0), "it rests");
        let answered: u64 = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
        for stage in &stages {
            block_on(stage.stop());
            let stats = stage.stats();
            assert_eq!((stats.queue_len, stats.in_service, stats.callers_waiting), (0, 0, 0));
        }
        assert_eq!(stages[1].stats().served, answered);
    });
}

// The stage is stopped while requests arrive: it serves those that it has accepted before it rests.
#[test]
fn a_stage_that_stops_rests_when_the_last_one_is_served() {
    scene(|handle| {
        let stage = Stage::builder("s").queue_len_max(1).width(1).wrap_fn(serve(Inside::new(1)));
        let senders = [0, 1].map(|n| {
            let stage = stage.clone();
            with(handle, move || match send(&stage, n) {
                Ok(m) => assert_eq!(m, n),
                Err(error) => assert_eq!(error.refused().expect("it is refused").reason, Reason::Stopping),
            })
        });
        block_on(stage.stop());
        let stats = stage.stats();
        assert_eq!((stats.queue_len, stats.in_service), (0, 0), "it rests");
        let served = stats.served;
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let stats = stage.stats();
        assert_eq!((stats.accepted, stats.served), (served, served));
    });
}

// A cohort of two moves into a queue with room for one.
#[test]
fn a_cohort_goes_on_into_a_queue_that_is_shorter() {
    scene(|handle| {
        let first = Stage::builder("1")
            .width(2)
            .wrap_cohorts(2, async |cohort: Vec<u32>| cohort.into_iter().map(Ok::<_, Infallible>).collect());
        let second = Stage::builder("2").queue_len_max(1).width(1).wrap_fn(serve(Inside::new(1)));
        let pipeline = first.clone().then(second.clone());
        let senders = [1, 2, 3].map(|n| {
            let pipeline = pipeline.clone();
            with(handle, move || assert_eq!(send_through(&pipeline, n), Ok(n)))
        });
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        for stage in [first, second] {
            block_on(stage.stop());
            assert_eq!(stage.stats().served, 3);
        }
    });
}
