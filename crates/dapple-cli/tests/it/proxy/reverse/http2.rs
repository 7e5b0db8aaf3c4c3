//! HTTP/2 on either side, or on both.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dapple::hyper_rt::{Executor, Timer};
use dapple::net::{TcpListener, TcpStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::service::service_fn;

use super::{number, start, start_with_numbers};
use crate::proxy::origin::Origin;
use crate::proxy::reply;
use crate::support::{Server, Site, noise};

/// An HTTP/2 server without TLS.
pub(super) struct Upstream {
    port: u16,
    connections: Arc<AtomicUsize>,
}

/// Sends back data as it arrives, and reports at the end how it went.
struct Echo(Incoming);

impl Body for Echo {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

type Answer = Response<http_body_util::combinators::BoxBody<Bytes, hyper::Error>>;

/// `/echo` echoes, with trailers like gRPC's; every other path returns the request.
async fn answer(request: Request<Incoming>) -> Result<Answer, Infallible> {
    if request.uri().path() == "/echo" {
        let trailers = async {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            Some(Ok(trailers))
        };
        let body = Echo(request.into_body()).with_trailers(trailers).boxed();
        return Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap());
    }
    let mut text = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
    }
    Ok(Response::new(Full::from(text).map_err(|never| match never {}).boxed()))
}

impl Upstream {
    pub(super) fn start() -> Upstream {
        let (tx, rx) = mpsc::channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        std::thread::spawn(move || {
            let runtime = dapple::builder().workers(1).build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                tx.send(listener.local_addr().unwrap().port()).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    counted.fetch_add(1, Ordering::Relaxed);
                    let mut builder = hyper::server::conn::http2::Builder::new(Executor::new());
                    builder.timer(Timer::new());
                    let connection = builder.serve_connection(stream, service_fn(answer));
                    drop(dapple::spawn(async move {
                        let _ = connection.await;
                    }));
                }
            });
        });
        Upstream { port: rx.recv().unwrap(), connections }
    }

    pub(super) fn url(&self) -> String {
        format!("h2c://127.0.0.1:{}", self.port)
    }
}

async fn connect<B>(port: u16) -> http2::SendRequest<B>
where
    B: Body<Data = Bytes, Error = io::Error> + Send + Unpin + 'static,
{
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (sender, connection) =
        http2::Builder::new(Executor::new()).timer(Timer::new()).handshake(stream).await.unwrap();
    drop(dapple::spawn(connection));
    sender
}

fn empty() -> http_body_util::combinators::MapErr<Empty<Bytes>, fn(Infallible) -> io::Error> {
    Empty::new().map_err(|never| match never {})
}

#[test]
fn messages_go_both_ways_at_once_and_trailers_follow() {
    let upstream = Upstream::start();
    let proxy = start(&upstream.url(), &[]);
    dapple::block_on(async {
        let (tx, rx) = dapple::sync::mpsc::channel::<Bytes>(1);
        let mut sender = connect(proxy.port).await;
        let sum = async { Some(Ok(HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from(7))]))) };
        let body = Messages(rx).with_trailers(sum).boxed_unsync();
        let request = Request::post("http://site.example/echo").header("te", "trailers").body(body).unwrap();
        let response = dapple::spawn(async move { sender.send_request(request).await.unwrap() });
        tx.send(Bytes::from_static(b"first")).await.unwrap();
        let response = response.await.unwrap();
        assert!(response.status() == 200 && response.headers()["content-type"] == "application/grpc");
        assert!(response.headers()["via"].to_str().unwrap().starts_with("2 dapple-"));
        let mut body = response.into_body();
        // Each message comes back before the next one is sent.
        for message in ["first", "second", "third"] {
            if message != "first" {
                tx.send(Bytes::from(message)).await.unwrap();
            }
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), message);
        }
        drop(tx);
        let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "0");
        assert_eq!(trailers["x-sum"], "7", "the request's trailers reached the upstream");
        assert!(body.frame().await.is_none());
    });
}

/// A body with its sender in the test's hands.
struct Messages(dapple::sync::mpsc::Receiver<Bytes>);

impl Body for Messages {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}

#[test]
fn many_requests_share_a_connection() {
    let upstream = Upstream::start();
    let proxy = start(&upstream.url(), &[]);
    let bodies: Vec<Vec<u8>> = (0..30).map(|seed| noise(10 + 9_000 * seed, seed as u64 + 1)).collect();
    dapple::block_on(async {
        let sender = connect(proxy.port).await;
        let tasks: Vec<_> = bodies
            .iter()
            .map(|body| {
                let (mut sender, body) = (sender.clone(), Bytes::from(body.clone()));
                dapple::spawn(async move {
                    let whole = Full::new(body.clone()).map_err(|never: Infallible| match never {});
                    let request = Request::post("http://site.example/echo").body(whole).unwrap();
                    let response = sender.send_request(request).await.unwrap();
                    assert_eq!(response.status(), 200);
                    assert!(response.into_body().collect().await.unwrap().to_bytes() == body);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(upstream.connections.load(Ordering::Relaxed), 1);
}

#[test]
fn versions_are_translated() {
    let upstream = Upstream::start();
    let proxy = start(&upstream.url(), &[]);
    // From 1.1 to 2.
    let mut client = proxy.connect();
    let fields =
        "Connection: keep-alive, x-mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nUpgrade: websocket\r\nTE: trailers\r\n";
    let response = client.request("GET", "/a?b=c", fields);
    let head = response.text();
    assert!(head.starts_with("GET http://test/a?b=c\n"), "{head}");
    for name in ["host:", "connection:", "x-mine:", "keep-alive:", "upgrade:", "transfer-encoding:"] {
        assert!(!head.lines().any(|line| line.starts_with(name)), "{name} in {head}");
    }
    assert!(head.contains("te: trailers\n") && head.contains("x-forwarded-host: test\n"), "{head}");
    client.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_head().status, 100);
    client.send("3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.read_response().text(), "abc");
    let mut client = proxy.connect();
    client
        .send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTE: trailers\r\nConnection: te, close\r\n\r\nxy");
    let text = String::from_utf8(client.read_to_end().unwrap()).unwrap();
    assert!(text.contains("\r\n\r\n2\r\nxy\r\n0\r\ngrpc-status: 0\r\n\r\n"), "{text}");
    // From 2 to 1.1.
    let origin =
        Origin::of(|asked| reply("200 OK", "connection: x-gone\r\nx-gone: 1\r\nkeep-alive: 9\r\n", &asked.head));
    let proxy = start(&origin.url(""), &[]);
    dapple::block_on(async {
        let mut sender = connect(proxy.port).await;
        let request = Request::get("http://site.example/x?y").header("cookie", "a=1").header("cookie", "b=2");
        let response = sender.send_request(request.body(empty()).unwrap()).await.unwrap();
        for name in ["connection", "keep-alive", "x-gone", "transfer-encoding"] {
            assert!(!response.headers().contains_key(name), "{:?}", response.headers());
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let head = String::from_utf8(body.to_vec()).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("get /x?y http/1.1\r\n"), "{head}");
        for line in ["host: site.example", "cookie: a=1; b=2", "x-forwarded-for: 127.0.0.1"] {
            assert!(head.lines().any(|found| found == line), "{line} in {head}");
        }
    });
}

#[test]
fn dapple_serve_behind_dapple_proxy() {
    let site = Site::new();
    let page = noise(3_000_000, 8);
    site.write("page.bin", &page);
    let server = Server::start(&site.path, &[]);
    for scheme in ["http", "h2c"] {
        let proxy = start(&format!("{scheme}://127.0.0.1:{}", server.port), &[]);
        let mut client = proxy.connect();
        for _ in 0..3 {
            assert!(client.get("/page.bin").body == page, "{scheme}");
        }
        let part = client.request("GET", "/page.bin", "Range: bytes=100-199\r\n");
        assert!(part.status == 206 && part.body == page[100..200], "{scheme}");
        assert_eq!(client.get("/none").status, 404);
        let etag = client.request("HEAD", "/page.bin", "").header("etag").unwrap().to_owned();
        assert_eq!(client.request("GET", "/page.bin", &format!("If-None-Match: {etag}\r\n")).status, 304);
    }
}

#[test]
fn an_unread_stream_stalls() {
    let site = Site::new();
    let page = noise(48 << 20, 8);
    site.write("page.bin", &page);
    let server = Server::start(&site.path, &["--cache-mb", "1"]);
    let name = format!("h2c://127.0.0.1:{}", server.port);
    let (proxy, metrics) = start_with_numbers(&name, &[]);
    dapple::block_on(async {
        let mut sender = connect(proxy.port).await;
        let request = Request::get("http://site.example/page.bin").body(empty()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let mut last = 0.0;
        let mut stands_still = || {
            let now = number(metrics, "dapple_upstream_received_bytes_total", &name);
            std::mem::replace(&mut last, now) == now && now > 0.0
        };
        while !stands_still() {
            dapple::time::sleep(Duration::from_millis(300)).await;
        }
        assert!(last < page.len() as f64 / 4.0, "{last}");
        // Others on the same connections do not wait for it.
        let request = Request::get("http://site.example/none").body(empty()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 404);
        assert!(response.into_body().collect().await.unwrap().to_bytes() == page);
    });
    assert!(proxy.resident_max() < 100 << 20, "{}", proxy.resident_max());
}

#[test]
fn an_upstream_that_speaks_no_http_2_is_a_bad_gateway() {
    let origin = Origin::of(|_| reply("200 OK", "", "x"));
    let proxy = start(&format!("h2c://127.0.0.1:{}", origin.port), &[]);
    assert_eq!(proxy.get("/").status, 502);
}

#[test]
fn responses_over_one_version_are_kept_for_clients_of_the_other() {
    let site = Site::new();
    let page = noise(300_000, 9);
    site.write("page.bin", &page);
    let server = Server::start(&site.path, &[]);
    for scheme in ["http", "h2c"] {
        let to = format!("{scheme}://127.0.0.1:{}", server.port);
        let (proxy, metrics) = start_with_numbers(&to, &["--cache-mb", "64"]);
        let get = || {
            dapple::block_on(async {
                let mut sender = connect(proxy.port).await;
                let request = Request::get("http://site.example/page.bin").body(empty()).unwrap();
                let response = sender.send_request(request).await.unwrap();
                let note = response.headers()["cache-status"].to_str().unwrap().to_owned();
                (note, response.into_body().collect().await.unwrap().to_bytes())
            })
        };
        let (note, body) = get();
        assert!(note.contains("fwd=uri-miss; stored") && body == page, "{scheme}: {note}");
        // It has no explicit freshness: kept for a tenth of its age, or validated.
        for _ in 0..2 {
            let (note, body) = get();
            assert!((note.contains("; hit") || note.contains("fwd-status=304")) && body == page, "{scheme}: {note}");
        }
        let mut client = proxy.connect();
        client.send("GET /page.bin HTTP/1.1\r\nHost: SITE.example:80\r\n\r\n");
        let response = client.read_response();
        assert!(response.body == page && response.header("age").is_some(), "{scheme}: {}", response.status);
        assert!(number(metrics, "dapple_upstream_received_bytes_total", &to) == page.len() as f64, "{scheme}");
    }
}
