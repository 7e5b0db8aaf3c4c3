//! Bytes through TCP, Unix sockets, UDP and pipes.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use dapple_io::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream, tcp_connect};
use dapple_io::time::timeout;
use dapple_io::{Connection, SendQueue, pipe};
use dapple_sched::spawn;
use socket2::{Domain, Socket, Type};

use crate::run;

/// More than any kernel buffer, so that both sides have to wait.
fn large() -> Vec<u8> {
    (0..8_000_000u32).map(|i| (i / 7) as u8).collect()
}

async fn tcp_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let a = TcpStream::connect(listener.local_addr()?).await?;
    let (b, peer) = listener.accept().await?;
    assert_eq!(peer, a.local_addr()?);
    assert_eq!(b.local_addr()?, a.peer_addr()?);
    Ok((a, b))
}

// Megabytes of each cost memory, and the time to copy them, during which other connections wait.
#[test]
fn a_peer_that_reads_nothing_takes_few_bytes() {
    run(1, async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        client.set_recv_buffer_size(64 << 10)?;
        client.connect(&listener.local_addr()?.into())?;
        let (server, _) = listener.accept().await?;
        let piece = vec![0; 64 << 10];
        let mut taken = 0;
        // It is not writable any more: the kernel has sent as much as the peer has room for, and
        // keeps the rest.
        while let Ok(len) = timeout(Duration::from_millis(200), server.write(&piece)).await {
            taken += len?;
        }
        assert!(taken <= 1 << 20, "{taken} bytes");
        // None of the bytes are lost.
        server.shutdown(Shutdown::Write)?;
        let (client, mut buf, mut left) = (TcpStream::from_std(client.into())?, piece, taken);
        while left > 0 {
            let len = client.read(&mut buf).await?;
            assert!(len > 0, "{left} bytes are missing");
            left -= len;
        }
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn the_kernel_knows_when_bytes_came() {
    run(1, async {
        let (client, server) = tcp_pair().await?;
        client.write_all(b"a").await?;
        server.readable().await?;
        let begin = std::time::Instant::now();
        dapple_io::time::sleep(WAITED).await;
        // They wait in the socket, unread.
        let since = server.since_last_received()?;
        assert!(since + KERNEL_STEP >= WAITED, "{since:?}");
        assert_eq!(server.read(&mut [0; 8]).await?, 1);
        assert!(server.since_last_received()? >= since, "a read does not count as receiving");
        let before = begin.elapsed();
        client.write_all(b"b").await?;
        server.readable().await?;
        let since = server.since_last_received()?;
        assert!(since <= (begin.elapsed() - before) + KERNEL_STEP, "{since:?}");
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn a_read_knows_when_its_bytes_came() {
    run(1, async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.note_arrivals()?;
        let client = TcpStream::connect(listener.local_addr()?).await?;
        client.write_all(b"a").await?;
        let sent = std::time::Instant::now();
        dapple_io::time::sleep(WAITED).await;
        let (server, _) = listener.accept().await?;
        server.note_arrivals(true);
        let read = async |stream: &TcpStream| poll_fn(|cx| Connection::poll_read(stream, cx, &mut [0; 8])).await;
        assert_eq!(read(&server).await?, 1);
        let waited = server.read_waited()?;
        // The byte came after the call that sent it began, so it waited at most as long as this
        // clock says, apart from steps of that clock.
        assert!(waited >= WAITED - STEP && waited <= sent.elapsed() + STEP, "{waited:?}");
        dapple_io::time::sleep(WAITED).await;
        assert!(server.read_waited()? >= 2 * WAITED - STEP, "it goes on to age");
        client.write_all(b"b").await?;
        server.readable().await?;
        let before = std::time::Instant::now();
        assert_eq!(read(&server).await?, 1);
        assert!(server.read_waited()? < WAITED + before.elapsed(), "what came later is younger");
        // Without note_arrivals, the last arrival does not apply to the next read.
        server.note_arrivals(false);
        dapple_io::time::sleep(3 * WAITED).await;
        client.write_all(b"d").await?;
        server.readable().await?;
        let before = std::time::Instant::now();
        assert_eq!(read(&server).await?, 1);
        assert!(server.read_waited()? < WAITED + before.elapsed() + KERNEL_STEP);
        // If the listener was not told to note arrivals, this uses the kernel's coarse clock, and
        // is right, too.
        let (client, plain) = tcp_pair().await?;
        client.write_all(b"c").await?;
        plain.note_arrivals(true);
        dapple_io::time::sleep(WAITED).await;
        assert_eq!(read(&plain).await?, 1);
        assert!(plain.read_waited()? + KERNEL_STEP >= WAITED);
        io::Result::Ok(())
    })
    .unwrap();
}

/// By how much the system's clock was set while a test ran, against the monotonic clock.
const STEP: std::time::Duration = std::time::Duration::from_millis(5);
const WAITED: std::time::Duration = std::time::Duration::from_millis(100);
/// The largest step of its clock.
const KERNEL_STEP: std::time::Duration = std::time::Duration::from_millis(20);

#[test]
fn tcp_echo() {
    run(2, async {
        let (client, server) = tcp_pair().await?;
        let echo = spawn(async move {
            let mut buf = vec![0; 10_000];
            loop {
                match server.read(&mut buf).await? {
                    0 => return server.shutdown(Shutdown::Write),
                    len => server.write_all(&buf[..len]).await?,
                }
            }
        });
        let data = large();
        let (reader, writer) = client.into_split();
        let expected = data.clone();
        let reading = spawn(async move {
            let mut buf = vec![0; expected.len()];
            reader.read_exact(&mut buf).await?;
            assert!(buf == expected, "what came back differs");
            assert_eq!(reader.read(&mut buf).await?, 0, "the end");
            io::Result::Ok(())
        });
        writer.write_all(&data).await?;
        drop(writer);
        reading.await.unwrap()?;
        echo.await.unwrap()
    })
    .unwrap();
}

#[test]
fn unix_echo() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    run(2, async {
        let listener = UnixListener::bind(&path)?;
        let client = UnixStream::connect(&path).await?;
        let server = listener.accept().await?;
        let data = large();
        let expected = data.clone();
        let reading = spawn(async move {
            let mut buf = vec![0; expected.len()];
            server.read_exact(&mut buf).await?;
            assert!(buf == expected);
            server.write_all(b"done").await
        });
        client.write_all(&data).await?;
        let mut buf = [0; 4];
        client.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"done");
        reading.await.unwrap()
    })
    .unwrap();
}

#[test]
fn udp_echo() {
    run(2, async {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        a.connect(b.local_addr()?).await?;
        let echo = spawn(async move {
            let mut buf = [0; 100];
            let (len, from) = b.recv_from(&mut buf).await?;
            b.send_to(&buf[..len], from).await
        });
        a.send(b"datagram").await?;
        let mut buf = [0; 100];
        assert_eq!(a.recv(&mut buf).await?, 8);
        assert_eq!(echo.await.unwrap()?, 8);
        let nothing = a.try_recv_from(&mut buf).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn udp_by_calls_of_ones_own() {
    let own = |socket: BorrowedFd<'_>| socket.try_clone_to_owned().map(std::net::UdpSocket::from);
    run(2, async move {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let (from, to) = (a.local_addr()?, b.local_addr()?);
        let receiving = spawn(async move {
            let mut buf = [0; 100];
            let receive = poll_fn(|cx| b.poll_recv_by(cx, |socket| own(socket)?.recv_from(&mut buf)));
            let (len, from) = receive.await?;
            io::Result::Ok((buf[..len].to_vec(), from))
        });
        a.writable().await?;
        assert_eq!(a.try_send_by(|socket| own(socket)?.send_to(b"datagram", to))?, 8);
        let (data, sender) = receiving.await.unwrap()?;
        assert_eq!((&data[..], sender), (&b"datagram"[..], from));
        let full = a.try_send_by(|_| io::Result::<()>::Err(io::ErrorKind::WouldBlock.into())).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn pipe_passes_everything_on() {
    run(2, async {
        let (tx, rx) = pipe::pipe()?;
        let data = large();
        let expected = data.clone();
        let writing = spawn(async move { tx.write_all(&data).await });
        let mut buf = vec![0; expected.len()];
        rx.read_exact(&mut buf).await?;
        assert!(buf == expected);
        writing.await.unwrap()?;
        assert_eq!(rx.read(&mut buf).await?, 0);
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn writing_without_a_reader_is_an_error() {
    run(1, async {
        let (tx, rx) = pipe::pipe()?;
        drop(rx);
        let error = tx.write(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let (a, b) = UnixStream::pair()?;
        drop(b);
        let error = a.write(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn vectored_writes_are_one_stream() {
    run(1, async {
        let (a, b) = tcp_pair().await?;
        let parts = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two")];
        assert_eq!(a.write_vectored(&parts).await?, 7);
        let mut buf = [0; 7];
        b.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"one two");
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn a_send_queue_writes_everything_in_order() {
    run(2, async {
        let (a, b) = tcp_pair().await?;
        let data = large();
        let expected = data.clone();
        let sending = spawn(async move {
            let mut queue = SendQueue::new(100_000);
            for part in data.chunks(1777) {
                let mut segment = bytes::Bytes::copy_from_slice(part);
                while let Err(full) = queue.push(segment) {
                    assert!(queue.len() <= 100_000);
                    queue.flush(&a).await?;
                    segment = full.0;
                }
            }
            queue.flush(&a).await
        });
        let mut buf = vec![0; expected.len()];
        b.read_exact(&mut buf).await?;
        assert!(buf == expected);
        sending.await.unwrap()
    })
    .unwrap();
}

#[test]
fn accepted_and_connected_streams_have_no_delay() {
    run(1, async {
        let (a, b) = tcp_pair().await?;
        assert!(a.nodelay()? && b.nodelay()?);
        b.set_nodelay(false)?;
        assert!(!b.nodelay()?);
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn peek_leaves_the_bytes() {
    run(1, async {
        let (a, b) = tcp_pair().await?;
        a.write_all(b"abc").await?;
        let mut buf = [0; 3];
        assert!(b.peek(&mut buf).await? > 0);
        b.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"abc");
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn connecting_without_a_listener_is_refused() {
    run(1, async {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let error = tcp_connect("127.0.0.1", port).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = tcp_connect("name.invalid", port).await.unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::ConnectionRefused);
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn a_taken_port_is_told() {
    run(1, async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let error = TcpListener::bind(listener.local_addr()?).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn a_dropped_read_has_read_nothing() {
    run(1, async {
        let (a, b) = UnixStream::pair()?;
        let mut buf = [0; 4];
        for _ in 0..100 {
            let limit = std::time::Duration::from_micros(1);
            let timed_out = dapple_io::time::timeout(limit, b.read(&mut buf)).await;
            assert!(timed_out.is_err());
        }
        a.write_all(b"kept").await?;
        b.read_exact(&mut buf).await?;
        assert_eq!(&buf, b"kept");
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn two_tasks_can_read_one_stream() {
    run(2, async {
        let (a, b) = UnixStream::pair()?;
        let b = std::sync::Arc::new(b);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let b = b.clone();
                spawn(async move { b.read(&mut [0; 1]).await })
            })
            .collect();
        a.write_all(b"12").await?;
        for reader in readers {
            assert_eq!(reader.await.unwrap()?, 1);
        }
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn a_stream_that_is_always_ready_lets_others_run() {
    run(1, async {
        let (a, b) = UnixStream::pair()?;
        let mut flood = std::os::unix::net::UnixStream::from(std::os::fd::AsFd::as_fd(&a).try_clone_to_owned()?);
        drop(a);
        let color = dapple_sched::Color::new();
        // Both tasks have one color, so the other runs only when the reader lets it.
        let reader = color.spawn(async move {
            let mut buf = [0; 1];
            while b.read(&mut buf).await? > 0 {}
            io::Result::Ok(())
        });
        flood.set_nonblocking(true)?;
        let (tx, rx) = std::sync::mpsc::channel();
        let feeder = std::thread::spawn(move || {
            while rx.try_recv().is_err() {
                let _ = flood.write(&[0; 4096]);
            }
            flood.shutdown(Shutdown::Write)
        });
        color.spawn(async {}).await.unwrap();
        tx.send(()).unwrap();
        reader.await.unwrap()?;
        feeder.join().unwrap()
    })
    .unwrap();
}

#[test]
fn streams_of_the_standard_library_are_taken_over() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        let mut buf = [0; 2];
        stream.read_exact(&mut buf)?;
        stream.write_all(&buf)
    });
    run(1, async {
        let stream = TcpStream::from_std(std::net::TcpStream::connect(addr)?)?;
        stream.write_all(b"hi").await?;
        let mut buf = [0; 2];
        stream.read_exact(&mut buf).await?;
        io::Result::Ok(())
    })
    .unwrap();
    peer.join().unwrap().unwrap();
}
