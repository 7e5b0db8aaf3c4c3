//! Service to well-behaved clients.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use dapple::hyper_rt::Executor;
use dapple::net::{TcpListener, TcpStream, UnixListener};
use dapple::serve::Body;
use dapple::tls::{Certificates, TlsAcceptor, TlsConnector};
use dapple::{SlowCallback, Slowness};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::rt::{Read as HyperRead, ReadBuf, Write as HyperWrite};
use tower::service_fn;

use crate::support::{Client, LIMIT, ask, connect, end, outside, reply, service, start};

/// The statuses and bodies of HTTP/2 replies to requests sent at the same time on one connection.
pub(crate) async fn by_http2<S>(stream: S, paths: &[&str]) -> Vec<Result<(StatusCode, Bytes), hyper::Error>>
where
    S: HyperRead + HyperWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(Executor::new(), stream).await.unwrap();
    dapple::spawn(connection);
    let mut tasks = Vec::new();
    for path in paths {
        let mut sender = sender.clone();
        let request = Request::get(format!("http://a{path}")).body(Full::<Bytes>::default()).unwrap();
        tasks.push(dapple::spawn(async move {
            let response = sender.send_request(request).await?;
            Ok((response.status(), response.into_body().collect().await?.to_bytes()))
        }));
    }
    let mut replies = Vec::new();
    for task in tasks {
        replies.push(task.await.unwrap());
    }
    replies
}

#[test]
fn a_connection_serves_many_requests() {
    let (runtime, server) = outside!();
    let mut client = connect(server.addr);
    for _ in 0..3 {
        let (head, body) = ask(&mut client, "/hello");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\ndate: "), "{head}");
        assert_eq!(body, "hello");
    }
    // Two requests at once.
    client.write_all(b"GET /hello HTTP/1.1\r\nhost: a\r\n\r\nGET /nothing HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    assert_eq!(reply(&mut client).1, "hello");
    assert!(reply(&mut client).0.starts_with("HTTP/1.1 404"));
    assert_eq!(server.handle.requests(), 5);
    assert_eq!(server.handle.connections(), 1);
    let addr = client.local_addr().unwrap();
    assert_eq!(ask(&mut client, "/peer").1, format!("Some(Tcp({addr}))"));
    drop(client);
    end(runtime, server);
}

#[test]
fn requests_and_connections_are_counted() {
    let (runtime, server) = outside!(server => server.no_admission());
    crate::support::eventually("it serves", || {
        server.handle.metrics().contains("dapple_http_requests_total{method=\"GET\",code=\"2xx\"} 0\n")
    });
    let mut client = connect(server.addr);
    for path in ["/hello", "/nothing", "/panic", "/hello"] {
        ask(&mut client, path);
    }
    client.write_all(b"HEAD /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    assert!(crate::support::rest(&mut client).contains("content-length: 5\r\n"));
    // A client that leaves before its reply.
    let mut gone = connect(server.addr);
    gone.write_all(crate::support::get("/never").as_bytes()).unwrap();
    crate::support::eventually("it is asked", || server.handle.requests() == 6);
    drop(gone);
    crate::support::eventually("its handler is dropped", || {
        server.handle.metrics().contains("dapple_http_responses_cut_total 1\n")
    });
    let page = server.handle.metrics();
    for line in [
        "dapple_http_requests_total{method=\"GET\",code=\"2xx\"} 2\n",
        "dapple_http_requests_total{method=\"GET\",code=\"4xx\"} 2\n",
        "dapple_http_requests_total{method=\"GET\",code=\"5xx\"} 1\n",
        "dapple_http_requests_total{method=\"HEAD\",code=\"2xx\"} 1\n",
        "dapple_http_request_duration_seconds_count 6\n",
        "dapple_connections_refused_total{reason=\"full\"} 0\n",
        "dapple_worker_callbacks_total{worker=\"1\"} ",
        "process_open_fds ",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    end(runtime, server);
}

#[dapple::test]
async fn http2_is_told_apart_on_the_same_port() {
    // On a busy machine it takes long to report a panic.
    let server = start!(server => server.no_admission());
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let replies = by_http2(stream, &["/hello", "/nothing", "/panic", "/error", "/panic-in-body", "/hello"]).await;
    let statuses: Vec<u16> = replies.iter().map(|reply| reply.as_ref().map_or(0, |reply| reply.0.as_u16())).collect();
    assert_eq!(statuses, [200, 404, 500, 500, 0, 200], "a body that panics ends its own stream only");
    assert_eq!(replies[5].as_ref().unwrap().1, "hello");
}

#[test]
fn a_failure_ends_its_own_request_only() {
    let (runtime, server) = outside!(server => server.no_admission());
    let mut client = connect(server.addr);
    for (path, says) in [("/panic", "The handler failed.\n"), ("/error", "The service failed.\n")] {
        let (head, body) = ask(&mut client, path);
        assert!(head.starts_with("HTTP/1.1 500"), "{head}");
        assert_eq!(body, says);
    }
    for path in ["/refuse", "/refuse-by-stage", "/refuse-by-stages"] {
        let (head, body) = ask(&mut client, path);
        assert!(head.starts_with("HTTP/1.1 503") && head.contains("\r\nretry-after: 3\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: text/plain"), "{head}");
        assert_eq!(body, "refused: the rate limit is reached\n");
    }
    assert_eq!(ask(&mut client, "/hello").1, "hello", "and the connection goes on");
    end(runtime, server);
}

/// If any user function panics, its request fails, and nothing else does.
#[test]
fn user_functions_may_panic() {
    let (runtime, server) = outside!(server => server
        .target_delay(LIMIT)
        .classify(|request, _| match request.uri.query() {
            Some("classify") => panic!("on purpose"),
            _ => dapple::stage::admission::Class::NORMAL,
        })
        .describe(|request, _, offer| match request.uri.query() {
            Some("describe") => panic!("on purpose"),
            _ => offer,
        })
        .on_refusal(|_| panic!("on purpose")));
    let mut client = connect(server.addr);
    for path in ["/hello?classify", "/hello?describe", "/refuse"] {
        let (head, body) = ask(&mut client, path);
        assert!(head.starts_with("HTTP/1.1 500"), "{path}: {head}");
        assert_eq!(body, "The handler failed.\n");
        assert_eq!(ask(&mut client, "/hello").1, "hello", "and the connection goes on");
    }
    drop(client);
    end(runtime, server);
}

/// An upgraded connection belongs to its handler, and HTTP limits no longer apply; it counts as one
/// connection.
#[dapple::test]
async fn connections_can_be_upgraded() {
    let second = std::time::Duration::from_secs(1);
    let server = start!(server => server.idle_timeout(second).pause_timeout(second).head_timeout(second));
    let client = Client::connect(server.addr).await;
    client.say("GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n").await;
    let (head, _) = client.hear().await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("\r\nconnection: upgrade"), "{head}");
    for _ in 0..3 {
        dapple::time::sleep(100 * second).await;
        client.say("hello").await;
        let mut heard = [0; 5];
        client.0.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"HELLO");
    }
    assert_eq!(server.handle.connections(), 1);
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest().await, "");
    while server.handle.connections() > 0 {
        dapple::time::sleep(second).await;
    }
}

/// If an upgrade is refused, its connection ends; an HTTP/2 offer in a normal request does not end
/// it.
#[dapple::test]
async fn a_refused_upgrade_is_a_normal_request() {
    let server = start!();
    let client = Client::connect(server.addr).await;
    let offer =
        |protocol| format!("GET /hello HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n\r\n");
    client.say(&offer("h2c")).await;
    let (head, body) = client.hear().await;
    assert!(!head.contains("connection: close") && body == "hello", "{head}");
    client.say(&offer("h2c, shout")).await;
    let (head, body) = client.hear().await;
    assert!(head.contains("connection: close") && body == "hello", "{head}");
    assert_eq!(client.rest().await, "");
}

/// The reply to CONNECT has ended when the tunnel begins.
#[dapple::test]
async fn a_tunnel_through_http2_is_not_idle() {
    let second = std::time::Duration::from_secs(1);
    let server = start!(server => server.idle_timeout(second).head_timeout(second));
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let (mut sender, connection) = http2::handshake(Executor::new(), stream).await.unwrap();
    dapple::spawn(connection);
    let request = Request::connect("elsewhere:1").body(Full::<Bytes>::default()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let mut tunnel = hyper::upgrade::on(response).await.unwrap();
    for _ in 0..3 {
        // Several times the idle limit, and less than the interval at which hyper checks that the
        // peer lives.
        dapple::time::sleep(4 * second).await;
        let len = poll_fn(|cx| Pin::new(&mut tunnel).poll_write(cx, b"hello")).await.unwrap();
        assert_eq!(len, 5);
        let mut space = [0; 5];
        let mut heard = ReadBuf::new(&mut space);
        while heard.filled().len() < 5 {
            let before = heard.filled().len();
            poll_fn(|cx| Pin::new(&mut tunnel).poll_read(cx, heard.unfilled())).await.unwrap();
            assert!(heard.filled().len() > before, "it has ended");
        }
        assert_eq!(heard.filled(), b"HELLO");
    }
    assert_eq!(server.handle.connections(), 1);
    drop((tunnel, sender));
    while server.handle.connections() > 0 {
        dapple::time::sleep(second).await;
    }
}

#[dapple::test]
async fn unix_sockets_are_served_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = dapple::serve(UnixListener::bind(&path).unwrap(), service());
    let handle = server.handle();
    let task = dapple::spawn(async move { server.await });
    let stream = dapple::net::UnixStream::connect(&path).await.unwrap();
    assert_eq!(by_http2(stream, &["/peer"]).await[0].as_ref().unwrap().1, "Some(Unix)");
    handle.stop();
    task.await.unwrap().unwrap();
}

#[dapple::test(clock = "real")]
async fn an_acceptor_enables_tls() {
    let certificates = Certificates::self_signed(["localhost"]).unwrap();
    let root = certificates.first().clone();
    let acceptor = TlsAcceptor::with_alpn(certificates, ["h2", "http/1.1"]).unwrap();
    let server = start!(server => server.tls(acceptor));
    let connector = TlsConnector::with_roots([root]).unwrap().alpn(["h2"]);
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let stream = connector.connect("localhost", stream, LIMIT).await.unwrap();
    assert_eq!(stream.alpn(), Some(&b"h2"[..]));
    assert_eq!(by_http2(stream, &["/hello"]).await[0].as_ref().unwrap().1, "hello");
    // A client that does not speak TLS is dropped, without harm to others.
    let client = Client::connect(server.addr).await;
    client.say("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    client.rest().await;
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let stream = connector.connect("localhost", stream, LIMIT).await.unwrap();
    assert_eq!(by_http2(stream, &["/hello"]).await[0].as_ref().unwrap().0, 200);
}

/// A service that takes one request at a time, and is not ready meanwhile.
#[derive(Clone)]
struct One(std::sync::Arc<dapple::sync::Semaphore>, Option<std::sync::Arc<dapple::sync::OwnedSemaphorePermit>>);

impl tower::Service<Request<dapple::serve::Body>> for One {
    type Response = http::Response<String>;
    type Error = std::convert::Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        match self.0.clone().try_acquire_owned() {
            Ok(permit) => {
                self.1 = Some(std::sync::Arc::new(permit));
                std::task::Poll::Ready(Ok(()))
            }
            Err(_) => {
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            }
        }
    }

    fn call(&mut self, _: Request<dapple::serve::Body>) -> Self::Future {
        let permit = self.1.take().expect("it was ready");
        Box::pin(async move {
            for _ in 0..10 {
                dapple::yield_now().await;
            }
            drop(permit);
            Ok(http::Response::new("alone".to_owned()))
        })
    }
}

#[dapple::test]
async fn a_service_that_is_not_ready_keeps_requests_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let one = One(std::sync::Arc::new(dapple::sync::Semaphore::new(1)), None);
    let _task = dapple::spawn(async move { dapple::serve(listener, one).no_admission().await });
    let stream = TcpStream::connect(addr).await.unwrap();
    let replies = by_http2(stream, &["/"; 20]).await;
    assert!(replies.iter().all(|reply| reply.as_ref().is_ok_and(|(status, body)| *status == 200 && body == "alone")));
}

/// A service that panics in the next clones, readiness checks and destructors, as counted here.
#[derive(Default)]
struct Fragile {
    clones: Arc<AtomicUsize>,
    looks: Arc<AtomicUsize>,
    drops: Arc<AtomicUsize>,
}

/// Panics if the counter says so.
fn fall(due: &AtomicUsize) {
    let is_due = due.fetch_update(SeqCst, SeqCst, |due| due.checked_sub(1)).is_ok();
    assert!(!is_due, "on purpose");
}

impl Fragile {
    fn shared(&self) -> Fragile {
        Fragile { clones: self.clones.clone(), looks: self.looks.clone(), drops: self.drops.clone() }
    }
}

impl Clone for Fragile {
    fn clone(&self) -> Fragile {
        fall(&self.clones);
        self.shared()
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fall(&self.drops);
        }
    }
}

impl tower::Service<Request<dapple::serve::Body>> for Fragile {
    type Response = http::Response<String>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        fall(&self.looks);
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<dapple::serve::Body>) -> Self::Future {
        std::future::ready(Ok(http::Response::new("whole".to_owned())))
    }
}

#[test]
fn a_service_may_panic_anywhere_and_its_connection_goes_on() {
    let runtime = dapple::builder().workers(2).build().unwrap();
    let fragile = Fragile::default();
    let service = fragile.shared();
    let addr = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        drop(dapple::spawn(async move { dapple::serve(listener, service).no_admission().await }));
        addr
    });
    let mut client = connect(addr);
    assert_eq!(ask(&mut client, "/").1, "whole");
    for due in [&fragile.clones, &fragile.looks, &fragile.drops] {
        due.store(1, SeqCst);
        let (head, body) = ask(&mut client, "/");
        assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
        assert_eq!((body.as_str(), due.load(SeqCst)), ("The handler failed.\n", 0));
        assert_eq!(ask(&mut client, "/").1, "whole", "the connection goes on");
    }
    // The clone that an accepted connection gets.
    fragile.clones.store(1, SeqCst);
    assert!(ask(&mut connect(addr), "/").0.starts_with("HTTP/1.1 500 "));
    assert_eq!(ask(&mut connect(addr), "/").1, "whole", "and so does the server");
    runtime.shutdown(LIMIT);
}

#[test]
fn a_handler_that_blocks_is_reported_by_its_route() {
    let (tell, told) = channel();
    let report = move |slow: &SlowCallback| _ = tell.send((slow.about.clone(), slow.slowness));
    let runtime = dapple::builder().workers(2).slow_callback(Duration::from_millis(20), report).build().unwrap();
    let (open, gate) = channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let blocks = service_fn(move |_: Request<Body>| {
        let gate = gate.clone();
        async move {
            let _ = gate.lock().unwrap().recv_timeout(LIMIT);
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"late"))))
        }
    });
    let addr = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        drop(dapple::spawn(async move { dapple::serve(listener, blocks).no_admission().await }));
        addr
    });
    let client = std::thread::spawn(move || ask(&mut connect(addr), "/orders/7?key=secret").1);
    // Without the query.
    let mut reports = std::iter::from_fn(|| told.recv_timeout(LIMIT).ok());
    assert!(reports.any(|report| report == (Some("GET /orders/7".to_owned()), Slowness::Blocks)));
    drop(open);
    assert_eq!(client.join().unwrap(), "late");
}
