//! Waiting lines of futures, for the tests of faults and of dropped futures.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use dapple_stage::Stage;
use dapple_sync::sync::Semaphore;
use dapple_tower::admission::{Admission, Config, Offer};
use dapple_tower::balance::{Balancer, Config as BalanceConfig};
use dapple_tower::middleware::RateLimitLayer;
use tower::{Layer, Service, service_fn};

pub(crate) type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A service that has no room now.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// A future that waits for its turn. Its turn ends with it.
    pub(crate) wait: Box<dyn Fn() -> Waiting>,
    /// Takes the lock that guards the line.
    pub(crate) look: Arc<dyn Fn() + Send + Sync>,
    /// Makes room for one, which keeps it while it waits for another event.
    pub(crate) free: Box<dyn Fn()>,
    _kept: Box<dyn Any>,
}

/// The number of lines.
pub(crate) const LINES: usize = 4;

/// All lines; needs an entered runtime.
pub(crate) fn lines() -> [Line; LINES] {
    [gated(), place(), until_ready(), replica()]
}

fn gated() -> Line {
    let mut config = Config::with_target_delay(Duration::from_secs(3_600));
    config.processors = Some(1);
    let admission = Admission::new(config);
    // It must learn that requests have a cost: requests without cost do not wait.
    for _ in 0..20 {
        let gated = admission.offer(Offer::now()).unwrap().run(|| async { burn(Duration::from_millis(3)) });
        assert!(dapple_sched::block_on(gated).is_ok());
    }
    let mut running: Waiting = Box::pin({
        let running = admission.offer(Offer::now()).unwrap().run_whole(std::future::pending::<()>);
        async move { drop(running.await) }
    });
    // It yields before it begins.
    for _ in 0..5 {
        assert!(poll(&mut running, Waker::noop()).is_pending());
    }
    let running = Mutex::new(Some(running));
    let (waits, looks) = (admission.clone(), admission);
    Line {
        name: "Gated",
        wait: Box::new(move || {
            let gated = waits.offer(Offer::now()).unwrap().run(|| ready(()));
            Box::pin(async move { gated.await.unwrap() })
        }),
        look: Arc::new(move || _ = looks.stats()),
        free: Box::new(move || drop(running.lock().unwrap().take())),
        _kept: Box::new(()),
    }
}

fn burn(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Each waiter gets a place in the queue of a stage, and releases it at its end.
fn place() -> Line {
    let permits = Arc::new(Semaphore::new(0));
    let inner = permits.clone();
    let stage = Stage::builder("full").width(1).queue_len_max(1).wrap_fn(move |(): ()| {
        let permits = inner.clone();
        async move {
            permits.acquire().await.unwrap().forget();
            Ok::<_, Infallible>(())
        }
    });
    let first = stage.ask(()).now();
    wait_until(|| stage.stats().in_service == 1);
    let second = Mutex::new(Some(stage.ask(()).now()));
    let (waits, looks) = (stage.clone(), stage);
    Line {
        name: "a place in a stage",
        wait: Box::new(move || {
            let mut stage = waits.clone();
            Box::pin(async move { poll_fn(|cx| stage.poll_ready(cx)).await.unwrap() })
        }),
        look: Arc::new(move || _ = looks.load()),
        free: Box::new(move || drop(second.lock().unwrap().take())),
        _kept: Box::new((first, permits)),
    }
}

/// Releases its readiness at its end.
fn until_ready() -> Line {
    let hour = Duration::from_secs(3_600);
    let limited = RateLimitLayer::new(1, hour).layer(service_fn(async |(): ()| Ok::<_, Infallible>(())));
    let mut first = limited.clone();
    assert!(first.poll_ready(&mut Context::from_waker(Waker::noop())).is_ready());
    let first = Mutex::new(Some(first));
    let (waits, looks) = (limited.clone(), Mutex::new(limited));
    Line {
        name: "UntilReady",
        wait: Box::new(move || {
            let mut limited = waits.clone();
            Box::pin(async move { poll_fn(|cx| limited.poll_ready(cx)).await.unwrap() })
        }),
        look: Arc::new(move || _ = format!("{looks:?}")),
        free: Box::new(move || drop(first.lock().unwrap().take())),
        _kept: Box::new(()),
    }
}

fn replica() -> Line {
    let balancer = Balancer::<u8, ()>::new(BalanceConfig::default());
    let (waits, looks, frees) = (balancer.clone(), balancer.clone(), balancer);
    Line {
        name: "Wait",
        wait: Box::new(move || {
            let wait = waits.wait();
            Box::pin(async move { drop(wait.await) })
        }),
        look: Arc::new(move || _ = looks.len()),
        free: Box::new(move || _ = frees.insert(1, ())),
        _kept: Box::new(()),
    }
}

pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn wait_until(mut so: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !so() {
        assert!(Instant::now() < until, "the condition never holds");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs code that hangs if foreign code runs under a lock.
pub(crate) fn in_time(what: usize, run: impl FnOnce() + Send + 'static) {
    let (tx, rx) = channel::<()>();
    let thread = std::thread::spawn(move || {
        run();
        drop(tx);
    });
    match rx.recv_timeout(LIMIT) {
        Err(RecvTimeoutError::Timeout) => panic!("{what}: a lock is held while foreign code runs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Only a bug reaches it.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
