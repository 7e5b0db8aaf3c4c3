//! The queue: its bound, back-pressure, shedding, order, canceling, deadlines.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use dapple_io::time::{advance, pause};
use dapple_stage::{Reason, Stage, StageError, Status};
use tower_service::Service;

use super::support::{Gate, State, eventually, until};

fn gated(gate: &Gate, width: usize, len: usize) -> Stage<u32, u32> {
    let gate = gate.clone();
    Stage::builder("gated").queue_len_max(len).width(width).wrap_fn(move |n| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(n)
        }
    })
}

#[dapple::test]
async fn no_more_than_the_width_are_in_service() {
    let gate = Gate::new();
    let stage = gated(&gate, 3, 100);
    let responses: Vec<_> = (0..10).map(|n| stage.ask(n).now()).collect();
    eventually(|| gate.inside().0 == 3).await;
    let stats = stage.stats();
    assert_eq!((stats.in_service, stats.queue_len, stats.width), (3, 7, 3));
    gate.open(10);
    for (n, response) in responses.into_iter().enumerate() {
        assert_eq!(response.await, Ok(n as u32));
    }
    assert_eq!(gate.inside(), (0, 3));
    let stats = stage.stats();
    assert_eq!((stats.served, stats.accepted, stats.in_service, stats.queue_len), (10, 10, 0, 0));
    assert_eq!(stats.status, Status::Running);
}

#[dapple::test]
async fn a_full_queue_refuses_callers_that_do_not_wait() {
    let gate = Gate::new();
    let stage = gated(&gate, 1, 2);
    let taken = [0, 1, 2].map(|n| {
        let response = stage.ask(n).now();
        assert!(n > 0 || stage.stats().in_service == 1);
        response
    });
    let error = stage.ask(3).now().await.unwrap_err();
    assert_eq!(error.refused().map(|refused| refused.reason.clone()), Some(Reason::Full { len: 2 }));
    assert_eq!(stage.stats().refused_for, [("full", 1)]);
    gate.open(3);
    for response in taken {
        assert!(response.await.is_ok());
    }
}

#[dapple::test]
async fn a_stage_that_sheds_is_always_ready_and_refuses() {
    let gate = Gate::new();
    let inner = gate.clone();
    let mut stage = Stage::builder("sheds").shed().queue_len_max(1).width(1).wrap_fn(move |n: u32| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(n)
        }
    });
    let mut kept = Vec::new();
    for n in 0..5 {
        poll_fn(|cx| stage.poll_ready(cx)).await.unwrap();
        kept.push(stage.call(n));
    }
    gate.open(2);
    let mut refused = 0;
    for response in kept {
        match response.await {
            Ok(_) => {}
            Err(StageError::Refused(why)) => {
                assert_eq!(why.reason, Reason::Full { len: 1 });
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 3);
}

#[dapple::test]
async fn callers_wait_while_the_queue_is_full_and_come_in_order() {
    let gate = Gate::new();
    let stage = gated(&gate, 1, 1);
    let (served, waiting) = (stage.ask(0).now(), stage.ask(1).now());
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut callers = Vec::new();
    for n in 2..6 {
        let (caller, order) = (stage.clone(), order.clone());
        callers.push(dapple::spawn(async move {
            let result = caller.ask(n).await;
            order.lock().unwrap().push(n);
            result
        }));
        let line = (n - 1) as usize;
        until(&stage, |stats| stats.callers_waiting == line).await;
    }
    for n in 1..=6 {
        gate.open(1);
        until(&stage, |stats| stats.served == n).await;
    }
    assert_eq!((served.await, waiting.await), (Ok(0), Ok(1)));
    for caller in callers {
        assert!(caller.await.unwrap().is_ok());
    }
    assert_eq!(*order.lock().unwrap(), [2, 3, 4, 5]);
}

#[dapple::test]
async fn a_handle_that_gives_up_gives_its_place_to_the_next() {
    let gate = Gate::new();
    let stage = gated(&gate, 1, 1);
    let busy = stage.ask(0).now();
    let (mut holds, mut first, mut second) = (stage.clone(), stage.clone(), stage.clone());
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(holds.poll_ready(cx).is_ready(), "the place is promised to the next");
    assert!(stage.ask(9).now().await.is_err(), "and to no other handle");
    assert!(first.poll_ready(cx).is_pending() && second.poll_ready(cx).is_pending());
    drop(first);
    drop(holds);
    assert!(second.poll_ready(cx).is_ready());
    let sent = second.call(7);
    gate.open(2);
    assert_eq!((busy.await, sent.await), (Ok(0), Ok(7)));
}

#[dapple::test]
async fn higher_ranks_go_first() {
    let gate = Gate::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (inner, log) = (gate.clone(), order.clone());
    let stage = Stage::builder("ranked").width(1).rank(|n: &u32| (*n % 10) as u8).wrap_fn(move |n| {
        let (gate, log) = (inner.clone(), log.clone());
        async move {
            gate.pass().await;
            log.lock().unwrap().push(n);
            Ok::<_, Infallible>(())
        }
    });
    let responses: Vec<_> = [10, 20, 31, 41, 52, 60].into_iter().map(|n| stage.ask(n).now()).collect();
    let urgent = stage.ask(70).rank(200).now();
    gate.open(7);
    for response in responses.into_iter().chain([urgent]) {
        response.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [10, 70, 52, 31, 41, 20, 60]);
}

#[dapple::test]
async fn a_response_that_is_dropped_cancels_at_once() {
    let gate = Gate::new();
    let inner = gate.clone();
    let stage = Stage::builder("cancels").width(1).queue_len_max(2).wrap_fn(move |state: State| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            drop(state);
            Ok::<_, Infallible>(())
        }
    });
    let state = State::new();
    let (in_service, waits, stays) =
        (stage.ask(state.clone()).now(), stage.ask(state.clone()).now(), stage.ask(state.clone()).now());
    eventually(|| gate.inside().0 == 1).await;
    assert_eq!(state.held(), 3);
    drop(waits);
    assert_eq!((state.held(), stage.stats().queue_len), (2, 1), "at once");
    drop(in_service);
    until(&stage, |stats| stats.canceled == 2).await;
    gate.open(1);
    stays.await.unwrap();
    let stats = stage.stats();
    assert_eq!((state.held(), stats.canceled, stats.served), (0, 2, 1));
}

#[dapple::test]
async fn a_request_with_a_forgotten_response_is_served() {
    let gate = Gate::new();
    let stage = gated(&gate, 1, 4);
    (0..3).for_each(|n| stage.ask(n).and_forget().unwrap());
    gate.open(3);
    until(&stage, |stats| stats.served == 3).await;
}

#[dapple::test]
async fn what_was_taken_in_is_served_when_all_handles_are_gone() {
    let (done, gate) = (Arc::new(Mutex::new(0)), Gate::new());
    let (inner, log) = (gate.clone(), done.clone());
    let stage = Stage::builder("left").width(1).rate(1, Duration::from_secs(5)).wrap_fn(move |n: u32| {
        let (gate, log) = (inner.clone(), log.clone());
        async move {
            gate.pass().await;
            *log.lock().unwrap() += n;
            Ok::<_, Infallible>(())
        }
    });
    (0..4).for_each(|_| stage.ask(1).and_forget().unwrap());
    drop(stage);
    gate.open(4);
    eventually(|| *done.lock().unwrap() == 4).await;
}

#[dapple::test]
async fn a_request_is_dropped_when_its_deadline_comes() {
    let paused = pause();
    let gate = Gate::new();
    let (inner, dropped) = (gate.clone(), Arc::new(Mutex::new(Vec::new())));
    let log = dropped.clone();
    let stage = Stage::builder("late")
        .width(1)
        .deadline(Duration::from_secs(10))
        .on_drop(move |(n, _): (u32, State), why| log.lock().unwrap().push((n, why.reason.clone())))
        .wrap_fn(move |(n, state)| {
            let gate = inner.clone();
            async move {
                gate.pass().await;
                drop(state);
                Ok::<_, Infallible>(n)
            }
        });
    let state = State::new();
    let served = stage.ask((0, state.clone())).within(Duration::from_secs(100)).now();
    let own = Arc::new(Mutex::new(0));
    let place = own.clone();
    let late = stage
        .ask((1, state.clone()))
        .within(Duration::from_secs(3))
        .on_drop(move |(n, _), _| *place.lock().unwrap() = n)
        .now();
    let later = stage.ask((2, state.clone())).now();
    let waits = stage.ask((3, state.clone())).within(Duration::from_secs(100)).now();
    advance(Duration::from_millis(2_999)).await;
    assert_eq!((stage.stats().queue_len, state.held()), (3, 4));
    advance(Duration::from_millis(1)).await;
    assert_eq!((stage.stats().queue_len, *own.lock().unwrap(), state.held()), (2, 1, 3), "its own drop callback");
    advance(Duration::from_secs(7)).await;
    assert_eq!((stage.stats().queue_len, state.held()), (1, 2));
    assert_eq!(*dropped.lock().unwrap(), [(2, Reason::Deadline)], "that of the stage");
    for response in [late, later] {
        assert_eq!(response.await.unwrap_err().refused().unwrap().reason, Reason::Deadline);
    }
    drop(paused);
    gate.open(2);
    assert_eq!((served.await, waits.await), (Ok(0), Ok(3)));
    assert_eq!(stage.stats().refused_for, [("deadline", 2)]);
}

#[dapple::test]
async fn a_deadline_counts_while_the_caller_waits_for_a_place_and_in_service() {
    let gate = Gate::new();
    let stage = gated(&gate, 1, 1);
    let (served, waits) = (stage.ask(0).within(Duration::from_secs(50)).now(), stage.ask(1).now());
    let outside = stage.ask(2).within(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(outside.refused().unwrap().reason, Reason::Deadline);
    assert!(matches!(served.await, Err(StageError::Expired(_))));
    gate.open(1);
    assert_eq!(waits.await, Ok(1));
    assert_eq!(stage.stats().expired, 1);
    let past = stage.ask(3).within(Duration::ZERO).await.unwrap_err();
    assert_eq!(past.refused().unwrap().reason, Reason::Deadline);
}

#[dapple::test]
async fn the_admission_hook_decides() {
    let gate = Gate::new();
    let inner = gate.clone();
    let stage = Stage::builder("choosy")
        .width(1)
        .admission(|_: &u32, load| {
            let refused = dapple_stage::Refused::new(Reason::Class, Duration::from_secs(1));
            if load.queue_len < 2 { Ok(()) } else { Err(refused) }
        })
        .wrap_fn(move |n| {
            let gate = inner.clone();
            async move {
                gate.pass().await;
                Ok::<_, Infallible>(n)
            }
        });
    let taken = [0, 1, 2].map(|n| stage.ask(n).now());
    let refused = stage.ask(3).await.unwrap_err();
    assert_eq!(refused.refused().unwrap().retry_after, Duration::from_secs(1));
    gate.open(3);
    for response in taken {
        response.await.unwrap();
    }
}

#[dapple::test]
async fn stopping_serves_what_was_taken_in() {
    let gate = Gate::new();
    let stage = gated(&gate, 1, 1);
    let (served, waits) = (stage.ask(0).now(), stage.ask(1).now());
    let in_line = dapple::spawn({
        let stage = stage.clone();
        async move { stage.ask(2).await }
    });
    until(&stage, |stats| stats.callers_waiting == 1).await;
    let stopped = dapple::spawn(stage.stop());
    let told = in_line.await.unwrap().unwrap_err();
    assert_eq!(told.refused().unwrap().reason, Reason::Stopping);
    assert!(!stopped.is_finished());
    assert_eq!(stage.stats().status, Status::Stopping);
    gate.open(2);
    stopped.await.unwrap();
    assert_eq!((served.await, waits.await), (Ok(0), Ok(1)));

    let stage = gated(&gate, 1, 4);
    let (served, waits) = (stage.ask(0).now(), stage.ask(1).now());
    let stopped = stage.stop_now();
    assert_eq!(waits.await.unwrap_err().refused().unwrap().reason, Reason::Stopping);
    gate.open(1);
    stopped.await;
    assert_eq!(served.await, Ok(0));
}

#[test]
fn callers_learn_that_the_runtime_has_stopped() {
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    let entered = runtime.enter();
    let gate = Gate::new();
    let stage = gated(&gate, 1, 100);
    let responses: Vec<_> = (0..50).map(|n| stage.ask(n).now()).collect();
    drop(entered);
    drop(runtime);
    for response in responses {
        assert_eq!(dapple_sched::block_on(response), Err(StageError::Stopped));
    }
    let late = dapple_sched::block_on(stage.ask(1).now());
    assert_eq!(late, Err(StageError::Stopped));
}

#[test]
fn a_handle_can_be_used_in_another_executor() {
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    let gate = Gate::new();
    let inner = gate.clone();
    let stage =
        Stage::builder("ours").runtime(runtime.handle().clone()).queue_len_max(1).width(1).wrap_fn(move |n: u32| {
            let gate = inner.clone();
            async move {
                gate.pass().await;
                Ok::<_, Infallible>(n)
            }
        });
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    tokio.block_on(async {
        let asks: Vec<_> = (0..4)
            .map(|n| {
                let stage = stage.clone();
                tokio::spawn(async move { stage.ask(n).within(Duration::from_secs(60)).await })
            })
            .collect();
        while stage.stats().callers_waiting < 2 {
            tokio::task::yield_now().await;
        }
        gate.open(4);
        for (n, ask) in (0..).zip(asks) {
            assert_eq!(ask.await.unwrap(), Ok(n));
        }
    });
}

#[dapple::test(workers = 2, clock = "real")]
async fn what_a_dropped_request_holds_is_freed_although_its_color_is_busy() {
    let color = dapple_sched::Color::new();
    let (busy, free) = (Arc::new(Mutex::new(true)), State::new());
    let inner = busy.clone();
    let stage =
        Stage::builder("busy").color(color).width(4).queue_len_max(10).wrap_sync(move |_state: Option<State>| {
            while *inner.lock().unwrap() {
                std::thread::yield_now();
            }
        });
    stage.set_width(1);
    let blocks = stage.ask(None).now();
    let late = stage.ask(Some(free.clone())).within(Duration::from_millis(20)).on_drop(|state, _| drop(state)).now();
    eventually(|| free.held() == 0).await;
    assert_eq!(late.await.unwrap_err().refused().unwrap().reason, Reason::Deadline);
    *busy.lock().unwrap() = false;
    blocks.await.unwrap();
}
