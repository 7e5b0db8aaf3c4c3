//! Futures dropped before they resolve: they lose nothing if their documentation says so. Each test
//! drops the same kind of future again and again, at each of its points, while data comes and goes.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use dapple_io::blocking::spawn_blocking;
use dapple_io::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use dapple_io::signal::signal;
use dapple_io::time::{interval, sleep, timeout};
use dapple_io::{SendQueue, fs, pipe, process};
use dapple_sched::{spawn, yield_now};
use rustix::process::{Signal, getpid, kill_process};

use crate::{run, wait_until};

/// Polls the future a few times, and drops it unless it resolves.
async fn hurried<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for round in 0..=polls {
        let ready = poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(output) = ready.await {
            return Some(output);
        }
        if round < polls {
            yield_now().await;
        }
    }
    None
}

/// Repeats until one of them resolves.
async fn insist<T, F: Future<Output = T>>(mut make: impl FnMut() -> F) -> T {
    for round in 0.. {
        if let Some(output) = hurried(make(), round % 3).await {
            return output;
        }
        // Usually no event has come before the drop; sometimes one has.
        match round % 8 {
            0 => sleep(Duration::from_micros(50)).await,
            _ => yield_now().await,
        }
    }
    unreachable!("there is no end")
}

const LEN: usize = 200_000;

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Futures write the bytes in parts, and most of them are dropped; all bytes arrive, in order.
macro_rules! exchange {
    ($writer:expr, $reader:expr) => {{
        let (writer, reader) = ($writer, $reader);
        let writing = spawn(async move {
            let data: Vec<u8> = (0..LEN).map(byte).collect();
            let mut at = 0;
            while at < LEN {
                let end = LEN.min(at + 7_001);
                at += insist(|| writer.write(&data[at..end])).await?;
            }
            insist(|| writer.writable()).await?;
            drop(writer);
            io::Result::Ok(())
        });
        let mut at = 0;
        let mut buf = [0; 4096];
        loop {
            insist(|| reader.readable()).await?;
            // All dropped reads have one buffer: bytes that one of them had read would be missing.
            let mut part = [0; 4096];
            let len = loop {
                if let Some(len) = hurried(reader.read(&mut part), at % 3).await {
                    break len?;
                }
                sleep(Duration::from_micros(20)).await;
            };
            if len == 0 {
                break;
            }
            buf[..len].copy_from_slice(&part[..len]);
            assert!((0..len).all(|i| buf[i] == byte(at + i)), "at {at}");
            at += len;
        }
        assert_eq!(at, LEN);
        writing.await.unwrap()?;
        io::Result::Ok(())
    }};
}

#[test]
fn reads_and_writes_that_are_dropped_lose_nothing() {
    run(2, async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        let (server, _) = listener.accept().await?;
        exchange!(client, server)?;
        let (a, b) = UnixStream::pair()?;
        exchange!(a, b)?;
        let (tx, rx) = pipe::pipe()?;
        exchange!(tx, rx)
    })
    .unwrap();
}

#[test]
fn a_dropped_peek_leaves_the_data() {
    run(2, async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        let (server, _) = listener.accept().await?;
        let writing = spawn(async move {
            sleep(Duration::from_millis(1)).await;
            client.write_all(b"kept").await.map(|()| client)
        });
        let mut buf = [0; 4];
        while hurried(server.peek(&mut buf), 1).await.is_none() {
            sleep(Duration::from_micros(100)).await;
        }
        server.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"kept");
        writing.await.unwrap().map(drop)
    })
    .unwrap();
}

#[test]
fn a_dropped_accept_loses_no_connection() {
    run(2, async {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("socket");
        let (tcp, unix) = (TcpListener::bind("127.0.0.1:0")?, UnixListener::bind(&path)?);
        let addr = tcp.local_addr()?;
        let connecting = spawn(async move {
            for number in 0..100_u8 {
                let (by_tcp, by_unix) = (TcpStream::connect(addr).await?, UnixStream::connect(&path).await?);
                by_tcp.write_all(&[number]).await?;
                by_unix.write_all(&[number]).await?;
            }
            io::Result::Ok(())
        });
        for number in 0..100_u8 {
            let mut got = [255; 2];
            let (by_tcp, _) = insist(|| tcp.accept()).await?;
            by_tcp.read_exact(&mut got[..1]).await?;
            let by_unix = insist(|| unix.accept()).await?;
            by_unix.read_exact(&mut got[1..]).await?;
            assert_eq!(got, [number; 2]);
        }
        connecting.await.unwrap()
    })
    .unwrap();
}

#[test]
fn dropped_datagram_calls_lose_and_repeat_nothing() {
    run(2, async {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let to = b.local_addr()?;
        b.connect(a.local_addr()?).await?;
        let mut buf = [0; 8];
        for number in 0..500_u64 {
            // One at a time, because the kernel may drop datagrams without a reader.
            let datagram = number.to_le_bytes();
            insist(|| a.send_to(&datagram, to)).await?;
            let len = match number % 2 {
                0 => loop {
                    if let Some(received) = hurried(b.recv_from(&mut buf), 1).await {
                        break received?.0;
                    }
                },
                _ => loop {
                    if let Some(received) = hurried(b.recv(&mut buf), 1).await {
                        break received?;
                    }
                },
            };
            assert_eq!((len, u64::from_le_bytes(buf)), (8, number));
        }
        assert!(hurried(b.recv(&mut buf), 3).await.is_none(), "nothing came twice");
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn a_dropped_flush_goes_on_where_it_was() {
    run(2, async {
        let (a, b) = UnixStream::pair()?;
        let reading = spawn(async move {
            let mut all = Vec::new();
            let mut buf = [0; 1000];
            loop {
                match b.read(&mut buf).await? {
                    0 => return io::Result::Ok(all),
                    len => all.extend_from_slice(&buf[..len]),
                }
                sleep(Duration::from_micros(10)).await;
            }
        });
        let mut queue = SendQueue::new(64 * 1024);
        let mut at = 0;
        while at < 1_000_000 {
            let segment: Vec<u8> = (at..at + 999).map(byte).collect();
            match queue.push(segment) {
                Ok(()) => at += 999,
                Err(_) => drop(hurried(queue.flush(&a), 1).await),
            }
        }
        queue.flush(&a).await?;
        drop(a);
        let all = reading.await.unwrap()?;
        assert_eq!(all.len(), at);
        assert!(all.iter().enumerate().all(|(at, got)| *got == byte(at)));
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn a_signal_or_tick_with_a_dropped_wait_is_not_lost() {
    run(1, async {
        // No other test uses this signal, and by itself it does nothing.
        let mut signal = signal(Signal::WINCH.as_raw())?;
        for _ in 0..20 {
            assert!(hurried(signal.recv(), 2).await.is_none());
            kill_process(getpid(), Signal::WINCH)?;
            while hurried(signal.recv(), 1).await.is_none() {
                sleep(Duration::from_micros(100)).await;
            }
        }
        let period = Duration::from_millis(2);
        let mut ticks = interval(period);
        let mut due = ticks.tick().await;
        for _ in 0..5 {
            let next = loop {
                if let Some(next) = hurried(ticks.tick(), 1).await {
                    break next;
                }
                sleep(Duration::from_micros(100)).await;
            };
            assert!(next > due && (next - due).as_nanos() % period.as_nanos() == 0);
            due = next;
        }
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn the_last_wait_learns_of_the_end_of_a_child() {
    run(1, async {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 0.05; exit 7"]);
        let mut child = process::spawn(command).await?;
        let status = loop {
            if let Some(status) = hurried(child.wait(), 1).await {
                break status?;
            }
            sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(status.code(), Some(7));
        assert_eq!(child.wait().await?.code(), Some(7), "and again");
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn functions_of_the_pool_run_although_no_task_waits() {
    let ran = Arc::new(AtomicUsize::new(0));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("written");
    run(1, async {
        for _ in 0..100 {
            let ran = ran.clone();
            drop(spawn_blocking(move || ran.fetch_add(1, Ordering::SeqCst)));
        }
        drop(hurried(fs::write(&path, vec![7; 100_000]), 0).await);
        // The runtime ends only now, and with it all work that has not begun.
        wait_until("all have run", || ran.load(Ordering::SeqCst) == 100);
        wait_until("the file is there as a whole", || {
            std::fs::metadata(&path).is_ok_and(|about| about.len() == 100_000)
        });
    });
}

#[test]
fn a_limit_is_as_safe_as_what_it_limits() {
    run(2, async {
        let (a, b) = UnixStream::pair()?;
        let writing = spawn(async move {
            for at in 0..300 {
                a.write_all(&[byte(at)]).await?;
                sleep(Duration::from_micros(at as u64 % 700)).await;
            }
            io::Result::Ok(())
        });
        let mut at = 0;
        loop {
            let mut buf = [0; 16];
            match timeout(Duration::from_micros(300), b.read(&mut buf)).await {
                Ok(Ok(0)) => break,
                Ok(len) => {
                    for got in &buf[..len?] {
                        assert_eq!(*got, byte(at));
                        at += 1;
                    }
                }
                Err(_) => {}
            }
        }
        assert_eq!(at, 300);
        writing.await.unwrap()
    })
    .unwrap();
}
