//! Timeout, ConcurrencyLimit and Shed.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dapple_sync::sync::Semaphore;
use dapple_tower::middleware::timeout::Elapsed;
use dapple_tower::middleware::{
    BufferLayer, ConcurrencyLimit, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, ShedLayer, TimeoutLayer,
};
use dapple_tower::{BoxError, Reason, Refused};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::executors::{on_each, poll_once};

const MS: Duration = Duration::from_millis(1);

/// A service with requests that wait for the gate, and the highest number in it at a time.
fn gated(
    gate: &Arc<Semaphore>,
) -> (Arc<AtomicUsize>, impl Service<u32, Response = u32, Error = BoxError, Future: Send> + Clone + Send + 'static) {
    let most = Arc::new(AtomicUsize::new(0));
    let (inside, peak, gate) = (Arc::new(AtomicUsize::new(0)), most.clone(), gate.clone());
    let service = service_fn(move |n: u32| {
        let (inside, peak, gate) = (inside.clone(), peak.clone(), gate.clone());
        async move {
            peak.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            gate.acquire().await.unwrap().forget();
            inside.fetch_sub(1, Ordering::SeqCst);
            Ok(n)
        }
    });
    (most, service)
}

fn reason(error: &BoxError) -> Reason {
    Refused::find(&**error).expect("a refusal").reason.clone()
}

#[test]
fn a_response_that_takes_too_long_is_given_up() {
    on_each(|| async {
        let never = ServiceBuilder::new()
            .layer(TimeoutLayer::new(20 * MS))
            .service(service_fn(|(): ()| pending::<Result<(), std::io::Error>>()));
        let start = Instant::now();
        let error = never.oneshot(()).await.unwrap_err();
        assert_eq!(error.downcast_ref::<Elapsed>().unwrap().limit, 20 * MS);
        assert_eq!(error.to_string(), "no response within 20ms");
        assert!(start.elapsed() >= 20 * MS);
        let quick = TimeoutLayer::new(Duration::ZERO).layer(service_fn(async |n: u8| Ok::<_, std::io::Error>(n)));
        assert_eq!(quick.oneshot(7).await.unwrap(), 7, "a ready response is returned");
    });
}

#[test]
fn a_panic_free_timeout_of_any_length() {
    let service = TimeoutLayer::new(Duration::MAX).layer(service_fn(|(): ()| pending::<Result<(), BoxError>>()));
    assert!(poll_once(pin!(service.oneshot(()))).is_pending());
}

#[test]
fn no_more_than_the_limit_are_in_service_and_waiters_come_in_turn() {
    on_each(|| async {
        let gate = Arc::new(Semaphore::new(0));
        let (most, service) = gated(&gate);
        let service = ConcurrencyLimit::new(service, 3);
        let mut responses: Vec<_> = (0..20).map(|n| Box::pin(service.clone().oneshot(n))).collect();
        for response in &mut responses {
            assert!(poll_once(response.as_mut()).is_pending());
        }
        gate.add_permits(20);
        for (n, response) in responses.into_iter().enumerate() {
            assert_eq!(response.await.unwrap(), n as u32);
        }
        assert_eq!(most.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_dropped_request_gives_its_place_to_the_next() {
    let gate = Arc::new(Semaphore::new(0));
    let (_, service) = gated(&gate);
    let service = ConcurrencyLimit::new(service, 1);
    let mut first = Box::pin(service.clone().oneshot(1));
    let mut second = Box::pin(service.clone().oneshot(2));
    let mut third = Box::pin(service.clone().oneshot(3));
    for response in [&mut first, &mut second, &mut third] {
        assert!(poll_once(response.as_mut()).is_pending());
    }
    drop(first); // in service
    drop(second); // granted the place by now
    gate.add_permits(1);
    assert_eq!(dapple_sched::block_on(third).unwrap(), 3);
    // Ready, and not used.
    let mut idle = service.clone();
    dapple_sched::block_on(idle.ready()).unwrap();
    let mut waits = service.clone();
    assert!(poll_once(pin!(waits.ready())).is_pending());
    drop(idle);
    dapple_sched::block_on(waits.ready()).unwrap();
}

#[test]
fn a_global_limit_holds_for_all_services_together() {
    let gate = Arc::new(Semaphore::new(0));
    let layer = GlobalConcurrencyLimitLayer::new(1);
    let (mut one, mut other) = (layer.layer(gated(&gate).1), layer.layer(gated(&gate).1));
    dapple_sched::block_on(one.ready()).unwrap();
    assert!(poll_once(pin!(other.ready())).is_pending());
}

#[test]
fn a_shed_refuses_what_finds_no_room_and_nothing_else() {
    on_each(|| async {
        let gate = Arc::new(Semaphore::new(0));
        let service =
            ServiceBuilder::new().layer(ShedLayer::new()).layer(ConcurrencyLimitLayer::new(2)).service(gated(&gate).1);
        let mut accepted = Vec::new();
        for n in 0..2 {
            let mut response = Box::pin(service.clone().oneshot(n));
            assert!(poll_once(response.as_mut()).is_pending());
            accepted.push(response);
        }
        // Connections that were refused, and stay open.
        let mut refused: Vec<_> = (0..10).map(|_| service.clone()).collect();
        for service in &mut refused {
            assert_eq!(reason(&service.ready().await.unwrap().call(9).await.unwrap_err()), Reason::Busy);
            assert!(poll_once(pin!(service.ready())).is_ready());
        }
        gate.add_permits(100);
        for response in accepted {
            response.await.unwrap();
        }
        // None of them has kept a place from the others.
        for _ in 0..3 {
            for service in &mut refused {
                assert_eq!(service.ready().await.unwrap().call(7).await.unwrap(), 7);
            }
        }
    });
}

#[test]
fn room_that_comes_between_the_look_and_the_request_is_used() {
    let gate = Arc::new(Semaphore::new(1));
    let service =
        ServiceBuilder::new().layer(ShedLayer::new()).layer(ConcurrencyLimitLayer::new(1)).service(gated(&gate).1);
    let (mut first, mut second) = (service.clone(), service);
    dapple_sched::block_on(async {
        let occupies = first.ready().await.unwrap();
        let looked = second.ready().await.unwrap();
        occupies.call(1).await.unwrap();
        gate.add_permits(1);
        assert_eq!(looked.call(2).await.unwrap(), 2);
    });
}

#[test]
fn a_shed_waits_for_what_is_behind_a_limit_that_has_room() {
    // Becomes ready at the second poll, as a connection does.
    #[derive(Clone)]
    struct Connects(bool);
    impl Service<()> for Connects {
        type Response = ();
        type Error = BoxError;
        type Future = std::future::Ready<Result<(), BoxError>>;
        fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> {
            if std::mem::replace(&mut self.0, true) {
                return std::task::Poll::Ready(Ok(()));
            }
            cx.waker().wake_by_ref();
            std::task::Poll::Pending
        }
        fn call(&mut self, (): ()) -> Self::Future {
            std::future::ready(Ok(()))
        }
    }
    on_each(|| async {
        let limit = ConcurrencyLimitLayer::new(1);
        let service = ServiceBuilder::new().layer(ShedLayer::new()).layer(limit).service(Connects(false));
        service.oneshot(()).await.unwrap();
        let bare = ServiceBuilder::new().layer(ShedLayer::new()).service(Connects(false));
        assert!(bare.oneshot(()).await.is_ok(), "it is ready by the time of the request");
    });
}

#[test]
fn a_shed_around_a_buffer_says_how_many_wait() {
    let gate = Arc::new(Semaphore::new(0));
    let limit = ConcurrencyLimitLayer::new(1);
    let layers = ServiceBuilder::new().layer(ShedLayer::new()).layer(BufferLayer::new(2)).layer(limit);
    let service = layers.service(gated(&gate).1);
    let mut accepted: Vec<_> = (0..3).map(|n| Box::pin(service.clone().oneshot(n))).collect();
    for response in &mut accepted {
        assert!(poll_once(response.as_mut()).is_pending());
    }
    let error = dapple_sched::block_on(service.clone().oneshot(9)).unwrap_err();
    assert_eq!(reason(&error), Reason::Full { len: 2 });
    gate.add_permits(3);
    for response in accepted {
        dapple_sched::block_on(response).unwrap();
    }
}
