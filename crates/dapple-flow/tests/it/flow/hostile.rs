//! Peers that misbehave, futures that are dropped, runtimes that end.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::thread;
use std::time::Duration;

use dapple_flow::flow::{self, Frames, Lines, Listener, PopError, Queue, Sink, SubmitError, Tcp, Unix, Written};
use dapple_io::net::UnixStream;
use dapple_sched::{Color, spawn};

use super::poll_once;
use crate::{LIMIT, run, runtime, wait_until};

/// A connection to a plain thread's socket, on which a test misbehaves.
fn unix() -> (flow::Source<Unix>, Sink<Unix>, StdUnixStream) {
    let (a, b) = StdUnixStream::pair().unwrap();
    b.set_read_timeout(Some(LIMIT)).unwrap();
    let (source, sink) = Unix::split(UnixStream::from_std(a).unwrap());
    (source, sink, b)
}

/// A peer that closes in the middle of a write to it.
#[test]
fn a_peer_that_goes_away() {
    run(2, async {
        let (mut source, sink, mut peer) = unix();
        let done = Queue::new(100);
        for _ in 0..10 {
            sink.submit(vec![7; 100_000], &done).await.unwrap();
        }
        peer.read_exact(&mut [0; 150_000]).unwrap();
        peer.write_all(b"last words").unwrap();
        drop(peer);
        let mut written = Vec::new();
        for _ in 0..10 {
            let completion = done.pop().await.unwrap();
            written.push((completion.count, completion.result.is_ok()));
        }
        // In order: whole ones, a part, nothing.
        assert_eq!(written[0], (100_000, true));
        let failed = written.iter().position(|one| !one.1).expect("the peer takes only a part");
        assert!(written[..failed].iter().all(|&one| one == (100_000, true)), "{written:?}");
        assert!(
            written[failed].0 < 100_000 && written[failed + 1..].iter().all(|&one| one == (0, false)),
            "{written:?}"
        );
        let refused = sink.try_submit("more", &done);
        assert!(matches!(refused, Err(SubmitError::Failed(_, _))), "{refused:?}");
        assert_eq!(sink.write("more").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(sink.flush().await.is_err() && sink.close().await.is_err());
        // Data that had arrived is there.
        let last = source.next().await.unwrap();
        assert!(last.is_err() || last.unwrap() == "last words");
    });
}

#[test]
fn half_of_a_close_keeps_the_other_direction() {
    run(2, async {
        let (mut source, sink, mut peer) = unix();
        peer.write_all(b"a request").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(source.next().await.unwrap().unwrap(), "a request");
        assert!(source.next().await.is_none());
        drop(source);
        sink.write("an answer").await.unwrap();
        drop(sink);
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "an answer");
    });
}

/// After the drop of the last handle, all accepted items are written before the end.
#[test]
fn dropping_a_sink_writes_what_it_accepted() {
    run(2, async {
        let (_source, sink, mut peer) = unix();
        let reads = thread::spawn(move || {
            let mut read = Vec::new();
            peer.read_to_end(&mut read).map(|_| read.len())
        });
        for _ in 0..8 {
            sink.submit(vec![1; 100_000], ()).await.unwrap();
        }
        drop(sink);
        wait_until("the peer has all", || reads.is_finished());
        assert_eq!(reads.join().unwrap().unwrap(), 800_000);
    });
}

/// A peer that does not read cannot make a sink grow.
#[test]
fn a_reader_that_stops() {
    run(2, async {
        let (_source, sink, mut peer) = unix();
        sink.set_limits(50, 200_000);
        let mut accepted = 0;
        // Until nothing has been written for a while.
        let mut refusals = 0;
        while refusals < 30 {
            if sink.try_submit(vec![0; 10_000], ()).is_ok() {
                (accepted, refusals) = (accepted + 1, 0);
                assert!(accepted < 10_000, "there is no end");
            } else {
                refusals += 1;
                dapple_io::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(sink.bytes() < 210_000 && sink.requests() <= 50, "{sink:?}");
        let waits = spawn({
            let sink = sink.clone();
            async move { sink.write("the last").await }
        });
        assert!(!sink.submit_lossy("not now"));
        let mut read = Vec::new();
        let reads = thread::spawn(move || {
            peer.read_to_end(&mut read).unwrap();
            read
        });
        assert_eq!(waits.await.unwrap().unwrap(), 8);
        sink.close().await.unwrap();
        assert!(reads.join().unwrap().ends_with(b"the last"));
    });
}

/// A writer cannot make an unread source grow either, nor the queue after it.
#[test]
fn a_consumer_that_stops() {
    run(2, async {
        let (source, _sink, mut peer) = unix();
        peer.set_nonblocking(true).unwrap();
        let queue = Queue::new(4);
        let flow = source.decode(Frames::new(1_000)).chain(queue.clone());
        let frame = [&1_000u32.to_be_bytes()[..], &[5; 1_000]].concat();
        let mut written = 0;
        // Until nothing has been taken for a while.
        let mut refusals = 0;
        while refusals < 50 {
            match peer.write(&frame[written % frame.len()..]) {
                Ok(count) => (written, refusals) = (written + count, 0),
                Err(_) => {
                    refusals += 1;
                    dapple_io::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        assert_eq!(queue.len(), 4);
        assert!(written < 2_000_000, "{written} bytes went somewhere");
        // All data comes when it is taken.
        peer.shutdown(Shutdown::Write).unwrap();
        let mut frames = 0;
        while let Ok(frame) = queue.pop_timeout(Duration::from_secs(1)).await {
            assert!(frame.len() == 1_000);
            frames += 1;
            if frames == written / frame_len(1_000) {
                break;
            }
        }
        assert_eq!(frames, written / frame_len(1_000));
        drop(flow);
    });
}

fn frame_len(len: usize) -> usize {
    len + 4
}

#[test]
fn an_item_without_end_is_refused() {
    run(2, async {
        let (source, _sink, mut peer) = unix();
        let mut lines = source.decode(Lines::new(100));
        peer.write_all(b"short\n").unwrap();
        peer.write_all(&[b'x'; 10_000]).unwrap();
        let error = match lines.next_many(10).await {
            Ok(before) => {
                assert_eq!(before, ["short"]);
                lines.next().await.unwrap().unwrap_err()
            }
            Err(error) => panic!("the line before it was whole: {error}"),
        };
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(lines.next().await.is_none(), "the source has ended");
        // Nothing is allocated for the announced 4 GiB of a frame.
        let (source, _sink, mut peer) = unix();
        peer.write_all(&[0xff; 8]).unwrap();
        assert!(source.decode(Frames::new(1_000)).next().await.unwrap().is_err());
        // An end inside an item.
        let (source, _sink, mut peer) = unix();
        peer.write_all(b"\0\0\0\x05abc").unwrap();
        drop(peer);
        let error = source.decode(Frames::new(1_000)).next().await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
}

/// Dropping futures at any moment loses no byte.
#[test]
fn dropped_futures_lose_nothing() {
    run(2, async {
        let (source, sink, mut peer) = unix();
        let writes = thread::spawn(move || {
            for n in 0..300u32 {
                let line = format!("{n} {}\n", "y".repeat(n as usize % 50));
                let (a, b) = line.split_at(line.len() / 2);
                peer.write_all(a.as_bytes()).unwrap();
                thread::sleep(Duration::from_micros(50));
                peer.write_all(b.as_bytes()).unwrap();
            }
            peer
        });
        let mut lines = source.decode(Lines::new(100));
        let mut next = 0;
        let mut limit = 0;
        loop {
            limit = (limit + 7) % 120;
            let line = match limit % 3 {
                0 => lines.try_next(),
                1 => match poll_once(lines.next()) {
                    std::task::Poll::Ready(line) => line,
                    std::task::Poll::Pending => continue,
                },
                _ => lines.next_timeout(Duration::from_micros(limit)).await,
            };
            match line {
                None => break,
                Some(Err(error)) => {
                    assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
                }
                Some(Ok(line)) => {
                    assert_eq!(line.split(' ').next().unwrap().parse::<u32>().unwrap(), next);
                    next += 1;
                    if next == 300 {
                        break;
                    }
                }
            }
            dapple_sched::yield_now().await;
        }
        assert_eq!(next, 300);
        // A write with a dropped future is whole, or has not begun.
        let mut peer = writes.join().unwrap();
        for n in 0..200 {
            // No poll of this task has as many awaits as its budget; whether one is refused then
            // depends on other wakes.
            if n % 50 == 0 {
                dapple_sched::yield_now().await;
            }
            let _ = poll_once(sink.write("0123456789"));
        }
        sink.flush().await.unwrap();
        sink.set_limits(1, 1);
        for n in 0..200 {
            if n % 50 == 0 {
                dapple_sched::yield_now().await;
            }
            let _ = poll_once(sink.write("abcdefghij"));
        }
        sink.close().await.unwrap();
        let mut read = String::new();
        peer.read_to_string(&mut read).unwrap();
        let rest = read.strip_prefix(&"0123456789".repeat(200)).expect("the writes had room");
        assert!(!rest.is_empty() && rest.len() <= 2_000);
        assert_eq!(rest, "abcdefghij".repeat(rest.len() / 10));
    });
}

#[test]
fn a_shutdown_ends_all_waits() {
    let runtime = runtime(2);
    let entered = runtime.enter();
    let (_source, sink, peer) = unix();
    sink.set_limits(10, usize::MAX);
    let done = Queue::<Written>::new(20);
    let kept = std::sync::Arc::new(());
    // Nothing reads this, so it cannot be written.
    for _ in 0..5 {
        sink.try_submit(vec![0; 1_000_000], &done).unwrap();
        let held = kept.clone();
        let tell = flow::Completion::post(&Color::new(), move |_: Written| drop(held));
        sink.try_submit(vec![0; 1_000_000], tell).unwrap();
    }
    let waits = thread::spawn({
        let sink = sink.clone();
        move || dapple_sched::block_on(sink.write("for room"))
    });
    let ends = thread::spawn({
        let done = done.clone();
        move || {
            (0..5).map(|_| done.pop_blocking(Some(LIMIT)).map(|written| written.result.is_err())).collect::<Vec<_>>()
        }
    });
    drop(entered);
    let report = runtime.shutdown(Duration::from_millis(20));
    assert!(ends.join().unwrap().iter().all(|end| *end == Ok(true)));
    assert!(waits.join().unwrap().is_err());
    wait_until("closures are dropped", || std::sync::Arc::strong_count(&kept) == 1);
    assert!(sink.try_submit("late", ()).is_err(), "{report:?}");
    drop((sink, peer));
}

/// A shutdown with a long deadline writes all accepted items.
#[test]
fn a_shutdown_waits_for_what_can_be_written() {
    let runtime = runtime(2);
    let entered = runtime.enter();
    let (_source, sink, mut peer) = unix();
    let reads = thread::spawn(move || {
        let mut read = Vec::new();
        peer.read_to_end(&mut read).map(|_| read.len())
    });
    sink.set_limits(100, 100_000_000);
    for _ in 0..20 {
        sink.try_submit(vec![0; 500_000], ()).unwrap();
    }
    drop(sink);
    drop(entered);
    runtime.shutdown(LIMIT);
    assert_eq!(reads.join().unwrap().unwrap(), 10_000_000);
}

/// Connections that come faster than they are taken wait in the kernel.
#[test]
fn a_listener_is_a_source_too() {
    run(2, async {
        let listener = Listener::<Tcp>::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_name().unwrap();
        let queue = Queue::new(2);
        let flow = listener.chain(queue.clone());
        let clients: Vec<_> = (0..20).map(|_| std::net::TcpStream::connect(&name).unwrap()).collect();
        while queue.len() < 2 {
            dapple_sched::yield_now().await;
        }
        let mut peers = Vec::new();
        for _ in 0..20 {
            peers.push(queue.pop().await.unwrap().peer);
        }
        let mut expected: Vec<String> = clients.iter().map(|client| client.local_addr().unwrap().to_string()).collect();
        peers.sort_unstable();
        expected.sort_unstable();
        assert_eq!(peers, expected);
        assert_eq!(queue.try_pop().err(), Some(PopError::Empty));
        let mut listener = flow.stop().await.unwrap().upstream;
        let _client = std::net::TcpStream::connect(&name).unwrap();
        assert!(listener.next().await.unwrap().is_ok());
    });
}
