//! C7: code that is always ready, or due at once, yields now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use dapple_io::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use dapple_io::time::{sleep, sleep_until, timeout};
use dapple_sched::{Colored, spawn};

use crate::{LIMIT, runtime};

/// More rounds than any budget has.
const MANY: usize = 1_000;

#[test]
fn c7_reads_of_what_has_come_let_others_go() {
    let stream = || async {
        let (writer, reader) = UnixStream::pair().unwrap();
        writer.write_all(&[1; MANY]).await.unwrap();
        // The event has arrived, and most reads are from a socket that is known to have more.
        reader.readable().await.unwrap();
        (writer, reader)
    };
    lets_others_go!("a read", { stream().await }, |(_writer, reader)| {
        assert_eq!(reader.read(&mut [0]).await.unwrap(), 1);
    });
    lets_others_go!(
        "a read that leaves the bytes",
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            client.write_all(b"x").await.unwrap();
            server.readable().await.unwrap();
            (client, server)
        },
        |(_client, server)| {
            assert_eq!(server.peek(&mut [0]).await.unwrap(), 1);
        }
    );
    lets_others_go!("a wait for what is there", { stream().await }, |(_writer, reader)| {
        reader.readable().await.unwrap();
    });
}

#[test]
fn c7_writes_and_accepts_let_others_go() {
    lets_others_go!("a write", { UnixStream::pair().unwrap() }, |(writer, _reader)| {
        assert_eq!(writer.write(&[1]).await.unwrap(), 1);
    });
    lets_others_go!(
        "a datagram",
        {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = socket.local_addr().unwrap();
            (socket, to)
        },
        |(socket, to)| {
            socket.send_to(b"x", to).await.unwrap();
        }
    );
    lets_others_go!(
        "an accept",
        {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let to = listener.local_addr().unwrap();
            (TcpListener::from_std(listener).unwrap(), to)
        },
        |(listener, to)| {
            // It is in the backlog when this returns, so the accept finds it there.
            let _client = std::net::TcpStream::connect(to).unwrap();
            drop(listener.accept().await.unwrap());
        }
    );
}

#[test]
fn c7_timers_that_are_due_let_others_go() {
    lets_others_go!("no time at all", {}, |()| { sleep(Duration::ZERO).await });
    let past = std::time::Instant::now();
    lets_others_go!("a time that has passed", {}, |()| { sleep_until(past).await });
    lets_others_go!("a limit for what is ready", {}, |()| {
        timeout(LIMIT, sleep_until(past)).await.unwrap();
    });
}

#[test]
fn c7_a_wait_for_a_condition_by_asking_again_and_again_ends() {
    let runtime = runtime(1);
    let ready = Colored::new(false);
    let waiter = runtime.spawn({
        let ready = ready.clone();
        async move { while !ready.with(|ready| *ready).await {} }
    });
    let setter = runtime.spawn(async move { ready.with(|ready| *ready = true).await });
    let both = async {
        waiter.await.unwrap();
        setter.await.unwrap();
    };
    runtime.block_on(timeout(LIMIT, both)).expect("the setter has its turn");
}

#[test]
fn c7_a_limit_ends_a_wait_that_is_never_over() {
    let runtime = runtime(1);
    let never = Colored::new(false);
    let waits =
        runtime.spawn(timeout(Duration::from_millis(1), async move { while !never.with(|never| *never).await {} }));
    assert!(runtime.block_on(timeout(LIMIT, waits)).expect("the limit passes").unwrap().is_err());
}
