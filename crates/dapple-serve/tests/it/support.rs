//! Servers for tests, and clients that send arbitrary bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use dapple::net::TcpListener;
use dapple::serve::{Body, HttpService, Serve, ServeHandle};
use dapple::{JoinHandle, Runtime};
use http::Request;
use tower::service_fn;

use crate::site::site;

/// A limit that only a bug reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// A server in the current runtime.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) handle: ServeHandle,
    pub(crate) task: JoinHandle<io::Result<()>>,
}

/// The site as a service.
pub(crate) fn service() -> impl HttpService {
    service_fn(|request: Request<Body>| site(request))
}

/// Starts a server of the site, configured by the closure.
macro_rules! start {
    ($server:ident => $configured:expr) => {{
        let listener = dapple::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let $server = $crate::support::serve_site(listener);
        let server = $configured;
        let handle = server.handle();
        let task = dapple::spawn(async move { server.await });
        $crate::support::Server { addr, handle, task }
    }};
    () => { $crate::support::start!(server => server) };
}
pub(crate) use start;

pub(crate) fn serve_site(listener: TcpListener) -> Serve<TcpListener, impl HttpService> {
    dapple::serve(listener, service())
}

/// A runtime with a server in it, for blocking clients.
macro_rules! outside {
    ($server:ident => $configured:expr) => {{
        let runtime = dapple::builder().workers(2).build().unwrap();
        let server = runtime.block_on(async { $crate::support::start!($server => $configured) });
        (runtime, server)
    }};
    () => { $crate::support::outside!(server => server) };
}
pub(crate) use outside;

/// Connects a blocking client.
pub(crate) fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends one request on a connection that stays open; returns the reply's head and body.
pub(crate) fn ask(stream: &mut TcpStream, path: &str) -> (String, String) {
    stream.write_all(get(path).as_bytes()).unwrap();
    reply(stream)
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")
}

/// Reads a reply with a stated length.
pub(crate) fn reply(stream: &mut impl Read) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        // Not `read`, which returns early if the process was stopped meanwhile.
        let read = stream.read_exact(&mut byte);
        read.unwrap_or_else(|error| panic!("{error} in the head: {:?}", String::from_utf8_lossy(&head)));
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |len| len.parse().unwrap());
    let mut body = vec![0; len];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Reads until the end, however the connection ends.
pub(crate) fn rest(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            panic!("the connection does not end, after {:?}", String::from_utf8_lossy(&bytes))
        }
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// Waits until `check` holds.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a server and its runtime.
pub(crate) fn end(runtime: Runtime, server: Server) {
    server.handle.stop();
    runtime.block_on(server.task).unwrap().unwrap();
    assert_eq!(server.handle.connections(), 0);
}

/// A Dapple client, for tests with a clock that stands still.
pub(crate) struct Client(pub(crate) dapple::net::TcpStream);

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Client {
        Client(dapple::net::TcpStream::connect(addr).await.unwrap())
    }

    pub(crate) async fn say(&self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads a reply with a stated length.
    pub(crate) async fn hear(&self) -> (String, String) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            let len = self.0.read(&mut byte).await.unwrap();
            assert_eq!(len, 1, "the connection ended in the head: {:?}", String::from_utf8_lossy(&head));
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; len.map_or(0, |len| len.parse().unwrap())];
        self.0.read_exact(&mut body).await.unwrap();
        (head, String::from_utf8(body).unwrap())
    }

    pub(crate) async fn ask(&self, path: &str) -> (String, String) {
        self.say(&get(path)).await;
        self.hear().await
    }

    /// Reads until the end, however the connection ends.
    pub(crate) async fn rest(&self) -> String {
        let mut bytes = Vec::new();
        let mut buf = [0; 4096];
        while let Ok(len @ 1..) = self.0.read(&mut buf).await {
            bytes.extend_from_slice(&buf[..len]);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
