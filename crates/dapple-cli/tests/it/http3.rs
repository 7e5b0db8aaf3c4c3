//! HTTP/3: quinn and h3 as the client, on Dapple too.

use std::collections::HashSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::StreamError;
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Method, Request, Response};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};
use rustix::process::Signal;
use rustls::RootCertStore;

use crate::support::{Server, Site, dapple as dapple_command, noise};
use crate::tls::{self, Certificate};
use crate::upgrade::{self, News};

const NAME: &str = "a.example";

/// Starts a server of this site with HTTP/3, and returns its certificate.
fn start(site: &Site, options: &[&str]) -> (Server, Certificate) {
    let secrets = Site::new();
    let certificate = Certificate::make(&secrets, "a", NAME);
    let server = Server::start(&site.path, &[&certificate.options()[..], &["--http3"], options].concat());
    (server, certificate)
}

/// A configuration that trusts this certificate.
fn client_config(certificate: &Certificate) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h3".to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
}

/// One connection.
#[derive(Clone)]
struct Client {
    quic: quinn::Connection,
    sender: SendRequest<OpenStreams, Bytes>,
    endpoint: Endpoint,
}

impl Client {
    async fn connect(port: u16, certificate: &Certificate) -> Client {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = dapple_serve::http::http3::endpoint(socket, None, false).unwrap();
        let addr = (Ipv4Addr::LOCALHOST, port).into();
        let quic = endpoint.connect_with(client_config(certificate), addr, NAME).unwrap().await.unwrap();
        let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(quic.clone())).await.unwrap();
        drop(dapple::spawn(async move { drop(driver.wait_idle().await) }));
        Client { quic, sender, endpoint }
    }

    async fn ask(&self, method: Method, path: &str) -> (Response<()>, RequestStream<BidiStream<Bytes>, Bytes>) {
        let request = Request::builder().method(method).uri(format!("https://{NAME}{path}")).body(()).unwrap();
        let mut stream = self.sender.clone().send_request(request).await.unwrap();
        stream.finish().await.unwrap();
        (stream.recv_response().await.unwrap(), stream)
    }

    async fn get(&self, path: &str) -> (u16, HeaderMap, Vec<u8>) {
        let (response, mut stream) = self.ask(Method::GET, path).await;
        (response.status().as_u16(), response.headers().clone(), rest(&mut stream).await)
    }

    /// The number of connections that the server has open.
    async fn open(&self) -> u64 {
        let status: serde_json::Value = serde_json::from_slice(&self.get("/-/status").await.2).unwrap();
        status["connections"]["open"].as_u64().unwrap()
    }
}

async fn rest(stream: &mut RequestStream<BidiStream<Bytes>, Bytes>) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(mut piece) = stream.recv_data().await.unwrap() {
        body.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
    }
    body
}

#[test]
fn files_heads_and_missing_files_over_http3() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &[]);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        for _ in 0..3 {
            let (status, headers, body) = client.get("/").await;
            assert_eq!((status, &body[..]), (200, &b"<h1>start</h1>"[..]));
            assert_eq!(headers["content-length"], "14");
            assert!(headers.contains_key("date") && headers.contains_key("etag"), "{headers:?}");
        }
        let (head, mut stream) = client.ask(Method::HEAD, "/").await;
        assert_eq!((head.status().as_u16(), &head.headers()["content-length"]), (200, &"14".parse().unwrap()));
        assert!(rest(&mut stream).await.is_empty());
        assert_eq!(client.get("/missing").await.0, 404);
        let (options, mut stream) = client.ask(Method::OPTIONS, "/").await;
        assert_eq!((options.status().as_u16(), options.headers().contains_key("content-length")), (204, false));
        assert!(rest(&mut stream).await.is_empty());
    });
}

/// Sends a POST with these fields and this body; `ends` says whether the body ends. Returns the
/// status of the reply, and the code with which the server stopped the body.
async fn post(client: &Client, fields: &[(&str, &str)], body: &[u8], ends: bool) -> (u16, Option<u64>) {
    let mut request = Request::post(format!("https://{NAME}/"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let stream = client.sender.clone().send_request(request.body(()).unwrap()).await.unwrap();
    let (mut sending, mut receiving) = stream.split();
    let mut stopped = None;
    for piece in body.chunks(10_000) {
        if let Err(error) = sending.send_data(Bytes::copy_from_slice(piece)).await {
            stopped = Some(stop_code(&error));
            break;
        }
    }
    if ends && stopped.is_none() {
        // The stop may show here, or not at all.
        let _ = sending.finish().await;
    }
    let reply = dapple::time::timeout(LIMIT, receiving.recv_response()).await.expect("a reply").unwrap();
    while receiving.recv_data().await.unwrap().is_some() {}
    (reply.status().as_u16(), stopped)
}

fn stop_code(error: &StreamError) -> u64 {
    match error {
        StreamError::RemoteTerminate { code, .. } => code.value(),
        other => panic!("{other}"),
    }
}

#[test]
fn the_body_of_a_request_is_read_before_the_reply() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &[]);
    let body = noise(250_000, 1);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        for len in [0, 1, 100_000, body.len()] {
            let announced = len.to_string();
            for fields in [&[][..], &[("content-length", announced.as_str())]] {
                assert_eq!(post(&client, fields, &body[..len], true).await, (405, None), "{len} {fields:?}");
            }
        }
        assert_eq!(client.get("/").await.0, 200, "the connection goes on");
    });
}

#[test]
fn beyond_a_limit_a_body_is_stopped_without_an_error() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &[]);
    let body = noise(20 << 20, 1);
    // A code that is not HTTP/3's means the same (RFC 9114, section 8).
    let no_error = [0, h3::error::Code::H3_NO_ERROR.value()];
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let (status, stopped) = post(&client, &[], &body, true).await;
        assert!(status == 405 && stopped.is_some_and(|code| no_error.contains(&code)), "{status} {stopped:?}");
        // The server does not begin to read a body that is too long; and if a client waits for the
        // reply before it sends its body, the server does not wait for the body.
        assert_eq!(post(&client, &[("content-length", "20000000")], &[], false).await, (405, None));
        assert_eq!(post(&client, &[("expect", "100-continue")], &[], false).await, (405, None));
        assert_eq!(client.get("/").await.0, 200, "the connection goes on");
    });
}

#[test]
fn a_body_that_differs_from_its_announcement_is_refused() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &[]);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        for len in ["5", "2000"] {
            let (status, _) = post(&client, &[("content-length", len)], &[7; 1_000], true).await;
            assert_eq!(status, 400, "{len}");
        }
        assert_eq!(client.get("/").await.0, 200, "the connection goes on");
    });
}

#[test]
fn a_body_that_stops_or_trickles_is_answered() {
    let site = Site::with_index();
    let slow = ["--receive-rate-min", "100000", "--rate-grace-s", "0.3"];
    for options in [&["--pause-timeout-s", "0.3"][..], &slow] {
        let (server, certificate) = start(&site, options);
        dapple::block_on(async {
            let client = Client::connect(server.port, &certificate).await;
            assert_eq!(post(&client, &[("content-length", "1000")], &[7; 500], false).await, (408, None));
            assert_eq!(client.get("/").await.0, 200, "the connection goes on");
        });
    }
}

#[test]
fn a_user_in_the_host_is_refused() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &[]);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let request = Request::get(format!("https://user@{NAME}/")).body(()).unwrap();
        let mut stream = client.sender.clone().send_request(request).await.unwrap();
        stream.finish().await.unwrap();
        assert_eq!(stream.recv_response().await.unwrap().status(), 400);
        assert_eq!(client.get("/").await.0, 200, "the connection goes on");
    });
}

/// A head, and a frame of an unknown kind, that never end.
#[test]
fn endless_heads_and_frames_end() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &["--head-timeout-s", "60"]);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let long = "x".repeat(100_000);
        let request = Request::get(format!("https://{NAME}/")).header("long", long).body(()).unwrap();
        match client.sender.clone().send_request(request).await {
            Ok(mut stream) => assert!(stream.recv_response().await.map_or(true, |reply| reply.status() == 431)),
            // The client library knows the server's limit.
            Err(error) => assert!(error.to_string().to_ascii_lowercase().contains("header"), "{error}"),
        }
        // HEADERS, and an unknown kind, with a length of 2^30 - 1.
        for head in [[0x01, 0xbf, 0xff, 0xff, 0xff], [0x21, 0xbf, 0xff, 0xff, 0xff]] {
            let (mut sending, _receiving) = client.quic.open_bi().await.unwrap();
            sending.write_all(&head).await.unwrap();
            let sent = async {
                let mut len = 0_usize;
                while sending.write_all(&[0; 16 << 10]).await.is_ok() {
                    len += 16 << 10;
                }
                len
            };
            let len = dapple::time::timeout(LIMIT, sent).await.expect("the server reads no more");
            assert!(len < 4 << 20, "{len}");
        }
        assert_eq!(client.get("/").await.0, 200, "the connection goes on");
    });
}

#[test]
fn a_client_that_takes_nothing_of_a_reply_is_dropped() {
    let site = Site::new();
    site.write("large.bin", noise(20 << 20, 1));
    let (server, certificate) = start(&site, &["--cache-mb", "1", "--pause-timeout-s", "1"]);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        // GET, https, and then path and host: indexes in the table of RFC 9204, appendix A.
        let fields = [&[0, 0, 0xd1, 0xd7, 0x51, 10][..], b"/large.bin", &[0x50, 9], NAME.as_bytes()].concat();
        let (mut sending, mut receiving) = client.quic.open_bi().await.unwrap();
        sending.write_all(&[&[0x01, fields.len() as u8], &fields[..]].concat()).await.unwrap();
        sending.finish().unwrap();
        let reset = dapple::time::timeout(LIMIT, receiving.received_reset()).await.expect("it is reset");
        let cancelled = h3::error::Code::H3_REQUEST_CANCELLED.value();
        assert_eq!(reset.unwrap().map(quinn::VarInt::into_inner), Some(cancelled));
        assert_eq!(client.get("/missing").await.0, 404, "the connection goes on");
    });
}

fn many_streams(options: &[&str]) {
    let site = Site::new();
    let pages: Vec<Vec<u8>> = (0..40).map(|seed| noise(10 + 7_000 * seed, seed as u64 + 1)).collect();
    for (number, page) in pages.iter().enumerate() {
        site.write(&format!("{number}.bin"), page);
    }
    let large = noise(20 << 20, 77);
    site.write("large.bin", &large);
    let (server, certificate) = start(&site, options);
    dapple::block_on(async move {
        let client = Client::connect(server.port, &certificate).await;
        let downloading = client.clone();
        let download = dapple::spawn(async move { downloading.get("/large.bin").await.2 });
        let tasks: Vec<_> = (0..200)
            .map(|number| {
                let (client, number) = (client.clone(), number % pages.len());
                dapple::spawn(async move { (number, client.get(&format!("/{number}.bin")).await) })
            })
            .collect();
        for task in tasks {
            let (number, (status, _, body)) = task.await.unwrap();
            assert_eq!(status, 200);
            assert!(body == pages[number], "{number}: {} bytes", body.len());
        }
        assert!(download.await.unwrap() == large);
    });
}

#[test]
fn many_streams_and_a_large_file_at_once() {
    many_streams(&["--cache-mb", "1"]);
}

#[test]
fn many_streams_and_a_large_file_with_one_color() {
    many_streams(&["--cache-mb", "1", "--serial"]);
}

#[test]
fn a_client_that_vanishes_is_dropped() {
    let site = Site::new();
    site.write("large.bin", noise(20 << 20, 1));
    let (server, certificate) = start(&site, &["--cache-mb", "1", "--idle-timeout-s", "4"]);
    // The client ends without a packet, with its runtime.
    let vanishing = dapple::builder().workers(1).build().unwrap();
    let kept = vanishing.block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let download = client.ask(Method::GET, "/large.bin").await;
        (client, download)
    });
    vanishing.shutdown(Duration::ZERO);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let alone = async {
            while client.open().await > 1 {
                dapple::time::sleep(Duration::from_millis(50)).await;
            }
        };
        dapple::time::timeout(LIMIT, alone).await.expect("the server forgets it");
    });
    drop(kept);
}

#[test]
fn a_client_without_requests_is_dropped() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &["--idle-timeout-s", "1"]);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let error = dapple::time::timeout(LIMIT, client.quic.closed()).await.expect("it ends");
        assert!(!matches!(error, quinn::ConnectionError::LocallyClosed), "{error}");
    });
}

#[test]
fn http3_connections_count_against_the_common_limit() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &["--connections-per-address", "1"]);
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let second =
            client.endpoint.connect_with(client_config(&certificate), (Ipv4Addr::LOCALHOST, server.port).into(), NAME);
        assert!(second.unwrap().await.is_err());
        assert_eq!(client.get("/").await.0, 200);
    });
}

/// First packets of a hundred clients that do not receive the answers, as if their addresses were
/// forged.
#[test]
fn among_many_handshakes_clients_have_to_prove_their_address() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &[]);
    let between = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    between.set_read_timeout(Some(LIMIT)).unwrap();
    let addr = (Ipv4Addr::LOCALHOST, server.port).into();
    dapple::block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let connect =
            |_| client.endpoint.connect_with(client_config(&certificate), between.local_addr().unwrap(), NAME);
        let unfinished: Vec<_> = (0..100).map(connect).collect();
        let mut ids = HashSet::new();
        let mut buf = [0; 2048];
        while ids.len() < unfinished.len() {
            let (len, from) = between.recv_from(&mut buf).unwrap();
            if from != addr {
                // The id that the client chose for the connection.
                let id_len = usize::from(buf[5]);
                ids.insert(buf[6..][..id_len].to_vec());
                between.send_to(&buf[..len], addr).unwrap();
            }
        }
        let another = Client::connect(server.port, &certificate).await;
        assert_eq!(another.get("/").await.0, 200, "it has proved its address");
        let open = another.open().await;
        assert!((32..=64 + 2).contains(&open), "{open}");
    });
}

#[test]
fn replies_over_tls_announce_http3() {
    let site = Site::with_index();
    let (server, certificate) = start(&site, &[]);
    dapple::block_on(async {
        let stream = tls::connect(server.port, NAME, &[&certificate], &[]).await;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut response = Vec::new();
        let mut buf = [0; 4096];
        loop {
            match stream.read(&mut buf).await.unwrap() {
                0 => break,
                count => response.extend_from_slice(&buf[..count]),
            }
        }
        let response = String::from_utf8(response).unwrap();
        let expected = format!("\r\nalt-svc: h3=\":{}\"; ma=", server.port);
        assert!(response.contains(&expected), "{response}");
    });
}

#[test]
fn a_download_in_flight_is_finished_at_the_end() {
    let site = Site::new();
    let large = noise(30 << 20, 5);
    site.write("large.bin", &large);
    let (mut server, certificate) = start(&site, &["--cache-mb", "1", "--drain-s", "60"]);
    let runtime = dapple::builder().workers(2).build().unwrap();
    let body = runtime.block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        let (_, mut stream) = client.ask(Method::GET, "/large.bin").await;
        server.signal(Signal::TERM);
        rest(&mut stream).await
    });
    assert!(body == large, "{} of {} bytes", body.len(), large.len());
    assert_eq!(server.wait(LIMIT).expect("it stops").code(), Some(0));
}

#[test]
fn new_certificates_are_used_after_sighup() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let old = Certificate::make(&secrets, "a", NAME);
    let server = Server::start(&site.path, &[&old.options()[..], &["--http3"]].concat());
    dapple::block_on(async {
        let before = Client::connect(server.port, &old).await;
        let new = Certificate::make(&secrets, "a", NAME);
        server.signal(Signal::HUP);
        let mut is_new = false;
        for _ in 0..600 {
            let addr = (Ipv4Addr::LOCALHOST, server.port).into();
            let connecting = before.endpoint.connect_with(client_config(&new), addr, NAME).unwrap();
            is_new = connecting.await.is_ok();
            if is_new {
                break;
            }
            dapple::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(is_new);
        assert_eq!(before.get("/").await.0, 200, "connections go on");
    });
}

#[test]
fn a_successor_speaks_http3_when_the_port_is_free() {
    let (site, secrets) = (Site::with_index(), Site::new());
    let certificate = Certificate::make(&secrets, "a", NAME);
    let mut news = News::listen(&secrets.path);
    let program = PathBuf::from(dapple_command().get_program());
    let options = [&certificate.options()[..], &["--http3"]].concat();
    let mut server = upgrade::start(&program, &site, &news, &options);
    let first = news.next_ready();
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        assert_eq!(client.get("/").await.0, 200);
        server.signal(Signal::USR2);
        assert_ne!(news.next_ready(), first);
        // The old process sends GOAWAY.
        dapple::time::timeout(LIMIT, client.quic.closed()).await.expect("the old process ends it");
    });
    assert_eq!(server.wait(LIMIT).expect("the old process stops").code(), Some(0));
    runtime.block_on(async {
        let client = Client::connect(server.port, &certificate).await;
        assert_eq!(client.get("/").await.0, 200);
    });
}

const LIMIT: Duration = Duration::from_secs(60);
