//! fastwebsockets at both ends of a connection that axum and `dapple::serve` have upgraded.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use bytes::Bytes;
use dapple::hyper_rt::Executor;
use dapple::net::TcpListener;
use fastwebsockets::upgrade::{self, UpgradeFut};
use fastwebsockets::{FragmentCollector, Frame, OpCode, Payload, handshake};
use http_body_util::Empty;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{assert_no_tokio, run, whole_runtime};

/// Sends all that comes back, until the client says that it closes.
async fn echo(upgraded: UpgradeFut) {
    let mut socket = FragmentCollector::new(upgraded.await.unwrap());
    loop {
        let frame = socket.read_frame().await.unwrap();
        assert!(dapple::on_worker());
        match frame.opcode {
            OpCode::Close => return,
            _ => socket.write_frame(frame).await.unwrap(),
        }
    }
}

/// A client of `S` and a server, in the runtime that is current.
async fn messages_come_back<S, F>(connect: impl FnOnce(SocketAddr) -> F)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Future<Output = io::Result<S>>,
{
    let upgraded = async |mut request: Request| {
        let (response, upgraded) = upgrade::upgrade(&mut request).unwrap();
        dapple::spawn(echo(upgraded));
        response
    };
    let router = Router::new().route("/", get(upgraded));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = dapple::spawn(async move { dapple::serve(listener, router).no_admission().await });

    let request = hyper::Request::get(format!("http://{addr}/"))
        .header("host", addr.to_string())
        .header("upgrade", "websocket")
        .header("connection", "upgrade")
        .header("sec-websocket-key", handshake::generate_key())
        .header("sec-websocket-version", "13")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let stream = connect(addr).await.unwrap();
    let (socket, _) = handshake::client(&Executor::new(), request, stream).await.unwrap();
    let mut socket = FragmentCollector::new(socket);
    for len in [0, 1, 125, 126, 65_535, 65_536, 200_000] {
        let sent = vec![7; len];
        socket.write_frame(Frame::binary(Payload::Borrowed(&sent))).await.unwrap();
        let back = socket.read_frame().await.unwrap();
        assert_eq!((back.opcode, &*back.payload), (OpCode::Binary, &sent[..]));
    }
    // The other end closes, too.
    socket.write_frame(Frame::close(1000, b"")).await.unwrap();
    assert_eq!(socket.read_frame().await.unwrap().opcode, OpCode::Close);
    server.abort();
}

#[test]
fn over_a_socket_of_tokio() {
    whole_runtime::run(|| messages_come_back(tokio::net::TcpStream::connect::<SocketAddr>));
}

/// fastwebsockets has no socket and no timer of its own.
#[test]
fn without_tokio() {
    run(2, async {
        assert_no_tokio();
        messages_come_back(dapple::net::TcpStream::connect).await;
    });
}
