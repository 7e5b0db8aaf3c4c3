//! Descriptor numbers that the kernel reuses, and the end of registrations.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::mpsc;

use dapple_io::event::on_readable;
use dapple_io::net::UnixStream;
use dapple_sched::Color;

use crate::{LIMIT, channel_callback, runtime};

/// Other tests open descriptors at the same time, so it may take some tries to get the old number
/// again.
const TRIES: usize = 1000;

#[test]
fn a_stream_with_an_old_number_never_meets_the_old_callback() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let mut reused = 0;
    for _ in 0..TRIES {
        let (old, _old_peer) = StdUnixStream::pair().unwrap();
        let old = UnixStream::from_std(old).unwrap();
        let number = old.as_fd().as_raw_fd();
        let (old_callback, old_rx) = channel_callback::<()>();
        let old_color = old_callback.color().clone();
        let _old_registration = old.on_readable(old_callback);
        drop(old);
        let (new, mut peer) = StdUnixStream::pair().unwrap();
        let new = UnixStream::from_std(new).unwrap();
        if new.as_fd().as_raw_fd() != number {
            continue;
        }
        reused += 1;
        // A new stream counts as readable until it was tried, so the old callback was called until
        // the drop: let running calls and their posts end first.
        run_out(&old_color);
        run_out(&old_color);
        while old_rx.try_recv().is_ok() {}
        let (callback, rx) = channel_callback();
        let registration = new.on_readable(callback);
        peer.write_all(b"x").unwrap();
        rx.recv_timeout(LIMIT).unwrap();
        run_out(&old_color);
        assert!(old_rx.try_recv().is_err(), "an event of the new stream");
        registration.cancel();
        if reused == 10 {
            return;
        }
    }
    assert!(reused > 0, "the kernel never gave a number out again");
}

/// Returns when all earlier posts to the color have run.
fn run_out(color: &Color) {
    let (tx, rx) = mpsc::channel();
    color.post(move || tx.send(()).unwrap());
    rx.recv_timeout(LIMIT).unwrap();
}

#[test]
fn a_foreign_descriptor_closed_by_its_owner_is_still_its_own() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    for _ in 0..TRIES {
        let (old, mut old_peer) = StdUnixStream::pair().unwrap();
        let number = old.as_raw_fd();
        let (old_callback, old_rx) = channel_callback();
        let _registration = on_readable(&old, old_callback).unwrap();
        drop(old);
        let (new, mut peer) = StdUnixStream::pair().unwrap();
        if new.as_raw_fd() != number {
            continue;
        }
        let (callback, rx) = channel_callback();
        let _new_registration = on_readable(&new, callback).unwrap();
        peer.write_all(b"x").unwrap();
        rx.recv_timeout(LIMIT).unwrap();
        assert!(old_rx.try_recv().is_err());
        // The registration kept its own file open, and still reports on it.
        old_peer.write_all(b"x").unwrap();
        old_rx.recv_timeout(LIMIT).unwrap();
        return;
    }
    panic!("the kernel never gave a number out again");
}

#[test]
fn registrations_of_all_workers_are_counted_together() {
    let runtime = runtime(2);
    let streams = runtime.block_on(async {
        let task = dapple_sched::spawn(async { (0..50).map(|_| UnixStream::pair().unwrap()).collect::<Vec<_>>() });
        task.await.unwrap()
    });
    let driver = runtime.handle().driver::<dapple_io::EpollDriver>().unwrap();
    let shown = format!("{driver:?}");
    assert!(shown.contains("sources: 100"), "{shown}");
    drop(streams);
}
