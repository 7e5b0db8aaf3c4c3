use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dapple_tower::admission::{Admission, AdmissionLayer, AdmissionStats, Class, Config, Offer};
use dapple_tower::{BoxError, Reason, Refused};
use tower_layer::Layer;
use tower_service::Service;

/// Uses processor time and never waits; counts the requests that reach it.
#[derive(Clone)]
struct Burn {
    time: Duration,
    called: Arc<AtomicUsize>,
}

impl Service<Class> for Burn {
    type Response = Class;
    type Error = BoxError;
    type Future = Ready<Result<Class, BoxError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, class: Class) -> Self::Future {
        self.called.fetch_add(1, Ordering::SeqCst);
        let began = Instant::now();
        while began.elapsed() < self.time {
            std::hint::spin_loop();
        }
        ready(Ok(class))
    }
}

/// All sent at once.
const REQUESTS: usize = 2_000;

#[derive(Default, Debug)]
struct Tally {
    done: [usize; Class::COUNT],
    refused: [usize; Class::COUNT],
}

/// Learns the cost from ten successive requests; then sends many at once, of two classes.
async fn flood<F, H>(spawn: F) -> (Tally, AdmissionStats, usize)
where
    F: Fn(std::pin::Pin<Box<dyn Future<Output = Result<Class, BoxError>> + Send>>) -> H,
    H: Future<Output = Result<Class, BoxError>>,
{
    // Ten times the default: a paused machine then uses up only a part of it.
    let mut config = Config::with_target_delay(Duration::from_secs(1));
    config.processors = Some(2);
    let mut tries = 0..30;
    let (admission, burn, mut service) = loop {
        assert!(tries.next().is_some(), "the machine is paused too often");
        let admission = Admission::new(config.clone());
        let burn = Burn { time: Duration::from_millis(5), called: Arc::default() };
        let layer = AdmissionLayer::new(admission.clone()).offer(|class: &Class| Offer::now().class(*class));
        let mut service = layer.layer(burn.clone());
        for _ in 0..10 {
            spawn(Box::pin(service.call(Class::NORMAL))).await.expect("there are no other requests");
        }
        // After a long pause, two requests in service use up the whole target.
        if admission.stats().cost < Duration::from_millis(50) {
            break (admission, burn, service);
        }
    };
    let mut replies = Vec::new();
    for index in 0..REQUESTS {
        let class = if index % 20 == 19 { Class::HIGH } else { Class::LOW };
        replies.push((class, spawn(Box::pin(service.call(class)))));
    }
    let mut tally = Tally::default();
    for (class, reply) in replies {
        match reply.await {
            Ok(answer) => {
                assert_eq!(answer, class);
                tally.done[class.index()] += 1;
            }
            Err(error) => {
                let refused = error.downcast_ref::<Refused>().expect("nothing else goes wrong");
                assert!(
                    matches!(refused.reason, Reason::Delay { .. } | Reason::Class | Reason::Share { .. }),
                    "{refused}"
                );
                tally.refused[class.index()] += 1;
            }
        }
    }
    (tally, admission.stats(), burn.called.load(Ordering::SeqCst))
}

fn check((tally, stats, called): (Tally, AdmissionStats, usize)) {
    let (done, refused): (usize, usize) = (tally.done.iter().sum(), tally.refused.iter().sum());
    assert_eq!(done + refused, REQUESTS);
    assert!(refused > REQUESTS / 2, "ten seconds of work for two: {tally:?}");
    // One of twenty is of the high class. On a machine of any speed, their share of finished
    // requests is larger.
    let high = tally.done[Class::HIGH.index()];
    assert!(high > 0 && high * 20 > done, "{tally:?}, {stats:?}");
    assert_eq!(called, done + 10, "refused requests do not reach the service");
    assert_eq!((stats.offered, stats.finished), (REQUESTS as u64 + 10, done as u64 + 10));
    assert_eq!(stats.refused + stats.dropped, refused as u64);
    assert_eq!((stats.waiting, stats.in_service), (0, 0));
    assert!(stats.cost >= Duration::from_millis(4), "{stats:?}");
}

#[test]
fn a_service_that_never_waits_is_protected_on_dapple() {
    let runtime = dapple_io::runtime_builder().workers(2).build().expect("a runtime starts");
    let outcome = runtime.block_on(flood(|future| {
        let task = dapple_sched::spawn(future);
        async { task.await.expect("the service does not panic") }
    }));
    check(outcome);
}

#[test]
fn a_service_that_never_waits_is_protected_on_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime starts");
    let outcome = runtime.block_on(flood(|future| {
        let task = tokio::spawn(future);
        async { task.await.expect("the service does not panic") }
    }));
    check(outcome);
}

#[test]
fn a_service_that_never_waits_is_protected_on_smol() {
    check(smol::block_on(flood(smol::spawn)));
}
