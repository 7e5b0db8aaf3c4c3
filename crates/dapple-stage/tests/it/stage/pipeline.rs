//! Stages in sequence and in parallel.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple_stage::graph::named;
use dapple_stage::{Either, Overload, PipelineError, Reason, Stage, StageError, fuse};
use tower_service::Service;

use super::support::{Gate, State, eventually, until};

fn gated<T: Send + 'static>(name: &str, gate: &Gate, width: usize, len: usize) -> Stage<T, T> {
    let gate = gate.clone();
    Stage::builder(name).queue_len_max(len).width(width).wrap_fn(move |value: T| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(value)
        }
    })
}

#[dapple::test]
async fn responses_of_one_are_requests_of_the_next() {
    let parse =
        Stage::builder("parse").wrap_fn(async |text: &'static str| text.parse::<u32>().map_err(|_| "no number"));
    let check = Stage::builder("check").wrap_fn(async |n: u32| if n < 100 { Ok(n) } else { Err("too large") });
    let show = Stage::builder("show").wrap_sync(|n: u32| n.to_string());
    let pipeline = parse.clone().then(check.clone()).then(show);
    assert_eq!(pipeline.ask("42").await.unwrap(), "42");
    assert_eq!(pipeline.ask("x").await, Err(PipelineError::First(StageError::Service("no number"))));
    let error = pipeline.ask("1000").await.unwrap_err();
    assert_eq!(error, PipelineError::Next(PipelineError::First(StageError::Service("too large"))));
    assert_eq!((parse.stats().served, check.stats().served, check.stats().failed), (2, 1, 1));
}

#[dapple::test]
async fn a_slow_stage_holds_back_those_before_it_and_at_last_the_callers() {
    let (open, slow) = (Gate::new(), Gate::new());
    open.open(1_000);
    let (first, second) = (gated("first", &open, 2, 3), gated("second", &slow, 1, 2));
    let mut pipeline = first.clone().then(second.clone());
    let mut responses = Vec::new();
    let cx = &mut Context::from_waker(Waker::noop());
    // 1 in service and 2 in the queue of the second stage; 2 in service of the first, waiting for
    // room there; 3 in its queue.
    for n in 0..8 {
        poll_fn(|cx| pipeline.poll_ready(cx)).await.unwrap();
        responses.push(pipeline.call(n));
        let (done, behind) = (n.min(2), n as usize);
        if n < 3 {
            until(&second, |stats| stats.in_service + stats.queue_len == behind + 1).await;
        }
        assert!(done <= 2);
    }
    until(&first, |stats| (stats.in_service, stats.queue_len) == (2, 3)).await;
    assert_eq!((second.stats().in_service, second.stats().queue_len, slow.inside().0), (1, 2, 1));
    assert!(pipeline.poll_ready(cx).is_pending(), "back-pressure has reached the caller");
    assert_eq!(pipeline.clone().call(9).await.unwrap_err().refused().unwrap().reason, Reason::Full { len: 3 });
    slow.open(8);
    for (n, response) in (0..).zip(responses) {
        assert_eq!(response.await, Ok(n));
    }
    poll_fn(|cx| pipeline.poll_ready(cx)).await.unwrap();
}

#[dapple::test]
async fn a_refusal_of_the_next_comes_back_to_the_caller() {
    let (open, slow) = (Gate::new(), Gate::new());
    open.open(1_000);
    let inner = slow.clone();
    let second = Stage::builder("sheds").shed().queue_len_max(1).width(1).wrap_fn(move |n: u32| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(n)
        }
    });
    let pipeline = gated("first", &open, 1, 10).then(second.clone());
    let kept: Vec<_> = (0..2).map(|n| pipeline.clone().call(n)).collect();
    until(&second, |stats| stats.in_service + stats.queue_len == 2).await;
    let error = pipeline.ask(7).await.unwrap_err();
    assert_eq!(error.refused().unwrap().reason, Reason::Full { len: 1 });
    assert!(matches!(error, PipelineError::Next(_)));
    slow.open(2);
    for response in kept {
        response.await.unwrap();
    }
}

#[dapple::test]
async fn a_response_that_is_dropped_cancels_wherever_the_request_is() {
    let (one, two) = (Gate::new(), Gate::new());
    let (first, second) = (gated("first", &one, 1, 5), gated("second", &two, 1, 1));
    let mut pipeline = first.clone().then(second.clone());
    let state = State::new();
    let mut responses: Vec<_> = (0..5).map(|_| pipeline.call(state.clone())).collect();
    eventually(|| one.inside().0 == 1).await;
    // In the queue of the first stage.
    drop(responses.pop());
    assert_eq!(state.held(), 4);
    one.open(4);
    // One in service of the second stage, one in its queue, one waiting for room there, one in the
    // queue of the first.
    until(&second, |stats| (stats.in_service, stats.queue_len) == (1, 1)).await;
    until(&first, |stats| (stats.in_service, stats.queue_len) == (1, 1)).await;
    drop(responses.remove(2));
    eventually(|| state.held() == 3).await;
    until(&first, |stats| stats.in_service == 1).await;
    drop(responses.remove(1));
    eventually(|| state.held() == 2).await;
    drop(responses.remove(0));
    eventually(|| state.held() == 1 && two.inside().0 == 1).await;
    two.open(1);
    responses.pop().unwrap().await.unwrap();
    eventually(|| state.held() == 0).await;
    assert_eq!(second.stats().served, 1);
}

#[dapple::test]
async fn panics_and_deadlines_of_each_part_come_back() {
    let first = Stage::builder("first").time_limit(Duration::from_secs(5)).wrap_sync(|n: u32| {
        assert!(n != 1, "one");
        n
    });
    let gate = Gate::new();
    let second = gated("second", &gate, 1, 1);
    let pipeline = first.then(second);
    let message = "one".to_owned();
    assert_eq!(pipeline.ask(1).await, Err(PipelineError::First(StageError::Panicked(message))));
    let mut kept: Vec<_> = [2, 3].map(|n| pipeline.clone().call(n)).into();
    until(pipeline.next(), |stats| (stats.in_service, stats.queue_len) == (1, 1)).await;
    let late = pipeline.ask(4).await;
    assert!(matches!(late, Err(PipelineError::First(StageError::Expired(_)))), "{late:?}");
    gate.open(2);
    assert_eq!(kept.remove(0).await, Ok(2));
}

/// A service that is not a stage.
#[derive(Clone)]
struct Fails;

impl Service<u32> for Fails {
    type Response = u32;
    type Error = &'static str;
    type Future = Ready<Result<u32, &'static str>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Err("not today"))
    }

    fn call(&mut self, _request: u32) -> Self::Future {
        ready(Err("never"))
    }
}

#[dapple::test]
async fn any_service_can_follow_a_stage() {
    let pipeline = Stage::builder("first").wrap_sync(|n: u32| n).then(named("fails", Fails));
    assert_eq!(pipeline.ask(1).await, Err(PipelineError::Next("not today")));
}

/// Has room at the second poll, and takes nothing before.
#[derive(Clone, Default)]
struct Reluctant {
    asked: u32,
}

impl Service<u32> for Reluctant {
    type Response = u32;
    type Error = &'static str;
    type Future = Ready<Result<u32, &'static str>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        self.asked += 1;
        if self.asked > 1 {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, request: u32) -> Self::Future {
        ready(if self.asked > 1 { Ok(request) } else { Err("there was no room") })
    }
}

#[dapple::test]
async fn a_response_waits_until_the_next_service_has_room() {
    let pipeline = Stage::builder("first").wrap_sync(|n: u32| n).then(named("reluctant", Reluctant::default()));
    assert_eq!(pipeline.ask(1).await, Ok(1));
}

#[dapple::test]
async fn two_services_behind_one_queue_share_its_width() {
    let gate = Gate::new();
    let (numbers, texts) = (gated::<u32>("numbers", &gate, 10, 10), gated::<String>("texts", &gate, 10, 10));
    let both = Stage::builder("both").width(2).queue_len_max(2).combine(numbers, texts);
    let (mut left, mut right) = (both.left(), both.right());
    let one = left.call(1);
    let two = right.call("two".to_owned());
    let three = right.call("three".to_owned());
    let four = left.call(4);
    let refused = right.call("five".to_owned()).await.unwrap_err();
    assert_eq!(refused.refused().unwrap().reason, Reason::Full { len: 2 });
    eventually(|| gate.inside().0 == 2).await;
    let line = right.clone();
    let waits = dapple::spawn(async move { line.ask("six".to_owned()).await });
    until(both.stage(), |stats| stats.callers_waiting == 1).await;
    gate.open(5);
    assert_eq!((one.await, four.await), (Ok(1), Ok(4)));
    assert_eq!(
        (two.await.unwrap(), three.await.unwrap(), waits.await.unwrap().unwrap()),
        ("two".into(), "three".into(), "six".into())
    );
    assert_eq!((gate.inside().1, both.stage().stats().served), (2, 5));
}

#[dapple::test]
async fn errors_of_combined_services_keep_their_types() {
    let left = Stage::builder("left").wrap_fn(async |n: u32| if n > 0 { Ok(n) } else { Err("zero") });
    let right = Stage::builder("right").wrap_fn(async |n: i64| Err::<(), i64>(n));
    let both = Stage::builder("both").combine(left, right);
    assert_eq!(both.left().ask(0).await, Err(StageError::Service(StageError::Service("zero"))));
    assert_eq!(both.right().ask(-3).await, Err(StageError::Service(StageError::Service(-3))));
}

#[dapple::test]
async fn fused_services_have_no_queue_between_them() {
    let (one, two) = (Gate::new(), Gate::new());
    let (first, second) = (gated::<u32>("first", &one, 10, 10), gated::<u32>("second", &two, 10, 10));
    let fused = Stage::builder("fused").width(1).wrap(fuse(first, second.clone()));
    let responses: Vec<_> = (0..3).map(|n| fused.ask(n).now()).collect();
    one.open(3);
    until(&second, |stats| stats.in_service == 1).await;
    assert_eq!((fused.stats().in_service, fused.stats().queue_len, second.stats().in_service), (1, 2, 1));
    two.open(3);
    for (n, response) in (0..).zip(responses) {
        assert_eq!(response.await, Ok(n));
    }
    let fails = Stage::builder("fails").wrap(fuse(second, Fails));
    two.open(1);
    assert_eq!(fails.ask(1).await, Err(StageError::Service(Either::Right("not today"))));
}

#[dapple::test]
async fn cohorts_go_on_into_a_queue_that_is_shorter() {
    let gate = Gate::new();
    let inner = gate.clone();
    let cohorts = Stage::builder("cohorts").width(2).wrap_cohorts(4, move |numbers: Vec<u32>| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            numbers.into_iter().map(|n| if n % 5 == 4 { Err("four") } else { Ok(n) }).collect()
        }
    });
    let second = Stage::builder("one at a time").queue_len_max(1).width(1).wrap_sync(|n: u32| 10 * n);
    let mut pipeline = cohorts.clone().then(second.clone());
    let responses: Vec<_> = (0..10).map(|n| pipeline.call(n)).collect();
    gate.open(10);
    for (n, response) in (0..).zip(responses) {
        match response.await {
            Ok(result) => assert_eq!(result, 10 * n),
            Err(error) => {
                assert_eq!((n % 5, error), (4, PipelineError::First(StageError::Service("four"))));
            }
        }
    }
    let stats = cohorts.stats();
    assert_eq!((stats.served, stats.failed, stats.in_service), (8, 2, 0));
    assert_eq!(second.stats().served, 8);
}

fn is_too_late<E: Overload>(error: &E) -> bool {
    error.refused().is_some_and(|refused| refused.reason == Reason::Deadline)
}

#[dapple::test]
async fn a_request_to_a_pipeline_has_a_deadline_in_each_of_its_stages() {
    let (first, second) = (Gate::new(), Gate::new());
    let pipeline = gated::<State>("first", &first, 1, 9).then(gated("second", &second, 1, 9));
    let state = State::new();
    let soon = Duration::from_millis(20);
    let (tx, dropped) = std::sync::mpsc::channel();
    let on_drop = move |_: State, why: &dapple_stage::Refused| tx.send(why.reason.clone()).unwrap();
    // Requests in service in the first stage, which then wait there for the second.
    let busy = pipeline.ask(state.clone());
    let error = race(busy, pipeline.ask_with(state.clone(), |ask| ask.within(soon).on_drop(on_drop))).await;
    assert!(is_too_late(&error));
    eventually(|| dropped.try_recv() == Ok(Reason::Deadline)).await;
    // In service in the second stage.
    first.open(9);
    let error = pipeline.ask_with(state.clone(), |ask| ask.within(soon)).await.unwrap_err();
    assert!(matches!(error, PipelineError::First(StageError::Expired(_))), "{error:?}");
    eventually(|| state.held() == 0).await;
    second.open(9);
    assert!(pipeline.ask_with(state, |ask| ask.within(60 * Duration::from_secs(60)).rank(3)).await.is_ok());
}

/// Also polls the first future, until the second fails.
async fn race<T, E>(first: impl Future<Output = Result<T, E>>, second: impl Future<Output = Result<T, E>>) -> E {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    poll_fn(|cx| {
        assert!(first.as_mut().poll(cx).is_pending(), "no permit is given");
        second.as_mut().poll(cx).map(|result| result.err().expect("no permit is given"))
    })
    .await
}
