//! Servers, and helpers that wait for them.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::Future;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dapple::net::TcpListener;
use dapple::serve::{Body, Peer};
use dapple::tls::{Certificates, TlsAcceptor, TlsConnector};
use dapple_client::Request;
use http::Response;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

pub(crate) type Reply = Response<UnsyncBoxBody<bytes::Bytes, Infallible>>;

/// Runs a test in a task.
pub(crate) fn run<T: Send + 'static>(test: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = dapple::builder().workers(2).build().unwrap();
    let limited = async move { dapple::time::timeout(LIMIT, test).await.expect("it is done within the limit") };
    runtime.block_on(runtime.spawn(limited)).unwrap_or_else(|error| panic!("{error:?}"))
}

/// A server in the background, until the test's runtime ends.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: TlsConnector,
    /// The ports from which requests came: one for each connection.
    pub(crate) ports: Arc<Mutex<HashSet<u16>>>,
}

impl Site {
    pub(crate) fn start<H, F>(is_encrypted: bool, handle: H) -> Site
    where
        H: Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Reply> + Send + 'static,
    {
        Site::start_with(if is_encrypted { &["h2", "http/1.1"] } else { &[] }, handle)
    }

    /// A server that agrees on these protocols over TLS; without any, an unencrypted one.
    pub(crate) fn start_with<H, F>(protocols: &[&'static str], handle: H) -> Site
    where
        H: Fn(Request<Body>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Reply> + Send + 'static,
    {
        let certificates = Certificates::self_signed(["localhost"]).unwrap();
        let tls = TlsConnector::with_roots([certificates.first().clone()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let site = Site { addr: listener.local_addr().unwrap(), tls, ports: Arc::default() };
        let ports = site.ports.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            if let Some(Peer::Tcp(addr)) = request.extensions().get() {
                ports.lock().unwrap().insert(addr.port());
            }
            let answering = handle(request);
            async move { Ok::<_, Infallible>(answering.await) }
        });
        let mut server = dapple::serve(listener, service).no_admission();
        if !protocols.is_empty() {
            server = server.tls(TlsAcceptor::with_alpn(certificates, protocols.iter().copied()).unwrap());
        }
        drop(dapple::spawn(async move { server.await }));
        site
    }

    /// A URL there, without encryption.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(crate) fn connections(&self) -> usize {
        self.ports.lock().unwrap().len()
    }
}

pub(crate) fn reply(status: u16, text: impl Into<bytes::Bytes>) -> Reply {
    let body = http_body_util::Full::new(text.into()).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

/// A server on a thread that answers connection after connection by these scripts, one for each. A
/// script has the replies to the requests on the connection, and what happens after the last.
pub(crate) fn scripted(scripts: Vec<(Vec<&'static str>, After)>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut held = Vec::new();
        for (replies, after) in scripts {
            let Ok((mut stream, _)) = listener.accept() else { return };
            for reply in replies {
                read_head(&mut stream);
                // The client may have enough before the end.
                if stream.write_all(reply.as_bytes()).is_err() {
                    break;
                }
            }
            match after {
                After::Close => {}
                After::CloseWhenAsked => read_head(&mut stream),
                After::Hold => held.push(stream),
                After::Endless(more) => while stream.write_all(more.as_bytes()).is_ok() {},
            }
        }
        // Until the client has gone.
        for mut stream in held {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    url
}

/// A port that forwards to a server: the first connection at once, the others after `len`
/// connections have arrived.
pub(crate) fn passed_on(to: SocketAddr, len: usize) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut held = Vec::new();
        for number in 0..len {
            let Ok((stream, _)) = listener.accept() else { return };
            match number {
                0 => join(stream, to),
                _ => held.push(stream),
            }
        }
        held.into_iter().for_each(|stream| join(stream, to));
    });
    port
}

/// Copies between a connection and a new one to a server, until both have ended.
fn join(near: std::net::TcpStream, to: SocketAddr) {
    let far = std::net::TcpStream::connect(to).unwrap();
    for (mut from, mut into) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut into);
            let _ = into.shutdown(std::net::Shutdown::Write);
        });
    }
}

/// The end of a connection after its last reply.
pub(crate) enum After {
    Close,
    /// The connection closes at the next request, without an answer.
    CloseWhenAsked,
    /// The connection stays open and silent.
    Hold,
    /// The server repeats this text forever.
    Endless(&'static str),
}

fn read_head(stream: &mut std::net::TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|len| len > 0) {
        head.push(byte[0]);
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        dapple::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A limit that only a bug reaches.
const LIMIT: Duration = Duration::from_secs(120);
