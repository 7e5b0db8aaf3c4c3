//! rustls as server and client under hyper, and against rustls as it is, which blocks a thread of
//! the test's.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use dapple::blocking::spawn_blocking;
use dapple::hyper_rt::{Executor, Timer};
use dapple::net::{TcpListener, TcpStream};
use dapple::task::CancellationToken;
use dapple::tls::{Certificates, TlsAcceptor, TlsConnector};
use hyper::StatusCode;
use hyper::client::conn::{http1, http2};
use rustls::pki_types::{PrivateKeyDer, ServerName};

use crate::server::{Client, read, serve};
use crate::{assert_no_tokio, run};

/// Serves `router` with TLS, HTTP/1.1 or HTTP/2 as the client prefers; also returns a client that
/// trusts it.
fn start(router: Router) -> (SocketAddr, TlsConnector, Certificates) {
    let certificates = Certificates::self_signed(["localhost"]).unwrap();
    let connector = TlsConnector::with_roots([certificates.first().clone()]).unwrap();
    let acceptor = TlsAcceptor::with_alpn(certificates.clone(), ["h2", "http/1.1"]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    dapple::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, router) = (acceptor.clone(), router.clone());
            dapple::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream, HANDSHAKE).await {
                    serve(stream, router, CancellationToken::new()).await;
                }
            });
        }
    });
    (addr, connector, certificates)
}

async fn connect(addr: SocketAddr, connector: TlsConnector, protocol: &str) -> Client {
    let stream = TcpStream::connect(addr).await.unwrap();
    let stream = connector.alpn([protocol]).connect("localhost", stream, HANDSHAKE).await.unwrap();
    assert_eq!(stream.alpn(), Some(protocol.as_bytes()));
    if protocol == "h2" {
        let (sender, connection) =
            http2::Builder::new(Executor::new()).timer(Timer::new()).handshake(stream).await.unwrap();
        dapple::spawn(connection);
        return Client::Http2(sender);
    }
    let (sender, connection) = http1::handshake(stream).await.unwrap();
    dapple::spawn(connection);
    Client::Http1(sender)
}

async fn echo(request: Request) -> Response {
    assert_no_tokio();
    Response::new(request.into_body())
}

fn requests_are_answered_in_secret(workers: usize) {
    run(workers, async {
        let (addr, connector, _) = start(Router::new().route("/echo", post(echo)));
        let sent: Bytes = (0..LARGE).map(|at| (at % 249) as u8).collect::<Vec<u8>>().into();
        let clients: Vec<_> = (0..10)
            .map(|number| {
                let (connector, sent) = (connector.clone(), sent.clone());
                dapple::spawn(async move {
                    let protocol = ["h2", "http/1.1"][number % 2];
                    let mut client = connect(addr, connector, protocol).await;
                    for len in [0, 1, 20_000, LARGE] {
                        let body = Body::from(sent.slice(..len));
                        let (status, text) = read(client.send("POST", "/echo", body).await.unwrap()).await;
                        assert!(
                            status == StatusCode::OK && text == sent[..len],
                            "{protocol}: {status}, {}",
                            text.len()
                        );
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn requests_are_answered_in_secret_on_one_worker() {
    requests_are_answered_in_secret(1);
}

#[test]
fn requests_are_answered_in_secret_on_four_workers() {
    requests_are_answered_in_secret(4);
}

#[test]
fn a_server_with_an_untrusted_certificate_gets_no_connection() {
    run(2, async {
        let (addr, _, _) = start(Router::new());
        let other = Certificates::self_signed(["localhost"]).unwrap();
        let connector = TlsConnector::with_roots([other.first().clone()]).unwrap();
        let stream = TcpStream::connect(addr).await.unwrap();
        let error = connector.connect("localhost", stream, HANDSHAKE).await.unwrap_err();
        assert!(matches!(error, dapple::tls::Error::Protocol(rustls::Error::InvalidCertificate(_))), "{error}");
        let (addr, connector, _) = start(Router::new());
        let stream = TcpStream::connect(addr).await.unwrap();
        assert!(connector.connect("example.com", stream, HANDSHAKE).await.is_err(), "it is not for that name");
    });
}

fn versions() -> [&'static rustls::SupportedProtocolVersion; 2] {
    [&rustls::version::TLS12, &rustls::version::TLS13]
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

#[test]
fn a_client_that_has_rustls_itself_is_served() {
    run(2, async {
        let (addr, _, certificates) = start(Router::new().route("/", get(async || "a page")));
        for version in versions() {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(certificates.first().clone()).unwrap();
            let config = rustls::ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[version]);
            let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
            let asking = spawn_blocking(move || {
                let name = ServerName::try_from("localhost").unwrap();
                let session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
                let mut stream = rustls::StreamOwned::new(session, std::net::TcpStream::connect(addr).unwrap());
                stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
                let mut reply = String::new();
                stream.read_to_string(&mut reply).expect("the end is announced as TLS wants it");
                (stream.conn.protocol_version(), reply)
            });
            let (agreed, reply) = asking.await.unwrap();
            assert_eq!(agreed, Some(version.version));
            assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\na page"), "{reply}");
        }
    });
}

#[test]
fn a_server_that_has_rustls_itself_is_asked() {
    run(2, async {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let connector = TlsConnector::with_roots([certificate.der().clone()]).unwrap();
        for version in versions() {
            let config = rustls::ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[version]);
            let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
            let chain = vec![certificate.der().clone()];
            let config = config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let answering = spawn_blocking(move || {
                let session = rustls::ServerConnection::new(Arc::new(config)).unwrap();
                let mut stream = rustls::StreamOwned::new(session, listener.accept().unwrap().0);
                let mut text = [0; 5];
                stream.read_exact(&mut text).unwrap();
                text.make_ascii_uppercase();
                stream.write_all(&text).unwrap();
                stream.conn.send_close_notify();
                stream.flush().unwrap();
                // Until the other side has ended, too.
                assert_eq!(stream.read(&mut text).unwrap(), 0);
            });
            let stream = TcpStream::connect(addr).await.unwrap();
            let stream = connector.connect("localhost", stream, HANDSHAKE).await.unwrap();
            assert_eq!(stream.protocol_version(), version.version);
            stream.write_all(b"hello").await.unwrap();
            let mut text = [0; 8];
            stream.read_exact(&mut text[..5]).await.unwrap();
            assert_eq!(&text[..5], b"HELLO");
            assert_eq!(stream.read(&mut text).await.unwrap(), 0, "the end was announced");
            stream.shutdown().await.unwrap();
            answering.await.unwrap();
        }
    });
}

const LARGE: usize = 3 << 20;

/// Only a bug reaches it.
const HANDSHAKE: Duration = Duration::from_secs(60);
