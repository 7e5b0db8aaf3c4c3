//! Connections: bytes in order whatever the link does, and their ends.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dapple_io::net::{TcpListener, TcpStream};
use dapple_net::{Device, LinkFaults, MemoryDevice, Received, pair};

use crate::world::{World, client_settings, pattern, server_settings};

/// Sends back all that comes, on each connection.
async fn echo(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        drop(dapple_sched::spawn(async move {
            let mut buf = vec![0; 20_000];
            loop {
                match stream.read(&mut buf).await? {
                    0 => break stream.shutdown(Shutdown::Write),
                    len => stream.write_all(&buf[..len]).await?,
                }
            }
        }));
    }
}

/// Sends `len` bytes through an echo, and checks what comes back.
async fn send_through(addr: std::net::SocketAddr, len: usize) -> io::Result<()> {
    let (reader, writer) = TcpStream::connect(addr).await?.into_split();
    let writing = dapple_sched::spawn(async move {
        writer.write_all(&pattern(len)).await?;
        // Its drop ends the direction.
        io::Result::Ok(())
    });
    let (mut all, mut buf) = (Vec::new(), vec![0; 16_384]);
    loop {
        match reader.read(&mut buf).await? {
            0 => break,
            got => all.extend_from_slice(&buf[..got]),
        }
    }
    writing.await.expect("it does not panic")?;
    assert!(all == pattern(len), "{} of {len} bytes, or others", all.len());
    Ok(())
}

#[test]
fn bytes_come_back_in_both_families() {
    let world = World::new(LinkFaults::default());
    for at in ["10.7.0.1:80", "[fd07::1]:80", "0.0.0.0:81", "[::]:0"] {
        let (listener, addr) = world.listen(at);
        drop(world.server.handle().spawn(echo(listener)));
        world.client.block_on(send_through(addr, 300_000)).unwrap();
    }
}

#[test]
fn loss_reordering_and_repetition_change_nothing() {
    for seed in 1..=2 {
        let faults = LinkFaults { seed, lost_per_mille: 10, reordered_per_mille: 50, repeated_per_mille: 20 };
        let world = World::new(faults);
        let (listener, addr) = world.listen("10.7.0.1:80");
        drop(world.server.handle().spawn(echo(listener)));
        world.client.block_on(send_through(addr, 200_000)).unwrap();
    }
}

/// Loses the first packet with bytes of a program, each time that it may.
struct Losing {
    device: MemoryDevice,
    may_lose: Arc<AtomicBool>,
}

impl Device for Losing {
    fn mtu(&self) -> usize {
        self.device.mtu()
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        self.device.poll_receive(cx, buf)
    }

    fn send(&self, packet: &[u8], segment_len: Option<u16>) -> io::Result<()> {
        if packet.len() > 500 && self.may_lose.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.device.send(packet, segment_len)
    }
}

#[test]
fn a_packet_lost_at_the_end_of_a_burst_comes_again_before_a_second_is_over() {
    let (here, there) = pair(1500, LinkFaults::default());
    let may_lose = Arc::new(AtomicBool::new(false));
    let losing = Losing { device: here, may_lose: may_lose.clone() };
    let world = World::over(vec![Arc::new(losing)], Arc::new(there), server_settings());
    let (listener, addr) = world.listen("10.7.0.1:80");
    drop(world.server.handle().spawn(echo(listener)));
    let took = || {
        may_lose.store(true, Ordering::Relaxed);
        let start = Instant::now();
        world.client.block_on(send_through(addr, 600)).unwrap();
        start.elapsed()
    };
    // A busy machine may take longer, but not each time.
    let shortest = (0..5).map(|_| took()).min().unwrap();
    assert!(shortest < Duration::from_millis(800), "{shortest:?}");
}

#[test]
fn four_clients_get_whole_bodies_through_loss_and_reordering() {
    let faults = LinkFaults { seed: 7, lost_per_mille: 10, reordered_per_mille: 100, repeated_per_mille: 0 };
    let world = World::new(faults);
    for at in ["10.7.0.1:80", "[fd07::1]:80"] {
        let (listener, addr) = world.listen(at);
        drop(world.server.handle().spawn(echo(listener)));
        let tasks: Vec<_> = (0..4).map(|_| world.client.handle().spawn(send_through(addr, 100_000))).collect();
        world.client.block_on(async {
            for task in tasks {
                task.await.expect("it does not panic").unwrap();
            }
        });
    }
}

#[test]
fn two_hundred_connections_at_once() {
    let world = World::new(LinkFaults::default());
    let (listener, addr) = world.listen("10.7.0.1:80");
    drop(world.server.handle().spawn(echo(listener)));
    let tasks: Vec<_> = (0..200).map(|_| world.client.handle().spawn(send_through(addr, 10_000))).collect();
    world.client.block_on(async {
        for task in tasks {
            task.await.expect("it does not panic").unwrap();
        }
    });
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    let world = World::new(LinkFaults::default());
    let (listener, addr) = world.listen("10.7.0.1:80");
    let serving = world.server.handle().spawn(async move {
        let (stream, peer) = listener.accept().await?;
        assert_eq!((peer, peer.ip().to_string().as_str()), (stream.peer_addr()?, "10.7.0.2"));
        let (mut all, mut buf) = (Vec::new(), [0; 100]);
        while let len @ 1.. = stream.read(&mut buf).await? {
            all.extend_from_slice(&buf[..len]);
        }
        assert_eq!(stream.read(&mut buf).await?, 0, "the end stays");
        stream.write_all(&[all, b" to you, too".to_vec()].concat()).await?;
        stream.shutdown(Shutdown::Write)?;
        assert_eq!(stream.write_all(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        io::Result::Ok(())
    });
    world.client.block_on(async {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = [0; 17];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"hello to you, too");
        assert_eq!(stream.read(&mut answer).await.unwrap(), 0);
        serving.await.expect("it does not panic").unwrap();
    });
}

#[test]
fn a_port_without_listener_refuses() {
    let world = World::new(LinkFaults::default());
    let (_listener, mut addr) = world.listen("10.7.0.1:80");
    addr.set_port(81);
    let error = world.client.block_on(TcpStream::connect(addr)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_peer_that_does_not_answer_is_given_up() {
    let (here, _silent) = dapple_net::pair(1500, LinkFaults::default());
    let mut settings = client_settings();
    settings.connect_timeout = Duration::from_millis(50);
    let network = dapple_net::Network::over(here, settings).unwrap();
    let builder = dapple_io::runtime_builder().workers(1);
    let runtime = dapple_net::OnNetwork::network(builder, network.clone()).build().unwrap();
    let error = runtime.block_on(TcpStream::connect("10.7.0.1:80")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(network.stats().connections, 0);
}

#[test]
fn a_connection_dropped_with_unread_bytes_is_reset() {
    let world = World::new(LinkFaults::default());
    let (listener, addr) = world.listen("10.7.0.1:80");
    let serving = world.server.handle().spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
    });
    world.client.block_on(async {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        serving.await.expect("it does not panic");
        assert_eq!(stream.read(&mut [0; 10]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(stream.write_all(b"hello").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn connections_that_wait_are_reset_with_their_listener() {
    let world = World::new(LinkFaults::default());
    let (listener, addr) = world.listen("10.7.0.1:80");
    world.client.block_on(async {
        let stream = TcpStream::connect(addr).await.unwrap();
        // The server knows of it by the first bytes at the latest.
        stream.write_all(b"hello").await.unwrap();
        drop(listener);
        assert!(stream.read(&mut [0; 10]).await.is_err());
        assert_eq!(TcpStream::connect(addr).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_peer_that_does_not_read_stops_the_writer() {
    let mut settings = server_settings();
    (settings.receive_buffer, settings.send_buffer) = (10_000, 10_000);
    let world = World::with(LinkFaults::default(), settings);
    let (listener, addr) = world.listen("10.7.0.1:80");
    let reading = world.client.handle().spawn(TcpStream::connect(addr));
    world.server.block_on(async {
        let (stream, _) = listener.accept().await.unwrap();
        let reader = reading.await.expect("it does not panic").unwrap();
        let all = pattern(1 << 20);
        let mut written = 0;
        // Until nothing more is taken for a while: its own buffer and that of the peer are full.
        let full = async {
            while written < all.len() {
                let writing = dapple_io::time::timeout(Duration::from_millis(200), stream.write(&all[written..]));
                let Ok(len) = writing.await else { break };
                written += len.unwrap();
            }
        };
        full.await;
        assert!(written <= 10_000 + client_settings().receive_buffer, "{written} bytes");
        let writing = dapple_sched::spawn({
            let all = all.clone();
            async move { stream.write_all(&all[written..]).await }
        });
        let mut got = vec![0; all.len()];
        reader.read_exact(&mut got).await.unwrap();
        writing.await.expect("it does not panic").unwrap();
        assert!(got == all);
    });
}

#[test]
fn peek_leaves_the_bytes() {
    let world = World::new(LinkFaults::default());
    let (listener, addr) = world.listen("10.7.0.1:80");
    drop(world.server.handle().spawn(echo(listener)));
    world.client.block_on(async {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut buf = [0; 5];
        while stream.peek(&mut buf).await.unwrap() < 5 {}
        assert_eq!(&buf, b"hello");
        buf = [0; 5];
        stream.read_exact(&mut buf).await.unwrap();
        assert_eq!(&buf, b"hello");
    });
}

#[test]
fn delivered_waits_until_the_peer_has_everything() {
    let world = World::new(LinkFaults::default());
    let (listener, addr) = world.listen("10.7.0.1:80");
    // More than both buffers at a time, less than both together.
    let all = pattern(200_000);
    world.server.block_on(async {
        let connecting = world.client.handle().spawn(TcpStream::connect(addr));
        let (stream, _) = listener.accept().await.unwrap();
        let reader = connecting.await.expect("it does not panic").unwrap();
        stream.write_all(&all).await.unwrap();
        drop(stream);
        let early = dapple_io::time::timeout(Duration::from_millis(100), world.server_net.delivered()).await;
        assert!(early.is_err(), "the peer has read nothing");
        let expected = all.len();
        let reading = world.client.handle().spawn(async move {
            let mut got = vec![0; expected];
            reader.read_exact(&mut got).await.unwrap();
            got
        });
        world.server_net.delivered().await;
        assert!(reading.await.expect("it does not panic") == all);
    });
}
