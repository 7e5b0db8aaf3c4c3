//! TLS to upstreams and to clients.

use std::sync::Arc;

use bytes::Bytes;
use dapple::hyper_rt::{Executor, Timer};
use http_body_util::{BodyExt, Empty};

use super::start;
use crate::proxy::origin::Origin;
use crate::proxy::reply;
use crate::support::{Server, Site, dapple, noise};
use crate::tls::{Certificate, connect};

#[test]
fn an_upstream_is_encrypted_and_has_to_prove_its_identity() {
    let (site, secrets) = (Site::new(), Site::new());
    let page = noise(300_000, 5);
    site.write("page.bin", &page);
    let (right, wrong) = (Certificate::make(&secrets, "a", "localhost"), Certificate::make(&secrets, "b", "b.example"));
    let server = Server::start(&site.path, &right.options());
    let to = format!("https://localhost:{}", server.port);
    let authorities = secrets.path.join("a.crt");
    let proxy = start(&to, &["--upstream-ca", authorities.to_str().unwrap()]);
    let mut client = proxy.connect();
    for _ in 0..3 {
        let response = client.get("/page.bin");
        assert!(response.status == 200 && response.body == page);
    }
    assert!(client.get("/none").header("via").unwrap().starts_with("2 "), "HTTP/2 was agreed on");
    // No authority vouches for it, or it has another name.
    assert_eq!(start(&to, &[]).get("/page.bin").status, 502);
    let other = Server::start(&site.path, &wrong.options());
    let others = secrets.path.join("b.crt");
    let proxy = start(&format!("https://localhost:{}", other.port), &["--upstream-ca", others.to_str().unwrap()]);
    assert_eq!(proxy.get("/page.bin").status, 502);
}

/// A TLS server for `localhost` that speaks only HTTP/1.1, and answers with the head that it
/// received. Returns its port; its certificate is in `ca.pem`.
fn http_1_1(secrets: &Site) -> u16 {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    secrets.write("ca.pem", key.cert.pem());
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
    let builder = rustls::ServerConfig::builder().with_no_client_auth();
    let config = Arc::new(builder.with_single_cert(vec![key.cert.der().clone()], private.into()).unwrap());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = config.clone();
            std::thread::spawn(move || {
                let connection = rustls::ServerConnection::new(config).unwrap();
                let mut tls = rustls::StreamOwned::new(connection, stream);
                let mut head = Vec::new();
                let mut byte = [0];
                while std::io::Read::read_exact(&mut tls, &mut byte).is_ok() {
                    head.push(byte[0]);
                    if head.ends_with(b"\r\n\r\n") {
                        let answer = reply("200 OK", "", &String::from_utf8_lossy(&head));
                        if std::io::Write::write_all(&mut tls, &answer).is_err() {
                            return;
                        }
                        head.clear();
                    }
                }
            });
        }
    });
    port
}

#[test]
fn http_1_1_is_spoken_if_alpn_agrees_on_it() {
    let secrets = Site::new();
    let port = http_1_1(&secrets);
    let authorities = secrets.path.join("ca.pem");
    let options = ["--upstream-ca", authorities.to_str().unwrap(), "--rewrite-host"];
    let proxy = start(&format!("https://localhost:{port}"), &options);
    let mut client = proxy.connect();
    for _ in 0..3 {
        let head = client.get("/x").text().to_ascii_lowercase();
        assert!(head.contains(&format!("host: localhost:{port}\r\n")), "{head}");
        assert!(head.contains("x-forwarded-proto: http\r\n"), "of the client, not of the upstream: {head}");
    }
}

/// With HTTP/2 many requests have a turn at a time; without it, they wait for the few connections
/// allowed.
#[test]
fn requests_wait_for_a_connection_if_each_carries_one() {
    let secrets = Site::new();
    let port = http_1_1(&secrets);
    let authorities = secrets.path.join("ca.pem");
    let options = ["--upstream-ca", authorities.to_str().unwrap(), "--upstream-connections", "2"];
    let proxy = start(&format!("https://localhost:{port}"), &options);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                let mut client = proxy.connect();
                for _ in 0..10 {
                    assert_eq!(client.get("/x").status, 200);
                }
            });
        }
    });
}

#[test]
fn clients_by_tls_with_both_versions() {
    let origin = Origin::of(|asked| reply("200 OK", "", &asked.head));
    let secrets = Site::new();
    let certificate = Certificate::make(&secrets, "a", "a.example");
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "2", "--to", &origin.url("")]).args(certificate.options());
    let proxy = Server::spawn(command);
    assert!(proxy.line.contains(" https://127.0.0.1:"), "{}", proxy.line);
    dapple::block_on(async {
        let stream = connect(proxy.port, "a.example", &[&certificate], &["h2", "http/1.1"]).await;
        assert_eq!(stream.alpn(), Some(&b"h2"[..]));
        let builder = hyper::client::conn::http2::Builder::new(Executor::new()).timer(Timer::new()).to_owned();
        let (mut sender, connection) = builder.handshake(stream).await.unwrap();
        drop(dapple::spawn(connection));
        let request = http::Request::get("https://a.example/x").body(Empty::<Bytes>::new()).unwrap();
        let body = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        let head = String::from_utf8(body.to_vec()).unwrap().to_ascii_lowercase();
        assert!(head.contains("host: a.example\r\n") && head.contains("x-forwarded-proto: https\r\n"), "{head}");
        assert!(head.contains(";proto=https\r\n"), "{head}");
    });
    // A client without TLS is told so.
    assert_eq!(proxy.get("/").status, 400);
    let mut command = dapple();
    command.args(["proxy", "--port", "0", "--workers", "1", "--tls-self-signed", "--to", &origin.url("")]);
    assert!(Server::spawn(command).line.contains(" https://127.0.0.1:"));
}
