//! Events where a core is free: any worker takes them.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::mpsc;

use dapple_io::EpollDriver;
use dapple_io::net::UnixStream;
use dapple_sched::Driver;

use crate::{LIMIT, runtime};

/// Both workers are in a callback, so only this thread takes events. One of the two waits for events on behalf of
/// both; `poll_shared` takes them for either.
#[test]
fn a_worker_takes_events_for_which_another_one_waits() {
    for worker in [0, 1] {
        let runtime = runtime(2);
        let _entered = runtime.enter();
        let (near, mut far) = StdUnixStream::pair().unwrap();
        let (tx, rx) = mpsc::channel();
        let stream = UnixStream::from_std(near).unwrap();
        let reader = runtime.spawn(async move {
            let mut buf = [0; 1];
            let mut read = Box::pin(stream.read(&mut buf));
            poll_fn(|cx| {
                let polled = read.as_mut().poll(cx);
                // Now it waits for the kernel.
                tx.send(()).unwrap();
                polled
            })
            .await
        });
        rx.recv_timeout(LIMIT).unwrap();
        let gates = [0, 1].map(|worker| {
            let (gate, waits) = mpsc::channel::<()>();
            let (tx, in_it) = mpsc::channel();
            runtime.handle().pinned_color(worker).post(move || {
                tx.send(()).unwrap();
                let _closed = waits.recv();
            });
            in_it.recv_timeout(LIMIT).unwrap();
            gate
        });
        far.write_all(b"x").unwrap();
        let driver = runtime.handle().driver::<EpollDriver>().expect("the builder put it in");
        let found = driver.poll_shared(worker);
        drop(gates);
        assert!(found, "worker {worker}");
        assert_eq!(runtime.block_on(reader).unwrap().unwrap(), 1);
    }
}
