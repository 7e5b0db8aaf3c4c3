//! Connections, datagrams and names, without faults.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dapple_sim::net::{TcpListener, TcpStream, UdpSocket, resolve};
use dapple_sim::time::{Instant, sleep, timeout};
use dapple_sim::{Fault, Network, Plan, Simulation, check};

/// Sends back what it gets.
async fn echo() {
    let listener = TcpListener::bind("0.0.0.0:7").unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let _detached = dapple_sched::spawn(async move {
            let mut bytes = vec![0; 3_000];
            loop {
                match stream.read(&mut bytes).await {
                    Ok(0) | Err(_) => return,
                    Ok(len) => stream.write_all(&bytes[..len]).await.unwrap_or_default(),
                }
            }
        });
    }
}

#[test]
fn bytes_come_whole_and_in_order() {
    check("bytes", 20, |sim| {
        sim.host("echo", echo);
        for client in 0..3 {
            let len = 1 + sim.pick(300_000);
            sim.client(&format!("client{client}"), move || async move {
                let stream = Arc::new(TcpStream::connect("echo:7").await.unwrap());
                let sent: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
                let (writer, bytes) = (stream.clone(), sent.clone());
                let writes = dapple_sched::spawn(async move {
                    writer.write_all(&bytes).await.unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let (mut got, mut part) = (Vec::<u8>::new(), [0; 1_000]);
                loop {
                    match stream.read(&mut part).await.unwrap() {
                        0 => break,
                        len => got.extend(&part[..len]),
                    }
                }
                writes.await.unwrap();
                assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
            });
        }
    });
}

#[test]
fn a_reader_that_rests_stops_the_writer() {
    let mut sim = Simulation::new(1);
    sim.host("lazy", || async {
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        sleep(Duration::from_secs(100)).await;
        let mut bytes = vec![0; 1 << 20];
        stream.read_exact(&mut bytes).await.unwrap();
        stream.write_all(b"!").await.unwrap();
        std::future::pending::<()>().await;
    });
    sim.client("client", || async {
        let stream = TcpStream::connect("lazy:7").await.unwrap();
        let bytes = vec![0; 1 << 20];
        let quick = timeout(Duration::from_secs(50), stream.write_all(&bytes[..Network::default().window + 1])).await;
        assert!(quick.is_err(), "more than the window was taken");
        // A part of that was written.
        let mut written = 1;
        while written > 0 {
            let write = timeout(Duration::from_secs(200), stream.write(&bytes)).await;
            written = write.map_or(0, Result::unwrap);
        }
        let mut answer = [0];
        stream.read_exact(&mut answer).await.unwrap();
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn refused_unknown_and_in_use() {
    let mut sim = Simulation::new(1);
    sim.host("server", std::future::pending::<()>);
    sim.client("client", || async {
        let refused = TcpStream::connect("server:80").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(TcpStream::connect("nobody:80").await.unwrap_err().kind(), ErrorKind::NotFound);
        let unknown = TcpStream::connect("10.9.9.9:80").await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::HostUnreachable);
        assert_eq!(resolve("server").await.unwrap()[0].to_string(), "10.0.0.1");
        let first = TcpListener::bind("0.0.0.0:80").unwrap();
        assert_eq!(TcpListener::bind("0.0.0.0:80").unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first);
        let again = TcpListener::bind("127.0.0.1:80").unwrap();
        let stream = TcpStream::connect("127.0.0.1:80").await.unwrap();
        let (accepted, peer) = again.accept().await.unwrap();
        assert_eq!(stream.local_addr().unwrap(), peer);
        drop(stream);
        assert_eq!(accepted.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(TcpListener::bind("10.0.0.1:81").unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn a_host_that_has_used_up_its_ports_is_told_so() {
    let mut sim = Simulation::new(1);
    sim.host("server", || async {
        let _listener = TcpListener::bind("0.0.0.0:80").unwrap();
        std::future::pending::<()>().await;
    });
    sim.client("client", || async {
        let ports = 1 << 14;
        let sockets: Vec<_> = (0..ports).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap()).collect();
        assert_eq!(UdpSocket::bind("0.0.0.0:0").unwrap_err().kind(), ErrorKind::AddrInUse);
        // Other kinds of sockets have ports of their own.
        let listeners: Vec<_> = (0..ports - 2).map(|_| TcpListener::bind("0.0.0.0:0").unwrap()).collect();
        let to: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let streams = [TcpStream::connect(to).await.unwrap(), TcpStream::connect(to).await.unwrap()];
        assert_ne!(streams[0].local_addr().unwrap(), streams[1].local_addr().unwrap());
        assert_eq!(TcpStream::connect(to).await.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
        drop((sockets, listeners));
        UdpSocket::bind("0.0.0.0:0").unwrap();
        TcpListener::bind("0.0.0.0:0").unwrap();
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn a_loopback_address_is_reached_from_its_own_host_only() {
    let mut sim = Simulation::new(1);
    sim.host("server", || async {
        let _listeners = ["127.0.0.1:80", "[::1]:81"].map(|at| TcpListener::bind(at).unwrap());
        let socket = UdpSocket::bind("127.0.0.1:9").unwrap();
        panic!("a datagram came: {:?}", socket.recv_from(&mut [0]).await);
    });
    sim.client("client", || async {
        sleep(Duration::from_millis(1)).await;
        for at in ["server:80", "server:81"] {
            assert_eq!(TcpStream::connect(at).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"!", "server:9").await.unwrap();
        let inside = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert_eq!(inside.send_to(b"!", "server:9").await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(inside.connect("server:9").await.unwrap_err().kind(), ErrorKind::InvalidInput);
        sleep(Duration::from_secs(1)).await;
    });
    assert_eq!(sim.run().failure, None);
}

/// The addresses of the two sides of a connection, for each of them.
async fn sides(listener: &TcpListener, to: &str) -> [String; 2] {
    let (stream, accepted) = (TcpStream::connect(to).await.unwrap(), listener.accept().await.unwrap().0);
    let own = stream.local_addr().unwrap();
    assert_eq!(accepted.peer_addr().unwrap(), own);
    assert_eq!(accepted.local_addr().unwrap(), stream.peer_addr().unwrap());
    [own.ip().to_string(), stream.peer_addr().unwrap().to_string()]
}

#[test]
fn loopback_is_another_address_than_that_of_the_host() {
    let mut sim = Simulation::new(1);
    sim.client("client", || async {
        let (inner, outer) = (TcpListener::bind("127.0.0.1:80").unwrap(), TcpListener::bind("10.0.0.1:80").unwrap());
        for in_the_way in ["0.0.0.0:80", "[::]:80"] {
            assert_eq!(TcpListener::bind(in_the_way).unwrap_err().kind(), ErrorKind::AddrInUse);
        }
        assert_eq!(sides(&inner, "127.0.0.1:80").await, ["127.0.0.1", "127.0.0.1:80"]);
        assert_eq!(sides(&inner, "0.0.0.0:80").await, ["127.0.0.1", "127.0.0.1:80"]);
        assert_eq!(sides(&outer, "client:80").await, ["10.0.0.1", "10.0.0.1:80"]);
        let both = TcpListener::bind("0.0.0.0:82").unwrap();
        assert_eq!(TcpListener::bind("127.0.0.1:82").unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(sides(&both, "127.0.0.2:82").await, ["127.0.0.1", "127.0.0.2:82"]);
        assert_eq!(sides(&both, "client:82").await, ["10.0.0.1", "10.0.0.1:82"]);
        assert_eq!(TcpStream::connect("[::1]:82").await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(sides(&TcpListener::bind("[::]:83").unwrap(), "[::1]:83").await, ["::1", "[::1]:83"]);
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn datagrams_have_the_address_that_their_socket_is_bound_to() {
    let mut sim = Simulation::new(1);
    sim.client("client", || async {
        let (inner, outer) = (UdpSocket::bind("127.0.0.1:9").unwrap(), UdpSocket::bind("10.0.0.1:9").unwrap());
        assert_eq!(UdpSocket::bind("0.0.0.0:9").unwrap_err().kind(), ErrorKind::AddrInUse);
        let (one, any) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("0.0.0.0:0").unwrap());
        let mut bytes = [0; 9];
        for (from, by, to, at) in [
            ("127.0.0.1", &one, "127.0.0.1:9", &inner),
            ("127.0.0.1", &one, "0.0.0.0:9", &inner),
            ("127.0.0.1", &one, "client:9", &outer),
            ("127.0.0.1", &any, "127.0.0.1:9", &inner),
            ("127.0.0.1", &any, "0.0.0.0:9", &inner),
            ("10.0.0.1", &any, "client:9", &outer),
            ("10.0.0.1", &outer, "0.0.0.0:9", &outer),
        ] {
            by.send_to(b"!", to).await.unwrap();
            let from = SocketAddr::new(from.parse().unwrap(), by.local_addr().unwrap().port());
            assert_eq!(at.recv_from(&mut bytes).await.unwrap(), (1, from), "to {to}");
        }
        // The answer comes through a socket that takes those of its peer only.
        for (connected, to) in [(one, "127.0.0.1:9"), (any, "0.0.0.0:9")] {
            connected.connect(to).await.unwrap();
            connected.send(b"?").await.unwrap();
            let (_, from) = inner.recv_from(&mut bytes).await.unwrap();
            inner.send_to(b"!!", from).await.unwrap();
            assert_eq!(timeout(Duration::from_secs(1), connected.recv(&mut bytes)).await.unwrap().unwrap(), 2);
        }
    });
    assert_eq!(sim.run().failure, None);
}

/// A simulation of which the lines carry 1,000 bytes a second.
fn slow() -> Simulation {
    let mut sim = Simulation::new(1);
    sim.settings(|settings| (settings.network.bandwidth, settings.network.loss) = (1_000, 0));
    sim.host("echo", echo);
    sim
}

/// Whether this is that many seconds, and a tenth more at most.
fn assert_seconds(taken: Duration, seconds: u64) {
    let least = Duration::from_secs(seconds);
    assert!((least..least * 11 / 10).contains(&taken), "{taken:?} in place of {least:?}");
}

/// Sends so many bytes, and waits until they are back.
async fn round(stream: &TcpStream, len: usize) {
    stream.write_all(&vec![0; len]).await.unwrap();
    stream.read_exact(&mut vec![0; len]).await.unwrap();
}

#[test]
fn short_messages_occupy_the_line_as_one_long_one_does() {
    for (rounds, len) in [(10, 500), (1, 5_000)] {
        let mut sim = slow();
        sim.client("client", move || async move {
            let stream = TcpStream::connect("echo:7").await.unwrap();
            let start = Instant::now();
            for _ in 0..rounds {
                round(&stream, len).await;
            }
            let taken = start.elapsed();
            // Of the long one, the first bytes come back while the last ones leave.
            assert_seconds(taken, if rounds == 1 { 6 } else { 10 });
        });
        assert_eq!(sim.run().failure, None);
    }
}

#[test]
fn connections_share_the_line_of_their_host() {
    let mut sim = slow();
    sim.client("client", || async {
        let start = Instant::now();
        let one = || async {
            let stream = TcpStream::connect("echo:7").await.unwrap();
            round(&stream, 1_000).await;
        };
        for task in [(); 10].map(|()| dapple_sched::spawn(one())) {
            task.await.unwrap();
        }
        assert_seconds(start.elapsed(), 11);
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn a_line_does_not_carry_faster_after_a_cut() {
    let mut sim = slow();
    sim.client("reader", || async {
        let (stream, _) = TcpListener::bind("0.0.0.0:9").unwrap().accept().await.unwrap();
        let mut bytes = vec![0; 5_000];
        let first = stream.read(&mut bytes).await.unwrap();
        let start = Instant::now();
        stream.read_exact(&mut bytes[first..]).await.unwrap();
        let (taken, rest) = (start.elapsed(), Duration::from_millis(5_000 - first as u64));
        assert!(first <= 1_460 && taken >= rest, "{first} bytes came, and the others {taken:?} later");
    });
    sim.client("client", || async {
        let stream = TcpStream::connect("reader:9").await.unwrap();
        sleep(Duration::from_secs(1)).await;
        stream.write_all(&[1; 5_000]).await.unwrap();
        sleep(Duration::from_secs(60)).await;
    });
    let mut plan = Plan::default();
    let cut = Fault::Cut("client".into(), "reader".into());
    plan.add(Duration::from_millis(500), Duration::from_secs(6), cut);
    sim.plan(plan);
    assert_eq!(sim.run().failure, None);
}

#[test]
fn datagrams_wait_for_the_line_for_a_second() {
    let mut sim = slow();
    sim.client("to", || async {
        let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
        let (mut bytes, start) = ([0; 1_000], Instant::now());
        for number in 0..10 {
            socket.recv_from(&mut bytes).await.unwrap();
            assert_eq!(bytes[0], number);
            assert_seconds(start.elapsed(), number as u64 + 1);
        }
        // Of a burst, the first fills the line, and the second waits for it.
        let mut burst = 0;
        while timeout(Duration::from_secs(10), socket.recv_from(&mut bytes)).await.is_ok() {
            burst += 1;
        }
        assert_eq!(burst, 2);
    });
    sim.client("from", || async {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let send = async |number, to| socket.send_to(&[number; 1_000], to).await.unwrap();
        for number in 0..10 {
            send(number, "to:9").await;
            sleep(Duration::from_millis(1_001)).await;
        }
        for number in 0..90 {
            send(number, "to:9").await;
            // To the own host, they use no line.
            send(number, "from:9").await;
        }
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn what_is_closed_unread_is_reset() {
    let mut sim = Simulation::new(1);
    sim.host("rude", || async {
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        stream.peek(&mut [0]).await.unwrap();
        drop(stream);
        std::future::pending::<()>().await;
    });
    sim.client("client", || async {
        let stream = TcpStream::connect("rude:7").await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn a_full_backlog_makes_clients_wait() {
    let mut sim = Simulation::new(1);
    sim.settings(|settings| settings.network.backlog = 2);
    sim.host("slow", || async {
        let listener = TcpListener::bind("0.0.0.0:7").unwrap();
        loop {
            sleep(Duration::from_secs(1)).await;
            let _accepted = listener.accept().await.unwrap();
        }
    });
    sim.client("client", || async {
        let tasks: Vec<_> = (0..6).map(|_| dapple_sched::spawn(TcpStream::connect("slow:7"))).collect();
        let start = dapple_sim::time::Instant::now();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn datagrams_are_lost_and_come_twice_and_late() {
    let mut sim = Simulation::new(1);
    sim.settings(|settings| {
        let network = &mut settings.network;
        (network.loss, network.duplication, network.reordering) = (200_000, 200_000, 200_000);
    });
    sim.client("to", || async {
        let socket = UdpSocket::bind("0.0.0.0:9").unwrap();
        let mut got = Vec::new();
        let mut bytes = [0; 8];
        while let Ok(received) = timeout(Duration::from_secs(3), socket.recv_from(&mut bytes)).await {
            assert_eq!(received.unwrap().0, 4);
            got.push(u32::from_be_bytes(bytes[..4].try_into().unwrap()));
        }
        let mut once = got.clone();
        once.sort_unstable();
        once.dedup();
        assert!(once.len() < 190 && once.len() > 100, "{} of 200 came", once.len());
        assert!(once.len() < got.len(), "some came twice");
        assert!(!got.is_sorted(), "some came late");
    });
    sim.client("from", || async {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for number in 0..200_u32 {
            socket.send_to(&number.to_be_bytes(), "to:9").await.unwrap();
            sleep(Duration::from_millis(2)).await;
        }
    });
    assert_eq!(sim.run().failure, None);
}

#[test]
fn a_client_without_end_of_patience_asks_until_the_time_is_over() {
    let mut sim = Simulation::new(1);
    sim.settings(|settings| {
        (settings.time_max, settings.network.patience) = (Duration::from_secs(3600 * 24 * 365 * 100), Duration::MAX)
    });
    sim.client("client", || async { drop(TcpStream::connect("10.0.0.9:1").await) });
    let failure = sim.run().failure.expect("the time is over");
    assert!(failure.starts_with("given up after"), "{failure}");
}
