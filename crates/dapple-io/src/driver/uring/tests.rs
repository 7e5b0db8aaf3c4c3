//! The rows of the table in `ring`, step by step, without a runtime.

use std::io::Write;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::ring::{Ring, Token};
use super::{Call, Limits, Memory, Request};
use crate::fs::File;

/// `None`, and the test checks nothing, if io_uring is refused.
fn ring(in_flight_max: usize) -> Option<Arc<Ring>> {
    Ring::new(Limits { in_flight_max, threads_max: 4 }).ok()
}

fn file(contents: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    File::from_std(file)
}

fn read(file: &File, len: usize) -> Request {
    Request { call: Call::Read, file: Some(file.clone()), memory: Memory::Heap(vec![0; len]), start: 0, offset: 0 }
}

/// A read that ends only by a cancellation.
fn endless_read(len: usize) -> (Request, rustix::fd::OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    (read(&File::from_std(reader.into()), len), writer)
}

fn begin(ring: &Ring, request: Request) -> Token {
    ring.begin(request, Waker::noop()).unwrap_or_else(|_| panic!("the ring is open"))
}

fn finish(ring: &Ring, token: Token) -> (i32, Request) {
    let start = Instant::now();
    loop {
        if let Poll::Ready(ended) = ring.poll(token, Waker::noop()) {
            return ended.expect("not leaked");
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no completion");
        ring.turn(&mut Vec::new());
    }
}

fn wait_until_empty(ring: &Ring) {
    let start = Instant::now();
    while ring.load() != (0, 0) {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", ring.load());
        ring.turn(&mut Vec::new());
    }
}

#[test]
fn operations_beyond_the_limit_wait_in_order() {
    let Some(ring) = ring(2) else { return };
    let file = file(b"0123456789");
    let tokens: Vec<_> = (1..=9).map(|len| begin(&ring, read(&file, len))).collect();
    assert_eq!(ring.load(), (2, 7));
    for (i, token) in tokens.into_iter().enumerate() {
        let (result, request) = finish(&ring, token);
        assert_eq!(result, i as i32 + 1);
        assert_eq!(request.memory.into_vec(), &b"0123456789"[..i + 1]);
    }
    assert_eq!(ring.load(), (0, 0));
}

#[test]
fn a_dropped_operation_keeps_its_memory_until_it_is_canceled() {
    let Some(ring) = ring(4) else { return };
    let pool = crate::fs::BufferPool::new(1, 4096).unwrap();
    let (mut request, _writer) = endless_read(1);
    request.memory = Memory::Aligned(pool.take().unwrap());
    let token = begin(&ring, request);
    ring.turn(&mut Vec::new());
    assert!(ring.abandon(token, true));
    assert_eq!(pool.available(), 0, "the kernel still has it");
    wait_until_empty(&ring);
    assert_eq!(pool.available(), 1);
}

#[test]
fn a_late_cancellation_finds_no_operation() {
    let Some(ring) = ring(4) else { return };
    let file = file(b"data");
    let old = begin(&ring, read(&file, 4));
    ring.turn(&mut Vec::new());
    // Whether or not it has completed by now, the next operation may have its place.
    ring.abandon(old, true);
    for _ in 0..100 {
        let next = begin(&ring, read(&file, 4));
        let (result, request) = finish(&ring, next);
        assert_eq!((result, request.memory.into_vec().as_slice()), (4, b"data".as_slice()));
    }
    wait_until_empty(&ring);
}

#[test]
fn a_queued_operation_that_is_dropped_does_not_happen() {
    let Some(ring) = ring(1) else { return };
    let (request, _writer) = endless_read(1);
    let first = begin(&ring, request);
    let file = file(b"old!");
    let write = Request {
        call: Call::Write,
        file: Some(file.clone()),
        memory: Memory::Heap(b"new!".to_vec()),
        start: 0,
        offset: 0,
    };
    let queued = begin(&ring, write);
    assert_eq!(ring.load(), (1, 1));
    assert!(!ring.abandon(queued, false));
    ring.abandon(first, true);
    wait_until_empty(&ring);
    let token = begin(&ring, read(&file, 4));
    assert_eq!(finish(&ring, token).1.memory.into_vec(), b"old!");
}

#[test]
fn the_file_that_a_dropped_open_opened_is_closed() {
    let Some(ring) = ring(4) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
    let name = path.into_os_string().into_encoded_bytes();
    let token = begin(&ring, Request::open(None, &name, libc::O_RDWR | libc::O_CLOEXEC, 0, 0));
    let start = Instant::now();
    // Completed, and not taken.
    while ring.load() != (0, 0) {
        assert!(start.elapsed() < Duration::from_secs(20));
        ring.turn(&mut Vec::new());
    }
    ring.abandon(token, true);
    // No process has it open for reading any more.
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let opened = rustix::fs::open(dir.path().join("fifo"), flags, rustix::fs::Mode::empty());
    assert_eq!(opened.unwrap_err(), rustix::io::Errno::NXIO);
}

#[test]
fn a_shutdown_cancels_and_keeps_what_had_arrived() {
    let Some(ring) = ring(2) else { return };
    let file = file(b"data");
    let done = begin(&ring, read(&file, 4));
    ring.turn(&mut Vec::new());
    let (endless, _writer) = endless_read(1);
    let submitted = begin(&ring, endless);
    ring.turn(&mut Vec::new());
    let (orphan, _other) = endless_read(1);
    let orphan = begin(&ring, orphan);
    ring.turn(&mut Vec::new());
    ring.abandon(orphan, true);
    let queued = begin(&ring, read(&file, 4));
    ring.shut_down();
    let (result, request) = finish(&ring, done);
    assert_eq!((result, request.memory.into_vec().as_slice()), (4, b"data".as_slice()));
    // The read of a pipe is interrupted, or canceled before it began.
    assert!(finish(&ring, submitted).0 < 0);
    let (result, request) = finish(&ring, queued);
    assert!(result == -libc::ECANCELED || result == 4, "{result}");
    assert_eq!(request.memory.into_vec().len(), 4);
    assert!(ring.begin(read(&file, 4), Waker::noop()).is_err());
    assert_eq!(ring.load(), (0, 0));
}
