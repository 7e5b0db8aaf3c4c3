//! Requests that are sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dapple_tower::middleware::retry::{Attempts, Budget, Policy, RetryLayer, Verdict};
use dapple_tower::{Backoff, BoxError, Reason, Refused};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use crate::executors::on_each;

const MS: Duration = Duration::from_millis(1);

fn quick() -> Backoff {
    Backoff::new(MS, 4 * MS)
}

/// Fails this many times with the result of `error`, and counts calls.
fn failing(
    times: u32,
    error: fn() -> BoxError,
) -> (Arc<AtomicU32>, impl Service<u32, Response = u32, Error = BoxError, Future: Send> + Clone + Send) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let service = service_fn(move |n: u32| {
        let call = counted.fetch_add(1, Ordering::SeqCst);
        async move { if call < times { Err(error()) } else { Ok(n) } }
    });
    (calls, service)
}

#[test]
fn it_is_sent_until_it_succeeds_or_the_attempts_are_used_up() {
    on_each(|| async {
        let (calls, service) = failing(2, || "not yet".into());
        let layer = RetryLayer::new(Attempts::new(3).backoff(quick()));
        assert_eq!(ServiceBuilder::new().layer(layer.clone()).service(service).oneshot(7).await.unwrap(), 7);
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        let (calls, service) = failing(100, || "never".into());
        let error = ServiceBuilder::new().layer(layer).service(service).oneshot(7).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), calls.load(Ordering::SeqCst)), ("never", 3));
    });
}

#[test]
fn a_refusal_is_tried_again_after_the_time_that_it_says() {
    on_each(|| async {
        let (calls, service) = failing(1, || Refused::new(Reason::Full { len: 9 }, 50 * MS).into());
        let start = Instant::now();
        let layer = RetryLayer::new(Attempts::new(2).backoff(quick()));
        ServiceBuilder::new().layer(layer).service(service).oneshot(7).await.unwrap();
        assert!(start.elapsed() >= 50 * MS);
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_budget_bounds_the_retries_of_all_its_users() {
    on_each(|| async {
        let budget = Budget::new(Duration::from_secs(60), 0, 0.1);
        let layer = RetryLayer::new(Attempts::new(5).backoff(quick()).budget(budget));
        let (calls, service) = failing(u32::MAX, || "overloaded".into());
        let service = ServiceBuilder::new().layer(layer).service(service);
        for n in 0..200 {
            assert!(service.clone().oneshot(n).await.is_err());
        }
        // All requests at once, or in windows that move on: retries never exceed a tenth.
        let calls = calls.load(Ordering::SeqCst);
        assert!((201..=220).contains(&calls), "{calls} calls for 200 requests");
    });
}

#[test]
fn a_judge_sees_responses_as_well() {
    on_each(|| async {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let service = service_fn(move |(): ()| {
            let status = if counted.fetch_add(1, Ordering::SeqCst) == 0 { 503 } else { 200 };
            async move { Ok::<u16, BoxError>(status) }
        });
        let layer =
            RetryLayer::new(Attempts::new(3).backoff(quick()).judge(|result: Result<&u16, &BoxError>| match result {
                Ok(500..) => Verdict::After(MS),
                _ => Verdict::Done,
            }));
        let mut service = ServiceBuilder::new().layer(layer).service(service);
        assert_eq!(service.ready().await.unwrap().call(()).await.unwrap(), 200);
    });
}

#[test]
fn a_policy_of_ones_own_has_the_shape_of_towers() {
    #[derive(Clone)]
    struct Twice(u32);
    impl Policy<u32, u32, BoxError> for Twice {
        type Future = std::future::Ready<()>;
        fn retry(&mut self, request: &mut u32, result: &mut Result<u32, BoxError>) -> Option<Self::Future> {
            self.0 = self.0.checked_sub(1)?;
            *request += 1;
            result.is_err().then(|| std::future::ready(()))
        }
        fn clone_request(&mut self, request: &u32) -> Option<u32> {
            Some(*request)
        }
    }
    on_each(|| async {
        let (_, service) = failing(1, || "once".into());
        assert_eq!(
            ServiceBuilder::new().layer(RetryLayer::new(Twice(2))).service(service).oneshot(7).await.unwrap(),
            8
        );
    });
}

#[test]
fn dropped_while_it_waits_it_sends_nothing_more() {
    let (calls, service) = failing(9, || "no".into());
    let hours = Backoff::new(Duration::from_secs(3_600), Duration::from_secs(3_600));
    let mut response = Box::pin(
        ServiceBuilder::new().layer(RetryLayer::new(Attempts::new(9).backoff(hours))).service(service).oneshot(7),
    );
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(response.as_mut().poll(&mut cx).is_pending());
    drop(response);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
