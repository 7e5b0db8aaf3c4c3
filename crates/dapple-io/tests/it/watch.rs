//! Callbacks for descriptors and connections.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use dapple_io::event::{on_accept, on_connect, on_readable, on_writable};
use dapple_io::net::{TcpListener, TcpStream, UnixStream};
use dapple_sched::Color;

use crate::{LIMIT, channel_callback, runtime};

#[test]
fn readable_is_called_for_as_long_as_there_is_something() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (mut a, b) = StdUnixStream::pair().unwrap();
    b.set_nonblocking(true).unwrap();
    let mut reader = b.try_clone().unwrap();
    let (tx, rx) = mpsc::channel();
    // Reads one byte a call. While bytes are left, the callback is called again (level semantics).
    let callback = Color::new().wrap(move |()| {
        let mut byte = [0];
        if reader.read_exact(&mut byte).is_ok() {
            tx.send(byte[0]).unwrap();
        }
    });
    let registration = on_readable(&b, callback).unwrap();
    a.write_all(b"abc").unwrap();
    for expected in b"abc" {
        assert_eq!(rx.recv_timeout(LIMIT).unwrap(), *expected);
    }
    a.write_all(b"d").unwrap();
    assert_eq!(rx.recv_timeout(LIMIT).unwrap(), b'd');
    registration.cancel();
    assert!(rx.recv_timeout(LIMIT).is_err(), "the callback was dropped");
}

#[test]
fn streams_call_back_without_help_of_the_kernel() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (a, b) = UnixStream::pair().unwrap();
    let (tx, rx) = mpsc::channel();
    let b = Arc::new(b);
    let reader = b.clone();
    let callback = Color::new().wrap(move |()| {
        let mut byte = [0];
        match reader.try_read(&mut byte) {
            Ok(1) => drop(tx.send(byte[0])),
            Ok(_) => drop(tx.send(b'.')),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    });
    let _registration = b.on_readable(callback);
    for expected in *b"hello" {
        assert_eq!(a.try_write(&[expected]).unwrap(), 1);
        assert_eq!(rx.recv_timeout(LIMIT).unwrap(), expected);
    }
    drop(a);
    assert_eq!(rx.recv_timeout(LIMIT).unwrap(), b'.', "the end is an event");
}

#[test]
fn writable_is_called_when_there_is_room_again() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (mut a, b) = StdUnixStream::pair().unwrap();
    b.set_nonblocking(true).unwrap();
    let mut filler = b.try_clone().unwrap();
    let mut filled = 0;
    while let Ok(count) = filler.write(&[7; 4096]) {
        filled += count;
    }
    let (callback, rx) = channel_callback();
    let registration = on_writable(&b, callback).unwrap();
    assert!(rx.try_recv().is_err());
    a.read_exact(&mut vec![0; filled]).unwrap();
    rx.recv_timeout(LIMIT).unwrap();
    registration.cancel();
}

#[test]
fn at_most_one_run_of_a_callback_is_queued() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let (mut a, b) = StdUnixStream::pair().unwrap();
    let color = Color::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let (release, held) = mpsc::channel::<()>();
    let (tx, rx) = mpsc::channel();
    // Blocks its worker on purpose: events come while it runs.
    let callback = color.wrap(move |()| {
        counted.fetch_add(1, Ordering::Relaxed);
        tx.send(()).unwrap();
        let _ = held.recv_timeout(LIMIT);
    });
    let registration = on_readable(&b, callback).unwrap();
    a.write_all(b"x").unwrap();
    rx.recv_timeout(LIMIT).unwrap();
    for _ in 0..100 {
        a.write_all(b"x").unwrap();
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    registration.cancel();
    release.send(()).unwrap();
    // A post now runs after everything queued.
    let (tx, after) = mpsc::channel();
    color.post(move || tx.send(()).unwrap());
    after.recv_timeout(LIMIT).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1, "cancelled meanwhile");
}

#[test]
fn accept_and_connect_call_back() {
    let runtime = runtime(2);
    let _entered = runtime.enter();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let greet = Color::DEFAULT.wrap(|(stream, _): (TcpStream, SocketAddr)| {
        stream.try_write(b"hello").unwrap();
    });
    let accepting = on_accept(listener, greet).unwrap();
    let mut connecting = Vec::new();
    let (connected, rx) = channel_callback();
    for _ in 0..100 {
        connecting.push(on_connect("localhost", port, connected.clone()).unwrap());
    }
    for _ in 0..100 {
        let stream: TcpStream = rx.recv_timeout(LIMIT).unwrap().unwrap();
        let mut buf = [0; 5];
        runtime.block_on(stream.read_exact(&mut buf)).unwrap();
        assert_eq!(&buf, b"hello");
    }
    accepting.cancel();
    crate::wait_until("the listener is closed", || std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}
