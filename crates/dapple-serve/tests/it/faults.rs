//! User code that panics wherever a server calls it: its own request fails, and other requests are
//! served, also on the same connection.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use dapple::hyper_rt::Executor;
use dapple::net::{TcpListener, TcpStream};
use dapple::serve::{Body, BoxError};
use dapple::sync::Semaphore;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::client::conn::http2;
use tower::service_fn;

use crate::bombs::{DropBomb, panic_twice};

/// The places where user code panics; each is a path.
const FAULTS: [&str; 11] = [
    "/call",
    "/poll",
    "/source",
    "/error-dropped",
    "/body",
    "/body-ends",
    "/body-size",
    "/body-data",
    "/body-error",
    "/body-dropped",
    "/body-panics-and-is-dropped",
];

/// A reply's body, and the point at which it panics.
struct Faulty(&'static str, #[expect(dead_code, reason = "it is dropped")] Option<DropBomb>);

impl Faulty {
    fn panics(&self, path: &str) -> bool {
        self.0 == path
    }
}

impl HttpBody for Faulty {
    type Data = Piece;
    type Error = Problem;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Problem>>> {
        if self.panics("/body") || self.panics("/body-panics-and-is-dropped") {
            panic_twice();
        }
        if self.panics("/body-error") {
            return Poll::Ready(Some(Err(Problem("/body-error", None))));
        }
        let piece = match std::mem::take(&mut self.0) {
            "" => return Poll::Ready(None),
            path => Piece(Bytes::from_static(b"whole"), path == "/body-data"),
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        if self.panics("/body-ends") {
            panic_twice();
        }
        false
    }

    fn size_hint(&self) -> SizeHint {
        if self.panics("/body-size") {
            panic_twice();
        }
        SizeHint::default()
    }
}

/// Data of a body.
struct Piece(Bytes, bool);

impl Buf for Piece {
    fn remaining(&self) -> usize {
        if self.1 {
            panic_twice();
        }
        self.0.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.0.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.0.advance(count);
    }
}

struct Problem(&'static str, #[expect(dead_code, reason = "it is dropped")] Option<DropBomb>);

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        if self.0 == "/source" {
            panic_twice();
        }
        None
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

async fn answer(path: String, gate: Arc<Semaphore>) -> Result<Response<Faulty>, BoxError> {
    let fault = FAULTS.into_iter().find(|fault| *fault == path);
    match fault {
        None if path == "/waits" => gate.acquire().await.unwrap().forget(),
        Some("/poll") => panic_twice(),
        Some("/source") => return Err(Problem("/source", None).into()),
        Some("/error-dropped") => return Err(Problem("/error-dropped", Some(DropBomb)).into()),
        _ => {}
    }
    let bomb = fault.filter(|fault| fault.ends_with("dropped")).map(|_| DropBomb);
    Ok(Response::new(Faulty(fault.unwrap_or("/"), bomb)))
}

#[dapple::test]
async fn other_requests_of_a_connection_are_served_wherever_one_panics() {
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    let service = service_fn(move |request: Request<Body>| {
        let path = request.uri().path().to_owned();
        if path == "/call" {
            panic_twice();
        }
        answer(path, inner.clone())
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = dapple::serve(listener, service).no_admission();
    let handle = server.handle();
    let server = dapple::spawn(async move { server.await });
    let stream = TcpStream::connect(addr).await.unwrap();
    let (sender, connection) = http2::handshake(Executor::new(), stream).await.unwrap();
    dapple::spawn(connection);
    let ask = |path: &str| {
        let mut sender = sender.clone();
        let request = Request::get(format!("http://a{path}")).body(Empty::<Bytes>::new()).unwrap();
        async move {
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        }
    };
    for fault in FAULTS {
        let waits = dapple::spawn(ask("/waits"));
        dapple::yield_now().await;
        let faulty = ask(fault).await;
        let may_be_whole = ["/body-ends", "/body-size", "/body-dropped"].contains(&fault);
        let is_whole = matches!(&faulty, Ok((200, body)) if body == "whole");
        assert!(is_whole == may_be_whole, "{fault}: {faulty:?}");
        // Before the reply has begun, the client gets a 500.
        let is_told = matches!(&faulty, Ok((500, _)));
        assert!(is_told != fault.starts_with("/body"), "{fault}: {faulty:?}");
        gate.add_permits(1);
        let (status, body) = waits.await.unwrap().unwrap_or_else(|error| panic!("beside {fault}: {error}"));
        assert_eq!((status, &body[..]), (200, &b"whole"[..]), "beside {fault}");
        assert_eq!(ask("/").await.unwrap().0, 200, "after {fault}");
    }
    drop(sender);
    handle.stop();
    server.await.unwrap().unwrap();
    assert_eq!((handle.connections(), handle.cut()), (0, 0));
}
