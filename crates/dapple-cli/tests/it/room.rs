//! Idle connections make room when all places are taken.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{Client, Server, Site, eventually, noise};

/// A site with a large file that stays in transit to a client that does not read it.
fn site() -> Site {
    let site = Site::with_index();
    site.write("large.bin", noise(LARGE_LEN, 3));
    site
}

/// Connections that each have a download in transit.
fn busy(server: &Server, count: usize) -> Vec<Client> {
    let download = |_| {
        let mut client = server.connect();
        client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.read_head().status, 200);
        client
    };
    (0..count).map(download).collect()
}

/// Connections that have been used, and are idle.
fn resting(server: &Server, count: usize) -> Vec<Client> {
    let used = |_| {
        let mut client = server.connect();
        assert_eq!(client.get("/").status, 200);
        client
    };
    (0..count).map(used).collect()
}

fn refused(client: &mut Client) -> u64 {
    let status: serde_json::Value = serde_json::from_slice(&client.get("/-/status").body).unwrap();
    status["connections"]["refused"].as_u64().unwrap()
}

#[test]
fn idle_connections_make_room_and_busy_ones_are_finished() {
    let site = site();
    let server = Server::start(&site.path, &["--connections", "16", "--cache-mb", "1"]);
    let mut downloads = busy(&server, 4);
    let _rest = resting(&server, 12);
    let mut newcomers = resting(&server, 40);
    assert_eq!(refused(newcomers.last_mut().unwrap()), 0);
    for client in &mut downloads {
        let mut body = vec![0; LARGE_LEN];
        client.read_all(&mut body);
        assert!(body == noise(LARGE_LEN, 3));
    }
}

/// A silent client counts as idle after a while.
#[test]
fn unused_connections_make_room() {
    let site = site();
    let server = Server::start(&site.path, &["--connections", "8"]);
    let _silent: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    let mut begun = server.connect();
    let came = eventually(LIMIT, || {
        begun = server.connect();
        begun.try_get("/").is_ok_and(|status| status == 200)
    });
    assert!(came);
}

/// The same over TLS, if the clients have not even begun their handshake.
#[test]
fn missing_handshakes_make_room() {
    let site = site();
    let server = Server::start(&site.path, &["--connections", "8", "--tls-self-signed"]);
    let silent: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    // A client without TLS is answered before it is closed, which takes a place.
    let came = eventually(LIMIT, || server.connect().try_get("/").is_ok_and(|status| status == 400));
    assert!(came);
    drop(silent);
}

/// Places are shared by max-min fairness: an address with all of them gives some to another.
#[test]
fn an_address_with_all_places_makes_room_for_one_with_none() {
    let site = site();
    let options = ["--connections", "8", "--cache-mb", "1", "--connections-per-address", "0"];
    let server = Server::start(&site.path, &options);
    let _downloads = busy(&server, 8);
    let mut stream = from_another_address(server.port);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    std::io::Read::read_to_string(&mut stream, &mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

fn from_another_address(port: u16) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let addr = |ip: [u8; 4], port: u16| socket2::SockAddr::from(std::net::SocketAddr::from((ip, port)));
    socket.bind(&addr([127, 0, 0, 2], 0)).unwrap();
    socket.connect(&addr([127, 0, 0, 1], port)).unwrap();
    socket.into()
}

const LARGE_LEN: usize = 16 << 20;

const LIMIT: Duration = Duration::from_secs(20);
