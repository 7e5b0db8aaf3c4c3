//! Listeners and connections of a program's own: here in memory.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dapple::Connection;
use dapple::hyper_rt::{Executor, HyperIo};
use dapple::net::{Listener, Peer};
use dapple::sync::mpsc;
use dapple::tls::{Certificates, TlsAcceptor, TlsConnector};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};

use crate::support::{LIMIT, service};

/// One direction: the bytes that were written and not read, at most `ROOM`.
#[derive(Default)]
struct Way {
    bytes: VecDeque<u8>,
    is_ended: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

const ROOM: usize = 100;

/// One end of a connection in memory.
struct End {
    reads: Arc<Mutex<Way>>,
    writes: Arc<Mutex<Way>>,
}

fn pair() -> (End, End) {
    let (there, back) = <(Arc<Mutex<Way>>, Arc<Mutex<Way>>)>::default();
    (End { reads: back.clone(), writes: there.clone() }, End { reads: there, writes: back })
}

impl Connection for End {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut way = self.reads.lock().unwrap();
        if way.bytes.is_empty() && !way.is_ended {
            way.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buf.len().min(way.bytes.len());
        for (to, from) in buf.iter_mut().zip(way.bytes.drain(..count)) {
            *to = from;
        }
        way.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut way = self.writes.lock().unwrap();
        let count = buf.len().min(ROOM - way.bytes.len());
        if way.is_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if count == 0 && !buf.is_empty() {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        way.bytes.extend(&buf[..count]);
        way.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(count))
    }

    fn poll_end(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        end(&self.writes);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        end(&self.reads);
        end(&self.writes);
    }
}

fn end(way: &Mutex<Way>) {
    let mut way = way.lock().unwrap();
    way.is_ended = true;
    way.reader.take().into_iter().chain(way.writer.take()).for_each(Waker::wake);
}

/// Accepts the connections that arrive through a channel.
pub(crate) struct Memory<C>(dapple::sync::Mutex<mpsc::Receiver<C>>);

impl<C: Connection> Listener for Memory<C> {
    type Connection = C;

    async fn accept(&self) -> io::Result<(C, Peer)> {
        match self.0.lock().await.recv().await {
            Some(end) => Ok((end, Peer::Unnamed)),
            None => std::future::pending().await,
        }
    }
}

pub(crate) fn listener<C>() -> (mpsc::Sender<C>, Memory<C>) {
    let (tx, rx) = mpsc::channel(8);
    (tx, Memory(dapple::sync::Mutex::new(rx)))
}

fn request(path: &str) -> Request<Full<bytes::Bytes>> {
    Request::get(format!("http://a{path}")).header("host", "a").body(Full::default()).unwrap()
}

#[test]
fn a_server_listens_in_memory() {
    let runtime = dapple::builder().workers(2).build().unwrap();
    runtime.block_on(async {
        let (connect, memory) = listener();
        let server = dapple::serve(memory, service());
        let handle = server.handle();
        let task = dapple::spawn(async move { server.await });
        let (client, served) = pair();
        connect.send(served).await.unwrap();
        let (mut sender, connection) = http1::handshake(HyperIo::new(client)).await.unwrap();
        dapple::spawn(connection);
        for _ in 0..3 {
            sender.ready().await.unwrap();
            let response = sender.send_request(request("/hello")).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        }
        let (client, served) = pair();
        connect.send(served).await.unwrap();
        let (mut sender, connection) = http2::handshake(Executor::new(), HyperIo::new(client)).await.unwrap();
        dapple::spawn(connection);
        let response = sender.send_request(request("/hello")).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        drop(sender);
        handle.stop();
        task.await.unwrap().unwrap();
    });
}

/// TLS is a layer like any other: it runs over memory, and over itself.
#[test]
fn tls_runs_over_any_connection() {
    let runtime = dapple::builder().workers(2).build().unwrap();
    runtime.block_on(async {
        let certificates = Certificates::self_signed(["a"]).unwrap();
        let connector = TlsConnector::with_roots([certificates.first().clone()]).unwrap();
        let acceptor = TlsAcceptor::new(certificates).unwrap();
        let (client, served) = pair();
        let accepting = dapple::spawn(async move {
            let outer = acceptor.accept(served, LIMIT).await.unwrap();
            let inner = acceptor.accept(outer, LIMIT).await.unwrap();
            let mut words = [0; 5];
            inner.read_exact(&mut words).await.unwrap();
            inner.write_all(&words).await.unwrap();
            inner.shutdown().await.unwrap();
        });
        let outer = connector.connect("a", client, LIMIT).await.unwrap();
        let inner = connector.connect("a", outer, LIMIT).await.unwrap();
        inner.write_all(b"hello").await.unwrap();
        let mut words = [0; 5];
        inner.read_exact(&mut words).await.unwrap();
        assert_eq!(&words, b"hello");
        assert_eq!(inner.read(&mut words).await.unwrap(), 0);
        accepting.await.unwrap();
    });
}

/// How a connection misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Misdeed {
    None,
    ReadsTooMuch,
    ReadsFarTooMuch,
    PanicsInRead,
    WritesNothing,
    WritesTooMuch,
    WritesFarTooMuch,
    PanicsInWrite,
    PanicsInEnd,
}

/// Sends one request correctly, apart from its misdeed.
struct Rude {
    misdeed: Misdeed,
    asks: Mutex<bool>,
    written: Arc<Mutex<Vec<u8>>>,
    _gone: dapple::sync::oneshot::Sender<()>,
}

const ASKED: &[u8] = b"GET /hello HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

impl Connection for Rude {
    fn poll_read(&self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.misdeed {
            Misdeed::ReadsTooMuch => return Poll::Ready(Ok(buf.len() + 1)),
            Misdeed::ReadsFarTooMuch => return Poll::Ready(Ok(usize::MAX)),
            Misdeed::PanicsInRead => panic!("in a read"),
            _ => {}
        }
        if !std::mem::replace(&mut *self.asks.lock().unwrap(), false) {
            // The reply is the last.
            return Poll::Pending;
        }
        buf[..ASKED.len()].copy_from_slice(ASKED);
        Poll::Ready(Ok(ASKED.len()))
    }

    fn poll_write(&self, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(match self.misdeed {
            Misdeed::WritesNothing => 0,
            Misdeed::WritesTooMuch => buf.len() + 1,
            Misdeed::WritesFarTooMuch => usize::MAX,
            Misdeed::PanicsInWrite => panic!("in a write"),
            _ => {
                self.written.lock().unwrap().extend_from_slice(buf);
                buf.len()
            }
        }))
    }

    fn poll_end(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        assert_ne!(self.misdeed, Misdeed::PanicsInEnd, "at the end");
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_connection_that_breaks_its_contract_ends_only_itself() {
    const ALL: [Misdeed; 9] = [
        Misdeed::ReadsTooMuch,
        Misdeed::ReadsFarTooMuch,
        Misdeed::PanicsInRead,
        Misdeed::WritesNothing,
        Misdeed::WritesTooMuch,
        Misdeed::WritesFarTooMuch,
        Misdeed::PanicsInWrite,
        Misdeed::PanicsInEnd,
        Misdeed::None,
    ];
    let runtime = dapple::builder().workers(1).build().unwrap();
    runtime.block_on(async {
        for is_secure in [false, true] {
            let (connect, memory) = listener();
            let mut server = dapple::serve(memory, service());
            if is_secure {
                let certificates = Certificates::self_signed(["a"]).unwrap();
                server = server.tls(TlsAcceptor::new(certificates).unwrap());
            }
            let handle = server.handle();
            let task = dapple::spawn(async move { server.await });
            for misdeed in ALL {
                let (gone, is_gone) = dapple::sync::oneshot::channel();
                let written = Arc::<Mutex<Vec<u8>>>::default();
                let rude = Rude { misdeed, asks: Mutex::new(true), written: written.clone(), _gone: gone };
                assert!(connect.send(rude).await.is_ok());
                let ended = dapple::time::timeout(LIMIT, is_gone).await;
                assert!(ended.is_ok_and(|ended| ended.is_err()), "{misdeed:?} {is_secure}");
                if misdeed == Misdeed::None && !is_secure {
                    assert!(written.lock().unwrap().starts_with(b"HTTP/1.1 200 "));
                }
            }
            handle.stop();
            assert!(dapple::time::timeout(LIMIT, task).await.is_ok());
        }
    });
}
