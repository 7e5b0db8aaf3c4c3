//! axum and tonic behind `dapple::serve`.

use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use axum::{Extension, Router};
use dapple::hyper_rt::Executor;
use dapple::net::{TcpListener, TcpStream};
use dapple::serve::{HttpService, Peer, Serve};
use hyper::StatusCode;
use hyper::client::conn::{http1, http2};
use tonic::Code;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Told;
use tonic_health::pb::health_client::HealthClient;

use crate::server::{Client, read};
use crate::{assert_no_tokio, run};

/// Serves in the background until the test's runtime ends.
fn start<V: HttpService>(
    service: V,
    configure: impl FnOnce(Serve<TcpListener, V>) -> Serve<TcpListener, V> + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = configure(dapple::serve(listener, service));
    drop(dapple::spawn(async move { server.await }));
    addr
}

async fn both(addr: SocketAddr) -> [Client; 2] {
    let (first, connection) = http1::handshake(TcpStream::connect(addr).await.unwrap()).await.unwrap();
    dapple::spawn(connection);
    let stream = TcpStream::connect(addr).await.unwrap();
    let (second, connection) = http2::handshake(Executor::new(), stream).await.unwrap();
    dapple::spawn(connection);
    [Client::Http1(first), Client::Http2(second)]
}

#[test]
fn handlers_know_the_peer_and_large_bodies_get_axums_own_answer() {
    run(2, async {
        let whose = async |Extension(peer): Extension<Peer>| {
            assert_no_tokio();
            peer.ip().unwrap().to_string()
        };
        let len = async |body: Bytes| body.len().to_string();
        let router = Router::new().route("/whose", get(whose)).route("/len", post(len));
        let addr = start(router, |server| server.body_max_bytes(1_000));
        for mut client in both(addr).await {
            assert_eq!(client.get("/whose").await, (StatusCode::OK, "127.0.0.1".into()));
            assert_eq!(client.get("/nowhere").await.0, StatusCode::NOT_FOUND);
            let reply = client.send("POST", "/len", Body::from(vec![1; 1_000])).await.unwrap();
            assert_eq!(read(reply).await, (StatusCode::OK, "1000".into()));
            // Of unknown length: the extractor meets the limit.
            let pieces = in_pieces(vec![Bytes::from(vec![1; 600]), Bytes::from(vec![1; 600])]);
            let reply = client.send("POST", "/len", Body::new(pieces)).await.unwrap();
            assert_eq!(reply.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    });
}

/// A body in pieces, with a length that is not known before.
fn in_pieces(mut pieces: Vec<Bytes>) -> impl hyper::body::Body<Data = Bytes, Error = std::convert::Infallible> + Send {
    struct Pieces<F>(F);
    impl<F: FnMut() -> Option<Bytes> + Unpin> hyper::body::Body for Pieces<F> {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Ready((self.0)().map(|piece| Ok(hyper::body::Frame::data(piece))))
        }
    }
    Pieces(move || pieces.pop())
}

#[test]
fn grpc_is_served_and_watched_and_told_of_deadlines() {
    run(2, async {
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status("shop", ServingStatus::Serving).await;
        let addr = start(health, |server| server);
        let [_, Client::Http2(sender)] = both(addr).await else { unreachable!("the second is HTTP/2") };
        let send = tower::service_fn(move |request: hyper::Request<tonic::body::Body>| {
            let mut sender = sender.clone();
            async move { sender.send_request(request.map(Body::new)).await }
        });
        let mut client = HealthClient::with_origin(send, format!("http://{addr}").parse().unwrap());
        let shop = || HealthCheckRequest { service: "shop".to_owned() };
        assert_eq!(client.check(shop()).await.unwrap().into_inner().status(), Told::Serving);
        let mut watch = client.watch(shop()).await.unwrap().into_inner();
        assert_eq!(watch.message().await.unwrap().unwrap().status(), Told::Serving);
        reporter.set_service_status("shop", ServingStatus::NotServing).await;
        assert_eq!(watch.message().await.unwrap().unwrap().status(), Told::NotServing);
        // A deadline that has passed before any task looks.
        let mut late = tonic::Request::new(shop());
        late.metadata_mut().insert("grpc-timeout", "0n".parse().unwrap());
        let refused = client.check(late).await.unwrap_err();
        assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused:?}");
    });
}
