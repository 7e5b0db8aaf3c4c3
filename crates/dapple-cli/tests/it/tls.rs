//! HTTPS: both versions of HTTP, certificates by name, new certificates while connections are open,
//! and clients without TLS.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use dapple::hyper_rt::{Executor, Timer};
use dapple::net::TcpStream;
use dapple::tls::{TlsConnector, TlsStream};
use http_body_util::{BodyExt, Empty};
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;

use crate::support::{Server, Site, dapple, eventually, noise};

/// A certificate in two files.
pub(crate) struct Certificate {
    pub(crate) der: CertificateDer<'static>,
    files: [PathBuf; 2],
}

impl Certificate {
    pub(crate) fn make(site: &Site, file: &str, name: &str) -> Certificate {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        site.write(&format!("{file}.crt"), made.cert.pem());
        site.write(&format!("{file}.key"), made.signing_key.serialize_pem());
        let files = ["crt", "key"].map(|ending| site.path.join(format!("{file}.{ending}")));
        Certificate { der: made.cert.der().clone(), files }
    }

    pub(crate) fn options(&self) -> [&str; 4] {
        ["--tls-cert", self.files[0].to_str().unwrap(), "--tls-key", self.files[1].to_str().unwrap()]
    }
}

pub(crate) async fn connect(port: u16, name: &str, roots: &[&Certificate], alpn: &[&str]) -> TlsStream<TcpStream> {
    let connector = TlsConnector::with_roots(roots.iter().map(|root| root.der.clone())).unwrap();
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port).to_owned()).await.unwrap();
    connector.alpn(alpn.iter().copied()).connect(name, stream, LIMIT).await.unwrap()
}

/// Sends a GET over HTTP/1.1 on a kept connection; returns the body.
async fn get(stream: &TlsStream<TcpStream>, path: &str) -> Vec<u8> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
    let mut response = Vec::new();
    loop {
        let mut buf = [0; 16 << 10];
        let count = stream.read(&mut buf).await.unwrap();
        assert!(count > 0, "cut after {} bytes", response.len());
        response.extend_from_slice(&buf[..count]);
        let Some(end) = response.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(response[..end].to_vec()).unwrap().to_ascii_lowercase();
        let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        if response.len() == end + 4 + len.parse::<usize>().unwrap() {
            return response.split_off(end + 4);
        }
    }
}

#[test]
fn both_versions_of_http() {
    let (site, secrets) = (Site::new(), Site::new());
    let page = noise(200_000, 3);
    site.write("page.bin", &page);
    let certificate = Certificate::make(&secrets, "a", "a.example");
    let server = Server::start(&site.path, &certificate.options());
    assert!(server.line.contains(" https://127.0.0.1:"), "{}", server.line);
    dapple::block_on(async {
        let stream = connect(server.port, "a.example", &[&certificate], &["h2", "http/1.1"]).await;
        assert_eq!(stream.alpn(), Some(&b"h2"[..]));
        let builder = hyper::client::conn::http2::Builder::new(Executor::new()).timer(Timer::new()).to_owned();
        let (mut sender, connection) = builder.handshake(stream).await.unwrap();
        drop(dapple::spawn(connection));
        let request = http::Request::get("https://a.example/page.bin").body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes() == page);

        for alpn in [&["http/1.1"][..], &[]] {
            let stream = connect(server.port, "a.example", &[&certificate], alpn).await;
            for _ in 0..3 {
                assert!(get(&stream, "/page.bin").await == page);
            }
        }
    });
}

#[test]
fn the_certificate_is_that_of_the_name() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let (a, b) = (Certificate::make(&secrets, "a", "a.example"), Certificate::make(&secrets, "b", "b.example"));
    let server = Server::start(&site.path, &[a.options(), b.options()].concat());
    dapple::block_on(async {
        for (name, certificate) in [("a.example", &a), ("b.example", &b)] {
            let stream = connect(server.port, name, &[&a, &b], &[]).await;
            assert_eq!(stream.peer_certificates()[0], certificate.der);
            assert_eq!(get(&stream, "/").await, b"<h1>start</h1>");
        }
    });
}

#[test]
fn new_certificates_are_read_while_connections_go_on() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let old = Certificate::make(&secrets, "a", "a.example");
    let errors = secrets.path.join("stderr");
    let mut command = dapple();
    command.arg("serve").arg(&site.path).args(["--port", "0", "--workers", "2"]).args(old.options());
    command.stderr(Stdio::from(std::fs::File::create(&errors).unwrap()));
    let server = Server::spawn(command);
    let log = || std::fs::read_to_string(&errors).unwrap();
    dapple::block_on(async {
        let kept = connect(server.port, "a.example", &[&old], &[]).await;
        assert_eq!(get(&kept, "/").await, b"<h1>start</h1>");
        // A broken certificate changes nothing. It stays until it was read, because two signals may
        // merge into one.
        secrets.write("a.crt", "-----BEGIN CERTIFICATE-----\nnonsense\n");
        server.signal(Signal::HUP);
        assert!(eventually(LIMIT, || log().contains("the certificates stay unchanged")), "{}", log());
        assert!(log().contains("a.crt"), "{}", log());
        assert_eq!(get(&kept, "/").await, b"<h1>start</h1>");
        let again = connect(server.port, "a.example", &[&old], &[]).await;
        assert_eq!(again.peer_certificates()[0], old.der);
        let new = Certificate::make(&secrets, "a", "a.example");
        let mut tries = 0;
        loop {
            server.signal(Signal::HUP);
            dapple::time::sleep(Duration::from_millis(50)).await;
            let stream = connect(server.port, "a.example", &[&old, &new], &[]).await;
            if stream.peer_certificates()[0] == new.der {
                break;
            }
            tries += 1;
            assert!(tries < 200, "the new certificate is used");
        }
        assert_eq!(get(&kept, "/").await, b"<h1>start</h1>");
    });
}

#[test]
fn plain_http_gets_a_helpful_answer() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let certificate = Certificate::make(&secrets, "a", "localhost");
    let server = Server::start(&site.path, &[&certificate.options()[..], &["--http-redirect", "127.0.0.1:0"]].concat());
    let mut client = server.connect();
    let answer = client.get("/");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("https://"), "{}", answer.text());
    assert_eq!(client.read_to_end().unwrap(), b"", "closed, not reset");
    drop(client);
    let status = || {
        dapple::block_on(async {
            let stream = connect(server.port, "localhost", &[&certificate], &["http/1.1"]).await;
            let status: serde_json::Value = serde_json::from_slice(&get(&stream, "/-/status").await).unwrap();
            status["connections"]["tls_handshakes"].clone()
        })
    };
    assert_eq!(status()["ok"], 1);
    assert!(eventually(LIMIT, || status()["failed"] == 1), "{}", status());
    // The other port names the address of this one.
    let other = server.line.split_whitespace().find_map(|word| word.strip_prefix("http://127.0.0.1:")).unwrap();
    let answer = Server::get_at(("127.0.0.1", other.parse().unwrap()), "/a/b?c");
    assert_eq!(answer.status, 308);
    assert_eq!(answer.header("location"), Some(&*format!("https://test:{}/a/b?c", server.port)));
}

#[test]
fn a_self_signed_certificate_shows_its_fingerprint() {
    let site = Site::with_index();
    let mut server = Server::start_with_log(&site.path, &["--tls-self-signed"]);
    server.signal(Signal::TERM);
    let log = server.log_to_end();
    let print = log.lines().find(|line| line.len() == 95).unwrap_or_else(|| panic!("{log}"));
    assert!(print.split(':').all(|byte| u8::from_str_radix(byte, 16).is_ok()), "{print}");
}

#[test]
fn a_download_in_flight_is_finished_at_the_end() {
    let (site, secrets) = (Site::new(), Site::new());
    let large = noise(20 << 20, 4);
    site.write("large.bin", &large);
    let certificate = Certificate::make(&secrets, "a", "a.example");
    let mut server = Server::start(&site.path, &[&certificate.options()[..], &["--cache-mb", "1"]].concat());
    dapple::block_on(async {
        let stream = connect(server.port, "a.example", &[&certificate], &[]).await;
        stream.write_all(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let mut response = vec![0; 64 << 10];
        let mut len = stream.read(&mut response).await.unwrap();
        server.signal(Signal::TERM);
        loop {
            response.resize(len + (64 << 10), 0);
            match stream.read(&mut response[len..]).await.unwrap() {
                0 => break,
                count => len += count,
            }
        }
        response.truncate(len);
        assert!(response.ends_with(&large), "{len} bytes");
    });
    assert_eq!(server.wait(LIMIT).expect("it stops").code(), Some(0));
}

#[test]
fn wrong_options_are_explained() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let certificate = Certificate::make(&secrets, "a", "a.example");
    let other = Certificate::make(&secrets, "b", "b.example");
    let missing = ["--tls-cert", "/nonexistent.crt", "--tls-key", "/nonexistent.key"];
    let crossed = ["--tls-cert", certificate.options()[1], "--tls-key", other.options()[3]];
    let http3 = if cfg!(feature = "http3") { "--tls-cert" } else { "--features http3" };
    let cases: [(&[&str], &str); 5] = [
        (&["--http3"], http3),
        (&missing, "/nonexistent"),
        (&crossed, "b.key"),
        (
            &[&certificate.options()[..], &["--tls-cert", certificate.options()[1]]].concat(),
            "a key for each certificate",
        ),
        (&["--http-redirect", "127.0.0.1:0"], "--tls-cert"),
    ];
    for (options, words) in cases {
        let mut command = dapple();
        command.arg("serve").arg(&site.path).args(["--port", "0"]).args(options).stdout(Stdio::null());
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains(words), "{message}");
        let output = dapple().args(["serve", "--check"]).arg(&site.path).args(options).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && message.contains(words), "a check says the same: {message}");
    }
}

#[test]
fn an_expired_certificate_is_a_warning() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let mut parameters = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    secrets.write("old.crt", parameters.self_signed(&key).unwrap().pem());
    secrets.write("old.key", key.serialize_pem());
    let [chain, key] = ["old.crt", "old.key"].map(|name| secrets.path.join(name));
    let mut command = dapple();
    command.args(["serve", "--check"]).arg(&site.path).arg("--tls-cert").arg(chain).arg("--tls-key").arg(key);
    let output = command.output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && message.contains("old.crt") && message.contains("has expired"), "{message}");
}

#[test]
fn a_silent_client_delays_no_other() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let certificate = Certificate::make(&secrets, "a", "a.example");
    let mut server = Server::start(&site.path, &certificate.options());
    let silent = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    dapple::block_on(async {
        let stream = connect(server.port, "a.example", &[&certificate], &[]).await;
        assert_eq!(get(&stream, "/").await, b"<h1>start</h1>");
    });
    server.signal(Signal::TERM);
    assert!(eventually(Duration::from_secs(8), || server.child.try_wait().unwrap().is_some()));
    drop(silent);
}

/// A limit that only a bug reaches, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// A process's memory without files, in bytes.
fn own_memory(server: &Server) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", server.child.id())).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn memory_is_returned_after_a_load() {
    let (site, secrets) = (Site::new(), Site::new());
    site.write("large.bin", noise(64 << 20, 4));
    let certificate = Certificate::make(&secrets, "a", "a.example");
    let server = Server::start(&site.path, &[&certificate.options()[..], &["--cache-mb", "1"]].concat());
    dapple::block_on(async {
        let mut streams = Vec::new();
        for _ in 0..200 {
            let stream = connect(server.port, "a.example", &[&certificate], &[]).await;
            stream.write_all(b"GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            streams.push(stream);
        }
        assert!(eventually(LIMIT, || own_memory(&server) > 20 << 20), "{}", own_memory(&server));
    });
    assert!(eventually(LIMIT, || own_memory(&server) < 15 << 20), "{} bytes", own_memory(&server));
}
