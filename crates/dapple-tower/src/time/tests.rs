use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::{Sleep, thread};

const LONG: Duration = Duration::from_secs(3600);

fn poll(sleep: &mut Sleep, waker: &Waker) -> Poll<()> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

#[test]
fn it_resolves_at_its_deadline_on_each_executor() {
    let wait = Duration::from_millis(20);
    let start = Instant::now();
    dapple_sched::block_on(Sleep::new(wait));
    assert!(start.elapsed() >= wait);
    let start = Instant::now();
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(Sleep::new(wait));
    assert!(start.elapsed() >= wait);
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    let start = Instant::now();
    runtime.block_on(Sleep::new(wait));
    runtime.block_on(runtime.spawn(Sleep::new(wait))).unwrap();
    assert!(start.elapsed() >= 2 * wait);
}

#[test]
fn a_runtime_without_timers_does_not_matter() {
    let runtime = dapple_sched::Runtime::builder().workers(1).build().unwrap();
    runtime.block_on(runtime.spawn(Sleep::new(Duration::from_millis(2)))).unwrap();
}

#[test]
fn an_hour_passes_at_once_under_a_clock_that_stands_still() {
    let mut config = dapple_io::Config::default();
    config.standing_clock = true;
    let runtime = dapple_io::runtime_builder_with(config).workers(1).build().unwrap();
    let passed = runtime.block_on(async {
        let start = super::now();
        Sleep::new(LONG).await;
        super::now() - start
    });
    assert_eq!(passed, LONG);
}

#[test]
fn what_a_runtime_had_armed_goes_on_elsewhere_when_that_is_gone() {
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    let mut sleep = Sleep::new(Duration::from_millis(50));
    let sleep = runtime.block_on(runtime.spawn(async move {
        assert!(poll(&mut sleep, Waker::noop()).is_pending());
        Some(sleep)
    }));
    drop(runtime);
    dapple_sched::block_on(sleep.unwrap().unwrap());
}

/// Counts calls, and reports them.
struct Count(AtomicUsize, std::sync::mpsc::Sender<()>);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.send(()).ok();
    }
}

#[test]
fn the_waker_of_the_last_poll_is_called_and_once() {
    let (tx, rx) = channel();
    let counts = [tx.clone(), tx].map(|tx| Arc::new(Count(AtomicUsize::new(0), tx)));
    let wakers = counts.clone().map(Waker::from);
    let mut sleep = Sleep::new(Duration::from_millis(30));
    assert!(poll(&mut sleep, &wakers[0]).is_pending());
    assert!(poll(&mut sleep, &wakers[1]).is_pending());
    rx.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(counts.each_ref().map(|count| count.0.load(Ordering::SeqCst)), [0, 1]);
    assert!(poll(&mut sleep, &wakers[0]).is_ready());
}

#[test]
fn a_dropped_sleep_leaves_nothing_behind() {
    let count = Arc::new(Count(AtomicUsize::new(0), channel().0));
    let waker = Waker::from(count.clone());
    let mut sleeps: Vec<_> = (0..100).map(|_| Sleep::new(LONG)).collect();
    for sleep in &mut sleeps {
        assert!(poll(sleep, &waker).is_pending());
    }
    assert!(thread::len() >= 100);
    drop(sleeps);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1);
}

#[test]
fn a_waker_that_panics_does_not_end_the_timers() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as the test wants");
        }
    }
    let mut sleep = Sleep::new(Duration::from_millis(1));
    let _ = poll(&mut sleep, &Waker::from(Arc::new(Panics)));
    dapple_sched::block_on(Sleep::new(Duration::from_millis(30)));
}

#[test]
fn the_end_of_time_is_a_century_away() {
    let mut sleep = Sleep::new(Duration::MAX);
    assert!(poll(&mut sleep, Waker::noop()).is_pending());
}
