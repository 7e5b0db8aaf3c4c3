//! Tunnels, made with `CONNECT`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::number;
use super::origin::Origin;
use super::reply;
use crate::support::{Client, Server, eventually, noise};

/// Opens a tunnel to a port of this machine.
pub(super) fn connect(proxy: &Server, port: u16) -> Client {
    let mut client = proxy.connect();
    client.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n"));
    let head = client.read_head();
    assert_eq!((head.status, head.header("content-length"), head.header("transfer-encoding")), (200, None, None));
    client
}

/// A tunnel as a plain stream.
pub(super) fn stream(proxy: &Server, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "CONNECT 127.0.0.1:{port} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", head.escape_ascii());
    stream
}

fn start(port: u16, options: &[&str]) -> Server {
    let port = port.to_string();
    let mut all = vec!["--connect-port", &port];
    all.extend(options);
    Server::start_proxy(&all)
}

#[test]
fn bytes_go_both_ways_and_ends_are_passed_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut got = Vec::new();
        // Answers only when the client has ended its half.
        stream.read_to_end(&mut got).unwrap();
        stream.write_all(&got).unwrap();
        got.len()
    });
    let proxy = start(port, &[]);
    let mut client = stream(&proxy, port);
    let body = noise(3_000_000, 5);
    client.write_all(&body).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert!(back == body);
    assert_eq!(server.join().unwrap(), body.len());
    assert!(eventually(Duration::from_secs(20), || number(&proxy, "bytes") == 2 * body.len() as u64));
}

#[test]
fn bytes_sent_with_the_request_are_not_lost() {
    let origin = Origin::of(|asked| reply("200 OK", "", &asked.target));
    let proxy = start(origin.port, &[]);
    let mut client = proxy.connect();
    let target = format!("127.0.0.1:{}", origin.port);
    client.send(format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\nGET /early HTTP/1.1\r\nhost: x\r\n\r\n"));
    assert_eq!(client.read_head().status, 200);
    assert_eq!(client.read_response().text(), "/early");
}

#[test]
fn tls_goes_through() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let cert = key.cert.der().clone();
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let server_config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.clone()], private.into())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = rustls::ServerConnection::new(Arc::new(server_config)).unwrap();
        let mut tls = rustls::StreamOwned::new(connection, stream);
        let mut question = [0; 9];
        tls.read_exact(&mut question).unwrap();
        tls.write_all(&question).unwrap();
        tls.flush().unwrap();
    });
    let proxy = start(port, &[]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(cert).unwrap();
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connection = rustls::ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut tls = rustls::StreamOwned::new(connection, stream(&proxy, port));
    tls.write_all(b"encrypted").unwrap();
    let mut answer = [0; 9];
    tls.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"encrypted");
    server.join().unwrap();
}

#[test]
fn tunnels_are_limited_and_idle_ones_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = start(port, &["--tunnels", "2", "--tunnel-timeout-s", "4"]);
    let (mut one, two) = (stream(&proxy, port), stream(&proxy, port));
    let third = super::ask(&proxy, "CONNECT", &format!("127.0.0.1:{port}"), "");
    assert_eq!(third.status, 503);
    // It is idle.
    assert_eq!(one.read(&mut [0; 10]).unwrap_or(0), 0);
    assert!(eventually(Duration::from_secs(20), || {
        let mut client = proxy.connect();
        client.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nhost: x\r\n\r\n"));
        client.read_head().status == 200
    }));
    drop(two);
}
