//! Tests of functions that a file server does not use: reading bodies, bodies of unknown length,
//! tunnels, other versions. Over real sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{future, io};

use bytes::Bytes;
use dapple_http::Request;
use dapple_io::net::TcpListener;
use dapple_sched::Runtime;
use http::{HeaderMap, StatusCode};

use super::{End, serve};
use crate::host::Link;
use crate::http::connection::Terms;
use crate::http::tunnel::Duplex;
use crate::http::{Body, BodyStream, Borrowed, Client, Limits, Observer, Reply, RequestBody, Service, Tunnel};

/// A service that answers by path.
struct Program;

/// A body of these pieces; a missing piece fails.
struct Pieces {
    pieces: std::vec::IntoIter<Option<&'static str>>,
    len: Option<u64>,
}

impl BodyStream for Pieces {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(self.pieces.next().map(|piece| piece.map(Bytes::from).ok_or_else(|| io::Error::other("lost"))))
    }

    fn len(&self) -> Option<u64> {
        self.len
    }
}

/// An endless body.
struct Endless;

impl BodyStream for Endless {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(Some(Ok(Bytes::from_static(&[b'x'; 64 << 10]))))
    }

    fn len(&self) -> Option<u64> {
        None
    }
}

/// A client that reads everything at once, and sends this request.
struct Taker(Mutex<Option<&'static [u8]>>);

impl dapple_io::Connection for Taker {
    fn poll_read(&self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.0.lock().unwrap().take() {
            None => Poll::Pending,
            Some(request) => {
                buf[..request.len()].copy_from_slice(request);
                Poll::Ready(Ok(request.len()))
            }
        }
    }

    fn poll_write(&self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_end(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A tunnel that sends back all input, until the client ends its side.
struct Echo;

impl Tunnel for Echo {
    fn observe(&mut self, _observer: Box<dyn Observer>) {}

    fn run(self: Box<Self>, mut client: Box<dyn Duplex>, first: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        use hyper::rt::{Read as _, Write as _};
        Box::pin(async move {
            let mut next = first.to_vec();
            loop {
                while !next.is_empty() {
                    let written = future::poll_fn(|cx| Pin::new(&mut client).poll_write(cx, &next)).await.unwrap();
                    next.drain(..written);
                }
                let mut memory = [0; 64];
                let mut buf = hyper::rt::ReadBuf::new(&mut memory);
                future::poll_fn(|cx| Pin::new(&mut client).poll_read(cx, buf.unfilled())).await.unwrap();
                if buf.filled().is_empty() {
                    return;
                }
                next.extend_from_slice(buf.filled());
            }
        })
    }
}

impl Service for Program {
    async fn answer(&self, request: &Request<'_>, body: &mut RequestBody<'_>, _: &Client) -> Reply {
        let pieces = |pieces: &[Option<&'static str>], len| {
            let pieces: Vec<_> = pieces.to_vec();
            Body::Stream(Box::new(Pieces { pieces: pieces.into_iter(), len }))
        };
        let body = match request.path {
            "/echo" => {
                let mut all = Vec::new();
                while let Some(piece) = body.next().await {
                    match piece {
                        Ok(piece) => all.extend_from_slice(&piece),
                        Err(_) => break,
                    }
                }
                Body::Whole(all.into())
            }
            "/converse" => {
                let rest = body.detach().expect("it can be read on");
                Body::Stream(Box::new(Conversation { first: None, rest }))
            }
            "/converse-late" => {
                let first = body.next().await.and_then(Result::ok).expect("it has begun");
                Body::Stream(Box::new(Conversation::behind(first, body.detach().expect("it can be read on"))))
            }
            "/converse-later" => {
                let mut rest = body.detach().expect("it can be read on");
                let first = future::poll_fn(|cx| rest.poll_next(cx)).await.and_then(Result::ok).expect("it has begun");
                Body::Stream(Box::new(Conversation::behind(first, rest)))
            }
            "/hand-on" => {
                let mut rest = body.detach().expect("it can be read on");
                drop(dapple_sched::spawn(async move {
                    while let Some(Ok(_)) = future::poll_fn(|cx| rest.poll_next(cx)).await {}
                }));
                Body::Whole("later".into())
            }
            "/leave" => {
                drop(body.detach());
                Body::Whole("left".into())
            }
            "/endless" => Body::Stream(Box::new(Endless)),
            "/chunks" => pieces(&[Some("one, "), Some("two, "), Some("three")], None),
            "/lost" => pieces(&[Some("one, "), None], None),
            "/lost-at-once" => pieces(&[None], Some(5)),
            "/short" => pieces(&[Some("one")], Some(5)),
            "/long" => pieces(&[Some("one"), Some("two")], Some(5)),
            "/exact" => pieces(&[Some("one"), Some("two")], Some(6)),
            "/tunnel" => Body::Tunnel(Box::new(Echo)),
            "/never" => future::pending().await,
            _ => Body::Empty,
        };
        let status = if request.path == "/nothing" { StatusCode::NO_CONTENT } else { StatusCode::OK };
        Reply::new(status, HeaderMap::new(), body)
    }

    fn refuse(&self, status: StatusCode, reason: &str, _: &Client) -> Reply {
        Reply::new(status, HeaderMap::new(), Body::Whole(reason.to_owned().into()))
    }
}

/// A service that answers each piece it reads.
struct Conversation {
    first: Option<Bytes>,
    rest: Box<dyn crate::http::Incoming + Send>,
}

impl Conversation {
    fn behind(first: Bytes, rest: Box<dyn crate::http::Incoming + Send>) -> Conversation {
        Conversation { first: Some(first), rest }
    }
}

impl BodyStream for Conversation {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.rest.poll_next(cx),
        }
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn trailers(&mut self) -> Option<HeaderMap> {
        self.rest.trailers()
    }
}

/// A server that runs until it is dropped.
struct Server {
    addr: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    fn start() -> Server {
        let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
        let entered = runtime.enter();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let handle = runtime.handle().clone();
        drop(dapple_sched::spawn(async move {
            while let Ok((stream, addr)) = listener.accept().await {
                let handle = handle.clone();
                drop(dapple_sched::spawn(async move {
                    let client = Client { addr, is_secure: false, color: 0, alternative: None };
                    let (limits, link) = (Arc::new(Limits::default()), Arc::new(Link::new(None)));
                    let terms = Terms { limits, handle: Some(&handle), link };
                    if let End::Http2 { stream, first } =
                        serve(stream, Borrowed::new(Arc::new(Program), client), terms).await
                    {
                        stream.write_all(&[b"second: ", &first[..]].concat()).await.unwrap();
                    }
                }));
            }
        }));
        drop(entered);
        Server { addr, _runtime: runtime }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// Returns all replies to `input`, without dates.
    fn ask(&self, input: &str) -> io::Result<String> {
        let mut stream = self.connect();
        stream.write_all(input.as_bytes()).unwrap();
        // Fails if the server has reset the connection by then, as `/lost` makes it do.
        stream.shutdown(Shutdown::Write)?;
        let mut output = String::new();
        stream.read_to_string(&mut output)?;
        Ok(without_dates(&output))
    }
}

fn without_dates(output: &str) -> String {
    output.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
}

/// Reads until `end` has arrived, which contains no date.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut output = Vec::new();
    let last = |output: &[u8]| without_dates(&String::from_utf8_lossy(&output[output.len().saturating_sub(256)..]));
    while !(output.ends_with(&end.as_bytes()[end.len() - 1..]) && last(&output).ends_with(end)) {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{:?}", String::from_utf8_lossy(&output));
        output.push(byte[0]);
    }
    without_dates(&String::from_utf8(output).unwrap())
}

#[test]
fn bodies_of_requests_are_read() {
    let server = Server::start();
    let output = server.ask(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
         POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n\
         GET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    let reply = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    assert_eq!(output.unwrap(), [reply("hello"), reply("abcde"), reply("")].concat());
    // Larger than any buffer, and followed by a request.
    let large = "0123456789abcdef".repeat(20_000);
    let len = large.len();
    let request = format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{len:x}\r\n{large}\r\n0\r\n\r\n\
         POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{large}GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
    );
    let expected = [reply(&large), reply(&large), "HTTP/1.1 204 No Content\r\n\r\n".to_owned()].concat();
    assert!(server.ask(&request).unwrap() == expected);
}

#[test]
fn a_malformed_body_is_refused_whatever_the_service_replies() {
    let server = Server::start();
    for path in ["/echo", "/chunks"] {
        let request = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n");
        let output = server.ask(&request).unwrap();
        assert!(output.starts_with("HTTP/1.1 400 ") && output.contains("\r\nconnection: close\r\n"), "{output}");
    }
}

#[test]
fn a_waiting_client_gets_100_continue() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").unwrap();
    assert_eq!(read_until(&mut stream, "hello"), "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    // A client that did not wait gets none.
    stream
        .write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello")
        .unwrap();
    assert_eq!(read_until(&mut stream, "hello"), "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
}

const NEXT: &str = "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n";
const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[test]
fn a_reply_may_go_on_while_its_request_does() {
    let server = Server::start();
    let mut stream = server.connect();
    let head = "POST /converse HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n";
    stream.write_all(format!("{head}\r\n3\r\none\r\n").as_bytes()).unwrap();
    let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
    assert_eq!(read_until(&mut stream, "one\r\n"), begun);
    for piece in ["two", "three", "four"] {
        stream.write_all(format!("{:x}\r\n{piece}\r\n", piece.len()).as_bytes()).unwrap();
        read_until(&mut stream, &format!("{piece}\r\n"));
    }
    // The bytes after its end are the next request.
    stream.write_all(format!("0\r\n\r\n{NEXT}").as_bytes()).unwrap();
    assert_eq!(read_until(&mut stream, NO_CONTENT), format!("0\r\n\r\n{NO_CONTENT}"));
    // Trailers go both ways if the client wants them; here everything arrives at once.
    let all = format!("{head}TE: trailers\r\n\r\n3\r\none\r\n0\r\nx-sum: 1\r\n\r\n{NEXT}");
    stream.write_all(all.as_bytes()).unwrap();
    let rest = "3\r\none\r\n0\r\nx-sum: 1\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    assert!(read_until(&mut stream, NO_CONTENT).ends_with(rest));
    // More than any buffer holds.
    let (len, large) = (1 << 20, "0123456789abcdef".repeat(1 << 16));
    let mut writer = stream.try_clone().unwrap();
    let whole = format!("POST /converse HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{large}{NEXT}");
    let writing = std::thread::spawn(move || writer.write_all(whole.as_bytes()).unwrap());
    let reply = read_until(&mut stream, NO_CONTENT);
    writing.join().unwrap();
    assert!(reply.len() > large.len());
}

#[test]
fn a_body_that_was_read_before_the_reply_ends_where_it_was_handed_on() {
    let server = Server::start();
    let mut stream = server.connect();
    let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
    for path in ["/converse-late", "/converse-later"] {
        let framed = ["Content-Length: 3\r\n\r\none", "Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n"];
        for framed in framed {
            stream.write_all(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framed}{NEXT}").as_bytes()).unwrap();
            assert_eq!(read_until(&mut stream, NO_CONTENT), format!("{begun}0\r\n\r\n{NO_CONTENT}"), "{path}");
        }
    }
}

#[test]
fn a_body_that_was_handed_on_leaves_its_connection_to_the_next_request() {
    let server = Server::start();
    let mut stream = server.connect();
    for (path, text) in [("/hand-on", "later"), ("/leave", "left")] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        assert!(read_until(&mut stream, text).starts_with("HTTP/1.1 200 "), "before the body has ended");
        stream.write_all(format!("3\r\ntwo\r\n0\r\n\r\n{NEXT}").as_bytes()).unwrap();
        assert_eq!(read_until(&mut stream, NO_CONTENT), NO_CONTENT);
    }
    // More is left than a connection discards to stay open.
    stream.write_all(b"POST /leave HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\nx").unwrap();
    read_until(&mut stream, "left");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_cut_or_malformed_dialogue_never_looks_complete() {
    let server = Server::start();
    for (rest, reason) in [("", "cut"), ("zz\r\n", "malformed")] {
        let head = "POST /converse HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n";
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        read_until(&mut stream, "one\r\n");
        stream.write_all(rest.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut output = Vec::new();
        let _ = stream.read_to_end(&mut output);
        assert_eq!(String::from_utf8_lossy(&output), "", "{reason}");
    }
}

#[test]
fn bodies_of_unknown_length_are_framed_as_the_version_allows() {
    let server = Server::start();
    assert_eq!(
        server.ask("GET /chunks HTTP/1.1\r\nHost: a\r\n\r\nGET /nothing HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\none, \r\n5\r\ntwo, \r\n5\r\nthree\r\n0\r\n\r\n\
         HTTP/1.1 204 No Content\r\n\r\n"
    );
    assert_eq!(
        server.ask("GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap(),
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\none, two, three"
    );
    assert_eq!(server.ask("HEAD /chunks HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(), "HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(
        server.ask("GET /exact HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(),
        "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nonetwo"
    );
}

#[test]
fn a_reply_that_is_cut_short_never_looks_complete() {
    let server = Server::start();
    let chunked = server.ask("GET /lost HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(!chunked.ends_with("0\r\n\r\n"), "{chunked}");
    // Without framing, only a reset can show it.
    assert!(server.ask("GET /lost HTTP/1.0\r\n\r\n").is_err());
    let short = server.ask("GET /short HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(
        short.contains("content-length: 5\r\n") && short.len() - short.find("\r\n\r\n").unwrap() - 4 < 5,
        "{short}"
    );
    let long = server.ask("GET /long HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(long.len() - long.find("\r\n\r\n").unwrap() - 4 < 5, "{long}");
    let at_once = server.ask("GET /lost-at-once HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(at_once.starts_with("HTTP/1.1 500 "), "{at_once}");
}

#[test]
fn a_tunnel_gets_the_connection_and_the_bytes_already_read() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(b"GET /tunnel HTTP/1.1\r\nHost: a\r\n\r\nfirst").unwrap();
    assert_eq!(read_until(&mut stream, "first"), "HTTP/1.1 200 OK\r\n\r\nfirst");
    stream.write_all(b"second").unwrap();
    assert_eq!(read_until(&mut stream, "second"), "second");
}

#[test]
fn earlier_replies_do_not_wait_for_later_ones() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\nGET /never HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n"), "HTTP/1.1 204 No Content\r\n\r\n");
}

#[test]
fn http_2_is_recognized_in_any_pieces() {
    let server = Server::start();
    let mut stream = server.connect();
    stream.write_all(b"PRI * HT").unwrap();
    stream.write_all(b"TP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert!(read_until(&mut stream, "PRI * HTTP/2.0\r\n").starts_with("second: "));
    // After another request, the preface is a request like any other.
    let late = "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\nPRI * HTTP/2.0\r\n\r\n";
    assert!(server.ask(late).unwrap().contains("HTTP/1.1 505 "));
}

/// However fast a client reads: small replies go in between.
#[test]
fn a_large_reply_does_not_delay_others() {
    let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    let handle = runtime.handle().clone();
    let begun = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (has_begun, addr) = (begun.clone(), SocketAddr::from(([127, 0, 0, 1], 1)));
    drop(runtime.spawn(async move {
        let client = Client { addr, is_secure: false, color: 0, alternative: None };
        let terms = Terms { limits: Arc::default(), handle: Some(&handle), link: Arc::new(Link::new(None)) };
        let taker = Taker(Mutex::new(Some(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")));
        has_begun.store(true, std::sync::atomic::Ordering::SeqCst);
        drop(serve(taker, Borrowed::new(Arc::new(Program), client), terms).await);
    }));
    while !begun.load(std::sync::atomic::Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let (tx, rx) = std::sync::mpsc::channel();
    drop(runtime.spawn(async move { tx.send(()).unwrap() }));
    let had_its_turn = rx.recv_timeout(Duration::from_secs(60)).is_ok();
    if !had_its_turn {
        // The worker never returns.
        std::mem::forget(runtime);
    }
    assert!(had_its_turn);
}
