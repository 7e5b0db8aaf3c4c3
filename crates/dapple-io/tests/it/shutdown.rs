//! The rest when a runtime ends.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dapple_io::event::{after, every, on_accept, on_readable, on_signal};
use dapple_io::net::{TcpListener, TcpStream, UnixStream};
use dapple_io::time::sleep;
use dapple_sched::{Color, spawn};

use crate::{LIMIT, runtime, wait_until};

/// A waker that shows whether it was dropped.
struct Kept;

impl Wake for Kept {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn shutdown_drops_wakers() {
    let runtime = runtime(2);
    let kept = Arc::new(Kept);
    let entered = runtime.enter();
    let (a, _b) = UnixStream::pair().unwrap();
    let mut buf = [0; 1];
    let mut read = Box::pin(a.read(&mut buf));
    let mut nap = Box::pin(sleep(LIMIT * 10));
    let waker = Waker::from(kept.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(read.as_mut().poll(&mut cx).is_pending());
    assert!(nap.as_mut().poll(&mut cx).is_pending());
    drop(waker);
    assert!(Arc::strong_count(&kept) > 2);
    drop(entered);
    drop(runtime);
    // On a very busy machine, the drop may stop waiting for the workers, which then end later.
    wait_until("everything is dropped", || Arc::strong_count(&kept) == 1);
    let mut cx = Context::from_waker(Waker::noop());
    match read.as_mut().poll(&mut cx) {
        Poll::Ready(Err(error)) => assert!(error.to_string().contains("shut down")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn shutdown_drops_callbacks() {
    let runtime = runtime(2);
    let kept = Arc::new(());
    let entered = runtime.enter();
    let callback = || {
        let kept = kept.clone();
        Color::new().wrap(move |()| drop(kept.clone()))
    };
    let (a, b) = UnixStream::pair().unwrap();
    a.on_readable(callback()).detach();
    on_readable(&b, callback()).unwrap().detach();
    after(LIMIT * 10, callback()).unwrap().detach();
    every(Duration::from_millis(1), callback()).unwrap().detach();
    on_signal(dapple_io::signal::SIGWINCH, callback()).unwrap().detach();
    let held = kept.clone();
    let accepted = Color::new().wrap(move |_: (TcpStream, std::net::SocketAddr)| drop(held.clone()));
    on_accept(TcpListener::bind("127.0.0.1:0").unwrap(), accepted).unwrap().detach();
    assert!(Arc::strong_count(&kept) > 6);
    drop(entered);
    drop(runtime);
    // On a very busy machine, the drop may stop waiting for the workers, which then end later.
    wait_until("everything is dropped", || Arc::strong_count(&kept) == 1);
}

#[test]
fn shutdown_drops_tasks_that_wait() {
    let runtime = runtime(2);
    let kept = Arc::new(());
    let entered = runtime.enter();
    for i in 0..10 {
        let (kept, (a, b)) = (kept.clone(), UnixStream::pair().unwrap());
        let _detached = spawn(async move {
            let _kept = kept;
            match i % 2 {
                0 => drop(a.read(&mut [0; 1]).await),
                _ => sleep(LIMIT * 10).await,
            }
            drop(b);
        });
    }
    drop(entered);
    drop(runtime);
    // On a very busy machine, the drop may stop waiting for the workers, which then end later.
    wait_until("everything is dropped", || Arc::strong_count(&kept) == 1);
}

#[test]
fn without_a_runtime_the_error_says_what_to_do() {
    // Other tests' runtimes may count as the only one, so this asks on a runtime without a driver.
    let runtime = dapple_sched::Runtime::builder().workers(1).build().unwrap();
    let _entered = runtime.enter();
    let error = TcpListener::bind("127.0.0.1:0").unwrap_err();
    assert!(error.to_string().contains("runtime_builder"), "{error}");
}
