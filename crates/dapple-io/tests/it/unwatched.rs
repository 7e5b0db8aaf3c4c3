//! Accepted connections, before a task has to wait for them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as Client};
use std::os::fd::{AsFd, AsRawFd};

use dapple_io::net::{TcpListener, TcpStream, UnixListener};

use crate::{LIMIT, channel_callback, run, runtime, sources};

/// Whether some epoll of this process watches it, according to the kernel.
fn is_watched(fd: &impl AsFd) -> bool {
    let number = fd.as_fd().as_raw_fd().to_string();
    let open = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    // A descriptor may be closed meanwhile by another test.
    open.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok()).any(|info| {
        let targets = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
        targets.into_iter().any(|target| target.split_whitespace().next() == Some(&*number))
    })
}

async fn accepted() -> (TcpStream, Client) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    (listener.accept().await.unwrap().0, client)
}

#[test]
fn a_conversation_without_a_wait_is_not_watched() {
    run(1, async {
        let (server, mut client) = accepted().await;
        client.write_all(b"question").unwrap();
        let mut buf = [0; 64];
        assert_eq!(server.read(&mut buf).await.unwrap(), 8);
        assert_eq!(server.try_finish(b"answer").unwrap(), 6);
        assert!(!is_watched(&server));
        drop(server);
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, "answer");
    });
}

#[test]
fn a_waiting_task_is_woken() {
    run(2, async {
        let (server, mut client) = accepted().await;
        let reading = dapple_sched::spawn(async move {
            let mut buf = [0; 64];
            let first = server.read(&mut buf).await.unwrap();
            let second = server.read(&mut buf).await.unwrap();
            (first, second, is_watched(&server), server.read(&mut buf).await.unwrap())
        });
        client.write_all(b"one").unwrap();
        // Two bytes in two segments, or in one: the second read waits, or does not.
        dapple_io::time::sleep(std::time::Duration::from_millis(20)).await;
        client.write_all(b"three").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (first, second, _, end) = reading.await.unwrap();
        assert!((first, second, end) == (3, 5, 0) || (first, second) == (8, 0), "{first}, {second}, {end}");
    });
}

#[test]
fn tries_without_waiting_see_later_bytes_too() {
    run(1, async {
        let (server, mut client) = accepted().await;
        let mut buf = [0; 64];
        assert_eq!(server.try_read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(is_watched(&server), "there is nothing to try again before the kernel says so");
        client.write_all(b"late").unwrap();
        let len = loop {
            match server.try_read(&mut buf) {
                Ok(len) => break len,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            dapple_sched::yield_now().await;
        };
        assert_eq!(&buf[..len], b"late");
    });
}

#[test]
fn a_short_read_is_followed_by_later_bytes() {
    run(1, async {
        let (server, mut client) = accepted().await;
        client.write_all(b"early").unwrap();
        let mut buf = [0; 64];
        assert_eq!(server.read(&mut buf).await.unwrap(), 5);
        assert!(!is_watched(&server));
        // That read has found that there is no more, so this one makes no system call.
        let later = dapple_sched::spawn(async move { server.read(&mut [0; 64]).await.unwrap() });
        dapple_sched::yield_now().await;
        client.write_all(b"later!").unwrap();
        assert_eq!(later.await.unwrap(), 6);
    });
}

#[test]
fn callbacks_are_called_for_one_that_was_accepted() {
    let runtime = runtime(1);
    let _entered = runtime.enter();
    let (server, mut client) = runtime.block_on(accepted());
    let mut buf = [0; 64];
    client.write_all(b"one").unwrap();
    runtime.block_on(async { assert_eq!(server.read(&mut buf).await.unwrap(), 3) });
    let (callback, called) = channel_callback();
    let _registration = server.on_readable(callback);
    client.write_all(b"two").unwrap();
    called.recv_timeout(LIMIT).unwrap();
}

#[test]
fn it_counts_and_ends_with_its_runtime() {
    let runtime = runtime(1);
    let (server, _client) = runtime.block_on(accepted());
    assert_eq!(sources(&runtime), 1);
    drop(runtime);
    assert!(server.try_read(&mut [0; 8]).unwrap_err().to_string().contains("has shut down"));
}

#[test]
fn sockets_of_this_machine_are_no_different() {
    run(1, async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        client.write_all(b"question").unwrap();
        let server = listener.accept().await.unwrap();
        let mut buf = [0; 64];
        assert_eq!(server.read(&mut buf).await.unwrap(), 8);
        assert!(!is_watched(&server));
        drop(client);
        assert_eq!(server.read(&mut buf).await.unwrap(), 0);
        assert!(is_watched(&server));
    });
}

#[test]
fn last_bytes_that_do_not_fit_end_nothing() {
    run(1, async {
        let (server, mut client) = accepted().await;
        let bytes = vec![7; 64 << 20];
        let len = server.try_finish(&bytes).unwrap();
        assert!(0 < len && len < bytes.len(), "{len}");
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all.len()
        });
        server.write_all(&bytes[len..]).await.unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(dapple_io::blocking::spawn_blocking(move || reading.join().unwrap()).await.unwrap(), bytes.len());
    });
}
