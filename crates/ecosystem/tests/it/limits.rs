//! tower's `ConcurrencyLimit` and `LoadShed`, alone and around an axum route.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::routing::get;
use hyper::StatusCode;
use tokio::sync::Semaphore;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::error::Overloaded;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::server::Server;
use crate::{assert_no_tokio, run};

/// Work that waits for a permit, and counts the tasks in it.
#[derive(Clone)]
struct Work {
    gate: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Work {
    fn new() -> Self {
        Work { gate: Arc::new(Semaphore::new(0)), inside: Arc::default(), most: Arc::default() }
    }

    async fn run(self) -> Result<(), Infallible> {
        assert_no_tokio();
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// Waits until this many are in it.
    async fn has(&self, count: usize) {
        while self.inside.load(Ordering::SeqCst) != count {
            dapple::yield_now().await;
        }
    }
}

fn a_limit_lets_in_so_many_and_the_rest_wait(workers: usize) {
    run(workers, async {
        let work = Work::new();
        let inner = work.clone();
        let limited = ServiceBuilder::new().concurrency_limit(3).service(service_fn(move |()| inner.clone().run()));
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let limited = limited.clone();
                dapple::spawn(async move { limited.oneshot(()).await })
            })
            .collect();
        for _ in 0..20 {
            // The most that the limit allows are inside, or all that are left.
            let before = permits_used(&calls);
            work.has(3.min(20 - before)).await;
            work.gate.add_permits(1);
            while permits_used(&calls) == before {
                dapple::yield_now().await;
            }
        }
        for call in calls {
            assert_eq!(call.await.unwrap(), Ok(()));
        }
        assert_eq!(work.most.load(Ordering::SeqCst), 3);
    });
}

fn permits_used<T>(calls: &[dapple::JoinHandle<T>]) -> usize {
    calls.iter().filter(|call| call.is_finished()).count()
}

#[test]
fn a_limit_lets_in_so_many_and_the_rest_wait_on_one_worker() {
    a_limit_lets_in_so_many_and_the_rest_wait(1);
}

#[test]
fn a_limit_lets_in_so_many_and_the_rest_wait_on_four_workers() {
    a_limit_lets_in_so_many_and_the_rest_wait(4);
}

#[test]
fn what_is_over_the_limit_is_refused_at_once_and_let_in_later() {
    run(2, async {
        let work = Work::new();
        let inner = work.clone();
        let mut service =
            ServiceBuilder::new().load_shed().concurrency_limit(2).service(service_fn(move |()| inner.clone().run()));
        for _ in 0..3 {
            let accepted = [service.ready().await.unwrap().call(()), service.ready().await.unwrap().call(())];
            let accepted = accepted.map(dapple::spawn);
            for _ in 0..5 {
                let refused: BoxError = service.ready().await.unwrap().call(()).await.unwrap_err();
                assert!(refused.is::<Overloaded>(), "{refused}");
            }
            work.gate.add_permits(2);
            for call in accepted {
                call.await.unwrap().unwrap();
            }
        }
    });
}

/// A call that is dropped gives its place back.
#[test]
fn a_call_that_is_dropped_makes_room() {
    run(2, async {
        let work = Work::new();
        let inner = work.clone();
        let mut service =
            ServiceBuilder::new().load_shed().concurrency_limit(1).service(service_fn(move |()| inner.clone().run()));
        let call = dapple::spawn(service.ready().await.unwrap().call(()));
        work.has(1).await;
        assert!(service.ready().await.unwrap().call(()).await.is_err());
        call.abort();
        assert!(call.await.is_err());
        work.gate.add_permits(1);
        service.ready().await.unwrap().call(()).await.unwrap();
    });
}

/// Around a route: excess requests get 503 while the others are still being served.
#[test]
fn a_route_sheds_its_load() {
    run(2, async {
        let work = Work::new();
        let inner = work.clone();
        let page = get(async move || {
            let Ok(()) = inner.run().await;
            "a page"
        });
        let busy = HandleErrorLayer::new(async |error: BoxError| match error.is::<Overloaded>() {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        });
        // axum makes the layers of a route again for each request, so the permits live outside
        // them.
        let limits = ServiceBuilder::new().layer(busy).load_shed().layer(GlobalConcurrencyLimitLayer::new(2));
        let server = Server::start(Router::new().route("/", page).layer(limits));
        let mut accepted = Vec::new();
        for _ in 0..2 {
            let mut client = server.connect_http1().await;
            accepted.push(dapple::spawn(async move { client.get("/").await.0 }));
        }
        work.has(2).await;
        for mut client in server.connect_both().await {
            assert_eq!(client.get("/").await.0, StatusCode::SERVICE_UNAVAILABLE);
        }
        work.gate.add_permits(2);
        for call in accepted {
            assert_eq!(call.await.unwrap(), StatusCode::OK);
        }
        work.gate.add_permits(1);
        assert_eq!(server.connect_http1().await.get("/").await.0, StatusCode::OK);
    });
}
