//! More connections than there are places.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use dapple::tls::{Certificates, TlsAcceptor};
use soak::{Frames, GOAWAY, Trust, Wire};
use socket2::{Domain, Socket, Type};

use crate::site::BLOCKED;
use crate::support::{Client, LIMIT, ask, connect, end, eventually, get, outside, reply, rest, start};

#[test]
fn the_longest_idle_connections_make_room() {
    let (runtime, server) = outside!(server => server.connections_max(3).no_admission());
    let mut clients: Vec<_> = (0..3).map(|_| connect(server.addr)).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "/hello").1, "hello");
        // Longer than a tick of the coarse clock, so that the times differ.
        std::thread::sleep(Duration::from_millis(50));
    }
    // Now this one has been idle for the shortest time.
    assert_eq!(ask(&mut clients[0], "/hello").1, "hello");
    let mut newcomer = connect(server.addr);
    assert_eq!(ask(&mut newcomer, "/hello").1, "hello");
    assert_eq!(rest(&mut clients[1]), "", "it has been idle longest");
    assert_eq!(ask(&mut clients[0], "/hello").1, "hello");
    assert_eq!(ask(&mut clients[2], "/hello").1, "hello");
    assert_eq!(server.handle.turned_away(), 0);
    drop((clients, newcomer));
    end(runtime, server);
}

#[test]
fn without_idle_connections_newcomers_are_told_to_retry() {
    let (runtime, server) = outside!(server => server.connections_max(2));
    let mut busy: Vec<_> = (0..2).map(|_| connect(server.addr)).collect();
    for client in &mut busy {
        client.write_all(get("/never").as_bytes()).unwrap();
    }
    eventually("they are busy", || server.handle.requests() == 2);
    for _ in 0..3 {
        let mut newcomer = connect(server.addr);
        let reply = rest(&mut newcomer);
        assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("retry-after: 1"), "{reply}");
    }
    assert_eq!(server.handle.turned_away(), 3);
    busy.pop();
    eventually("one is gone", || server.handle.connections() == 1);
    assert_eq!(ask(&mut connect(server.addr), "/hello").1, "hello");
    drop(busy);
    end(runtime, server);
}

/// An HTTP/2 client gets the refusal as the reply to its request. The clock stands still.
#[dapple::test]
async fn http2_newcomers_are_refused_in_their_protocol() {
    let server = start!(server => server.connections_max(1).on_full(|| {
        http::Response::builder().status(503).body("full".to_owned()).unwrap()
    }));
    let busy = Client::connect(server.addr).await;
    busy.say(&get("/never")).await;
    while server.handle.requests() == 0 {
        dapple::time::sleep(Duration::from_millis(1)).await;
    }
    let stream = dapple::net::TcpStream::connect(server.addr).await.unwrap();
    let replies = crate::basics::by_http2(stream, &["/hello"]).await;
    let (status, body) = replies[0].as_ref().unwrap();
    assert_eq!((status.as_u16(), &body[..]), (503, &b"full"[..]));
    let reply = Client::connect(server.addr).await.rest().await;
    assert!(reply.starts_with("HTTP/1.1 503 ") && reply.ends_with("full"), "{reply}");
    assert_eq!(server.handle.turned_away(), 2);
}

#[test]
fn one_client_has_a_limit_of_connections() {
    let (runtime, server) = outside!(server => server.connections_per_client(2));
    let mut clients: Vec<_> = (0..2).map(|_| connect_as(1, server.addr)).collect();
    for client in &mut clients {
        assert_eq!(ask(client, "/hello").1, "hello");
    }
    let reply = rest(&mut connect_as(1, server.addr));
    assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("Your address has all"), "{reply}");
    assert_eq!(ask(&mut connect_as(2, server.addr), "/hello").1, "hello");
    clients.pop();
    eventually("one is gone", || ask_if(&mut connect_as(1, server.addr)));
    drop(clients);
    end(runtime, server);
}

/// Whether a new client is served.
fn ask_if(client: &mut TcpStream) -> bool {
    client.write_all(get("/hello").as_bytes()).is_ok() && reply(client).1 == "hello"
}

#[test]
fn descriptors_cap_the_configured_limit() {
    let (runtime, server) = outside!(server => server.connections_max(usize::MAX));
    assert!((1..=100_000).contains(&server.handle.connections_max()), "{}", server.handle.connections_max());
    end(runtime, server);
}

/// A client at another address of this machine, so that the server sees another client.
fn connect_as(client: u8, addr: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, client], 0)).into()).unwrap();
    socket.connect(&addr.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

#[test]
fn a_client_with_all_places_gives_some_to_others() {
    let (runtime, server) = outside!(server => server.connections_max(20).no_admission());
    let addr = server.addr;
    let mut greedy: Vec<_> = (0..20).map(|_| connect_as(1, addr)).collect();
    for client in &mut greedy {
        client.write_all(get("/never").as_bytes()).unwrap();
    }
    eventually("they are busy", || server.handle.requests() == 20);
    // Each has its share, while the other client keeps returning.
    let mut others: Vec<TcpStream> = Vec::new();
    for client in 2..=5 {
        let mut other = connect_as(client, addr);
        let both = format!("{}{}", get("/hello"), get("/never"));
        other.write_all(both.as_bytes()).unwrap();
        assert_eq!(reply(&mut other).1, "hello", "client {client}");
        for _ in 0..10 {
            let reply = rest(&mut connect_as(1, addr));
            assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
        }
        others.push(other);
    }
    // A client with less keeps its places.
    for other in &mut others {
        other.set_nonblocking(true).unwrap();
        assert_eq!(other.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    assert!(server.handle.connections() <= 20);
    drop((greedy, others));
    end(runtime, server);
}

#[test]
fn upgraded_connections_do_not_lock_others_out() {
    let (runtime, server) = outside!(server => server.connections_max(4).no_admission());
    let mut greedy: Vec<_> = (0..4).map(|_| connect_as(1, server.addr)).collect();
    for client in &mut greedy {
        upgrade(client, "/upgrade");
        client.write_all(b"abc").unwrap();
        let mut echo = [0; 3];
        client.read_exact(&mut echo).unwrap();
        assert_eq!(&echo, b"ABC");
    }
    let mut other = connect_as(2, server.addr);
    assert_eq!(ask(&mut other, "/hello").1, "hello");
    eventually("the handler of another protocol lets go", || server.handle.connections() <= 4);
    assert_eq!(ask(&mut other, "/hello").1, "hello");
    drop((greedy, other));
    end(runtime, server);
}

fn upgrade(client: &mut TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    assert!(reply(client).0.starts_with("HTTP/1.1 101 "));
}

#[test]
fn upgraded_connections_with_a_client_that_does_not_read_do_not_lock_others_out() {
    for (number, path) in ["/talk?0", "/talk?1"].into_iter().enumerate() {
        let (runtime, server) = outside!(server => server.connections_max(4).no_admission());
        let mut greedy: Vec<_> = (0..4).map(|_| connect_as(1, server.addr)).collect();
        for client in &mut greedy {
            upgrade(client, path);
        }
        eventually("their tasks wait to write", || BLOCKED.load(Ordering::Relaxed) == 4 * (number + 1));
        let mut other = connect_as(2, server.addr);
        assert_eq!(ask(&mut other, "/hello").1, "hello", "{path}");
        drop((greedy, other));
        end(runtime, server);
    }
}

/// Its task would never end it.
#[test]
fn upgraded_connections_that_ignore_orders_do_not_lock_others_out() {
    let (runtime, server) = outside!(server => {
        server.connections_max(4).no_admission().drain(Duration::ZERO)
    });
    let mut greedy: Vec<_> = (0..4).map(|_| connect_as(1, server.addr)).collect();
    for client in &mut greedy[..3] {
        client.write_all(get("/never").as_bytes()).unwrap();
    }
    eventually("they are busy", || server.handle.requests() == 3);
    // The newest connection is asked first.
    upgrade(&mut greedy[3], "/hold");
    eventually("another client is in", || {
        let mut other = connect_as(2, server.addr);
        ask(&mut other, "/hello").1 == "hello"
    });
    server.handle.stop();
    runtime.block_on(server.task).unwrap().unwrap();
    drop(greedy);
}

#[test]
fn stalled_handshakes_do_not_lock_others_out() {
    let certificates = Certificates::self_signed(["localhost"]).unwrap();
    let trust = Trust::new(certificates.first().clone(), "h2").unwrap();
    let acceptor = TlsAcceptor::with_alpn(certificates, ["h2", "http/1.1"]).unwrap();
    let (runtime, server) =
        outside!(server => server.connections_max(4).head_timeout(Duration::from_secs(3_600)).tls(acceptor));
    let silent: Vec<_> = (0..4).map(|_| connect_as(2, server.addr)).collect();
    eventually("they are in", || server.handle.connections() == 4);
    eventually("somebody else is", || {
        Wire::tls(server.addr.port(), "localhost", &trust).is_ok_and(|wire| Frames::begin(wire, 65_535).is_ok())
    });
    drop(silent);
    end(runtime, server);
}

/// If this happened one after the other, each newcomer would wait for 0.2 s until a connection is
/// cut for it. The clock stands still.
#[dapple::test]
async fn newcomers_wait_at_the_same_time() {
    let server = start!(server => server.connections_max(20).no_admission());
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let client = Client::connect(server.addr).await;
        client.say(&get("/never")).await;
        greedy.push(client);
    }
    while server.handle.requests() < 20 {
        dapple::time::sleep(Duration::from_millis(1)).await;
    }
    let begin = dapple::time::Instant::now();
    let mut others = Vec::new();
    for client in 2..=7 {
        let other = connect_as(client, server.addr);
        other.set_nonblocking(true).unwrap();
        let other = Client(dapple::net::TcpStream::from_std(other).unwrap());
        other.say(&format!("{}{}", get("/hello"), get("/never"))).await;
        others.push(other);
    }
    for other in &others {
        assert_eq!(other.hear().await.1, "hello");
    }
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(600), "{took:?}");
    assert_eq!(server.handle.turned_away(), 0);
}

/// A client that has more to say, while the server ends its connection. The clock stands still.
#[dapple::test]
async fn a_closing_connection_does_not_count_as_idle() {
    let server = start!(server => server.connections_max(2).no_admission());
    let closing = Client::connect(server.addr).await;
    closing.say("POST /hello HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n").await;
    assert_eq!(closing.hear().await.1, "hello");
    let resting = Client::connect(server.addr).await;
    assert_eq!(resting.ask("/hello").await.1, "hello");
    let newcomer = Client::connect(server.addr).await;
    assert_eq!(newcomer.ask("/hello").await.1, "hello");
    assert_eq!(resting.rest().await, "");
}

/// The peer has been told, and has no other stream that could end.
#[test]
fn a_peer_with_only_one_too_slow_stream_makes_room_at_once() {
    let (runtime, server) = outside!(server => {
        server.connections_max(2).pause_timeout(Duration::from_millis(100)).no_admission()
    });
    let mut peer = Frames::begin(Wire::plain(server.addr.port()).unwrap(), 0).unwrap();
    peer.get(1, "/zeros", &[(":authority", "a")]).unwrap();
    // The server resets the stream because the client reads nothing of it. From here on the client
    // acknowledges nothing.
    loop {
        let mut head = [0; 9];
        peer.wire().read_exact(&mut head).unwrap();
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        peer.wire().read_exact(&mut payload).unwrap();
        if head[3] == GOAWAY {
            break;
        }
    }
    eventually("it is closed", || server.handle.connections() == 0);
    let mut resting = connect(server.addr);
    assert_eq!(ask(&mut resting, "/hello").1, "hello");
    assert_eq!(ask(&mut connect(server.addr), "/hello").1, "hello");
    assert_eq!(ask(&mut resting, "/hello").1, "hello");
    drop(peer);
    end(runtime, server);
}

/// With short requests nothing is lost: connections make room after their reply. The clock stands
/// still.
#[dapple::test]
async fn a_connection_that_is_asked_to_end_has_time_for_its_reply() {
    let server = start!(server => server.connections_max(4).no_admission());
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let client = Client::connect(server.addr).await;
        client.say(&get("/sleep?150")).await;
        greedy.push(client);
    }
    while server.handle.requests() < 4 {
        dapple::time::sleep(Duration::from_millis(1)).await;
    }
    let other = connect_as(2, server.addr);
    other.set_nonblocking(true).unwrap();
    let other = Client(dapple::net::TcpStream::from_std(other).unwrap());
    other.say(&get("/hello")).await;
    let mut last = 0;
    for client in &greedy {
        let (head, body) = client.hear().await;
        assert_eq!(body, "awake");
        last += usize::from(head.contains("connection: close"));
    }
    assert_eq!((other.hear().await.1.as_str(), last), ("hello", 1));
}
