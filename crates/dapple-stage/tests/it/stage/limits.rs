//! Cohorts, and limits on memory, time, rate and the workers' time.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple_io::time::{Instant, sleep};
use dapple_stage::{Reason, Stage, StageError, Width};

use super::support::{Gate, State, eventually, until};

#[dapple::test]
async fn cohorts_take_what_waits_up_to_their_size() {
    let gate = Gate::new();
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let (inner, log) = (gate.clone(), sizes.clone());
    let stage = Stage::builder("cohorts").width(1).wrap_cohorts(4, move |numbers: Vec<u32>| {
        let (gate, log) = (inner.clone(), log.clone());
        async move {
            gate.pass().await;
            log.lock().unwrap().push(numbers.len());
            numbers.into_iter().map(|n| if n == 5 { Err("five") } else { Ok(10 * n) }).collect()
        }
    });
    let responses: Vec<_> = (0..10).map(|n| stage.ask(n).now()).collect();
    gate.open(10);
    for (n, response) in (0..).zip(responses) {
        match response.await {
            Ok(result) => assert_eq!(result, 10 * n),
            Err(error) => assert_eq!((n, error), (5, StageError::Service("five"))),
        }
    }
    assert_eq!(*sizes.lock().unwrap(), [1, 4, 4, 1]);
    let stats = stage.stats();
    assert_eq!((stats.served, stats.failed), (9, 1));
}

#[dapple::test]
async fn a_cohort_has_one_color() {
    let gate = Gate::new();
    let cohorts = Arc::new(Mutex::new(Vec::new()));
    let (inner, log) = (gate.clone(), cohorts.clone());
    let stage = Stage::builder("keyed").width(1).color_by(|n: &u32| n % 2).wrap_cohorts(3, move |numbers: Vec<u32>| {
        let (gate, log) = (inner.clone(), log.clone());
        async move {
            gate.pass().await;
            log.lock().unwrap().push(numbers.clone());
            numbers.into_iter().map(Ok::<_, Infallible>).collect()
        }
    });
    let responses: Vec<_> = [1, 2, 3, 4, 5, 6, 7].into_iter().map(|n| stage.ask(n).now()).collect();
    gate.open(7);
    for response in responses {
        response.await.unwrap();
    }
    assert_eq!(*cohorts.lock().unwrap(), [vec![1], vec![2, 4, 6], vec![3, 5, 7]]);
}

#[dapple::test]
async fn a_handler_with_too_few_results_fails_those_that_have_none() {
    let gate = Gate::new();
    let inner = gate.clone();
    let stage = Stage::builder("short").width(1).wrap_cohorts(4, move |numbers: Vec<u32>| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            numbers.into_iter().take(1).map(Ok::<_, Infallible>).collect()
        }
    });
    let responses = [0, 1, 2].map(|n| stage.ask(n).now());
    gate.open(2);
    let [one, two, three] = responses;
    assert_eq!((one.await, two.await), (Ok(0), Ok(1)));
    assert!(matches!(three.await, Err(StageError::Panicked(_))));
}

#[dapple::test]
async fn memory_of_the_queue_has_a_bound() {
    let gate = Gate::new();
    let inner = gate.clone();
    let stage =
        Stage::builder("bytes").width(1).queue_bytes_max(100, |bytes: &Vec<u8>| bytes.len()).wrap_fn(move |_| {
            let gate = inner.clone();
            async move {
                gate.pass().await;
                Ok::<_, Infallible>(())
            }
        });
    let mut kept = vec![stage.ask(vec![0; 100]).now(), stage.ask(vec![0; 60]).now(), stage.ask(vec![0; 30]).now()];
    assert_eq!(stage.stats().queue_bytes, 90);
    let refused = stage.ask(vec![0; 11]).await.unwrap_err();
    assert_eq!(refused.refused().unwrap().reason, Reason::Memory);
    kept.push(stage.ask(vec![0; 10]).now());
    let waits = dapple::spawn({
        let stage = stage.clone();
        async move { stage.ask(vec![0; 1]).await }
    });
    until(&stage, |stats| stats.callers_waiting == 1).await;
    gate.open(5);
    for response in kept {
        response.await.unwrap();
    }
    waits.await.unwrap().unwrap();
    assert_eq!(stage.stats().queue_bytes, 0);
    assert_eq!(stage.ask(vec![0; 101]).await.unwrap_err().refused().unwrap().reason, Reason::Memory);
}

#[dapple::test]
async fn a_call_that_takes_too_long_is_given_up() {
    let stage = Stage::builder("slow").width(1).time_limit(Duration::from_secs(2)).wrap_fn(
        async |(state, slow): (State, bool)| {
            if slow {
                pending::<()>().await;
            }
            drop(state);
            Ok::<_, Infallible>(())
        },
    );
    let state = State::new();
    let started = Instant::now();
    let (slow, next) = (stage.ask((state.clone(), true)).now(), stage.ask((state.clone(), false)).now());
    assert!(matches!(slow.await, Err(StageError::Expired(after)) if after == Duration::from_secs(2)));
    assert_eq!(next.await, Ok(()), "the place is free again");
    assert_eq!((started.elapsed(), state.held()), (Duration::from_secs(2), 0));
}

#[dapple::test]
async fn a_rate_is_kept() {
    let stage =
        Stage::builder("rate").rate(5, Duration::from_secs(1)).wrap_fn(async |()| Ok::<_, Infallible>(Instant::now()));
    let start = Instant::now();
    let responses: Vec<_> = (0..20).map(|_| stage.ask(()).now()).collect();
    let mut times = Vec::new();
    for response in responses {
        times.push((response.await.unwrap() - start).as_millis());
    }
    assert!(times[..5].iter().all(|time| *time == 0), "{times:?}");
    for (n, time) in times.iter().enumerate().skip(5) {
        let expected = (n as u128 - 4) * 200;
        assert!(time.abs_diff(expected) <= 2, "{n}: {times:?}");
    }
}

fn burn(time: Duration) {
    let start = std::time::Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

// Seconds of work are offered to a stage limited to a fifth of one worker; its own clock says how
// much it took.
#[dapple::test(workers = 1, clock = "real")]
async fn a_stage_takes_no_more_of_the_workers_than_its_share() {
    const CALL: Duration = Duration::from_millis(5);
    let late = Arc::new(Mutex::new(Duration::ZERO));
    let seen = late.clone();
    let greedy = Stage::builder("greedy").worker_share(0.2).wrap_sync(move |()| {
        let start = std::time::Instant::now();
        burn(CALL);
        *seen.lock().unwrap() += start.elapsed().saturating_sub(CALL);
    });
    let start = std::time::Instant::now();
    let floods: Vec<_> = (0..1_000).map(|_| greedy.ask(()).now()).collect();
    let other = Stage::builder("other").wrap_sync(|n: u32| n);
    while start.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(other.ask(1).await, Ok(1));
        sleep(Duration::from_millis(20)).await;
    }
    let (took, elapsed) = (greedy.stats().worker_time, start.elapsed());
    // A burst of calls, plus the time of calls that took too long because other processes had the
    // processor: a started call runs to its end.
    let most = elapsed.mul_f64(0.2) + Duration::from_millis(170) + *late.lock().unwrap();
    assert!(took <= most, "{took:?} of {elapsed:?}");
    assert!(greedy.stats().served >= 5);
    drop(floods);
}

#[dapple::test(workers = 1, clock = "real")]
async fn a_call_that_awaits_keeps_to_the_share_while_it_is_in_service() {
    let endless = Stage::builder("endless").width(1).worker_share(0.1).wrap_fn(async |spins: Arc<Mutex<u32>>| {
        loop {
            burn(Duration::from_millis(1));
            *spins.lock().unwrap() += 1;
            dapple::yield_now().await;
        }
        #[allow(unreachable_code, reason = "it names the function's return value")]
        Ok::<(), Infallible>(())
    });
    let spins = Arc::new(Mutex::new(0));
    let start = std::time::Instant::now();
    let running = endless.ask(spins.clone()).now();
    sleep(Duration::from_millis(1_000)).await;
    let (took_ms, elapsed) = (*spins.lock().unwrap(), start.elapsed());
    drop(running);
    let most = elapsed.as_millis() / 10 + 10 + 50;
    assert!(took_ms > 5 && u128::from(took_ms) <= most, "{took_ms} ms of {elapsed:?}");
}

#[dapple::test]
async fn the_width_is_found_between_its_bounds() {
    // At most 6 at a time make progress; each takes one second of that.
    let device = Arc::new(dapple_sync::sync::Semaphore::new(6));
    let stage = Stage::builder("device").width(Width::adaptive(2..=60)).queue_len_max(20_000).wrap_fn(move |()| {
        let device = device.clone();
        async move {
            let _one = device.acquire().await.expect("the semaphore is never closed");
            sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(())
        }
    });
    let mut widths = Vec::new();
    let responses: Vec<_> = (0..8_000).map(|_| stage.ask(()).now()).collect();
    for (n, response) in responses.into_iter().enumerate() {
        response.await.unwrap();
        if n > 4_000 {
            widths.push(stage.stats().width);
        }
    }
    let mean = widths.iter().sum::<usize>() as f64 / widths.len() as f64;
    assert!((4.0..=12.0).contains(&mean), "{mean}");
    assert!(widths.iter().all(|width| (2..=60).contains(width)));
}

#[dapple::test]
async fn no_time_is_too_long_for_a_request() {
    let gate = Gate::new();
    let inner = gate.clone();
    let stage = Stage::builder("patient").width(1).wrap_fn(move |n: u32| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(n)
        }
    });
    gate.open(2);
    let responses = [1, 2].map(|n| stage.ask(n).within(Duration::MAX).now());
    for (n, response) in (1..).zip(responses) {
        assert_eq!(response.await, Ok(n));
    }
}

#[dapple::test]
async fn a_width_can_be_changed_while_it_serves() {
    let gate = Gate::new();
    let inner = gate.clone();
    let stage = Stage::builder("wider").width(1).wrap_fn(move |()| {
        let gate = inner.clone();
        async move {
            gate.pass().await;
            Ok::<_, Infallible>(())
        }
    });
    let responses: Vec<_> = (0..9).map(|_| stage.ask(()).now()).collect();
    eventually(|| gate.inside().0 == 1).await;
    stage.set_width(4);
    eventually(|| gate.inside().0 == 4).await;
    stage.set_width(2);
    gate.open(2);
    until(&stage, |stats| stats.served == 2).await;
    assert_eq!(stage.stats().in_service, 2);
    gate.open(7);
    for response in responses {
        response.await.unwrap();
    }
}

#[dapple::test]
async fn the_largest_and_the_least_numbers_limit_nothing_or_all_but_one() {
    let stage = Stage::builder("most")
        .queue_len_max(usize::MAX)
        .queue_bytes_max(usize::MAX, |_| usize::MAX)
        .width(usize::MAX)
        .deadline(Duration::MAX)
        .time_limit(Duration::MAX)
        .rate(u32::MAX, Duration::MAX)
        .worker_share(f64::INFINITY)
        .wrap_cohorts(usize::MAX, async |numbers: Vec<u32>| numbers.into_iter().map(Ok::<_, Infallible>).collect());
    assert_eq!(stage.ask(1).within(Duration::MAX).rank(u8::MAX).await, Ok(1));
    stage.set_width(0);
    assert_eq!(stage.ask(2).await, Ok(2));
    let stage = Stage::builder("least")
        .queue_len_max(0)
        .width(0)
        .rate(0, Duration::ZERO)
        .worker_share(-1.0)
        .wrap_cohorts(0, async |numbers: Vec<u32>| numbers.into_iter().map(Ok::<_, Infallible>).collect());
    assert_eq!((stage.ask(1).await, stage.ask(2).await), (Ok(1), Ok(2)));
}

#[test]
#[should_panic(expected = "not a number")]
fn a_share_that_is_not_a_number_is_refused_at_once() {
    drop(Stage::<u32, ()>::builder("share").worker_share(f64::NAN));
}
