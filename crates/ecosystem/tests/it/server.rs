//! An HTTP server as a user would write it: HTTP/1.1 and HTTP/2 on one port, told apart by their
//! first bytes.

use std::net::SocketAddr;
use std::pin::pin;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use dapple::JoinHandle;
use dapple::hyper_rt::{Executor, Timer};
use dapple::net::{TcpListener, TcpStream};
use dapple::task::{CancellationToken, Group};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper::{Request, Response, StatusCode};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;

/// A server in the runtime that is current; dropping it ends its connections.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    accepting: JoinHandle<()>,
    connections: Group<()>,
    is_over: CancellationToken,
}

impl Server {
    pub(crate) fn start(router: Router) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (connections, is_over) = (Group::limited(1_000), CancellationToken::new());
        let (members, told) = (connections.members().clone(), is_over.clone());
        let accepting = dapple::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                members.spawn(serve(stream, router.clone(), told.clone())).await;
            }
        });
        Server { addr, accepting, connections, is_over }
    }

    /// Accepts no more, lets requests in flight finish, and closes idle connections.
    pub(crate) async fn stop(self) {
        self.accepting.abort();
        let _ = self.accepting.await;
        self.is_over.cancel();
        self.connections.all_ended().await;
    }

    pub(crate) async fn connect_http1(&self) -> Client {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        dapple::spawn(connection);
        Client::Http1(sender)
    }

    pub(crate) async fn connect_http2(&self) -> Client {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let mut http = http2::Builder::new(Executor::new());
        let (sender, connection) = http.timer(Timer::new()).handshake(stream).await.unwrap();
        dapple::spawn(connection);
        Client::Http2(sender)
    }

    /// One connection of each version.
    pub(crate) async fn connect_both(&self) -> [Client; 2] {
        [self.connect_http1().await, self.connect_http2().await]
    }
}

/// Serves one connection until it ends, or until shutdown and the end of its requests in flight.
pub(crate) async fn serve<S: Read + Write + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    is_over: CancellationToken,
) {
    let mut http = auto::Builder::new(Executor::new());
    http.http1().timer(Timer::new());
    http.http2().timer(Timer::new());
    let mut connection = pin!(http.serve_connection(stream, TowerToHyperService::new(router)));
    // hyper-util has `GracefulShutdown` for this, but the feature that it is behind builds tokio's
    // runtime.
    if is_over.run_until_cancelled(connection.as_mut()).await.is_none() {
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

/// One connection of hyper's client.
pub(crate) enum Client {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Client {
    pub(crate) async fn get(&mut self, path: &str) -> (StatusCode, Bytes) {
        read(self.send("GET", path, Body::empty()).await.unwrap()).await
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, body: Body) -> hyper::Result<Response<Incoming>> {
        let request = Request::builder().method(method);
        match self {
            Client::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request.uri(path).header("host", "localhost").body(body).unwrap()).await
            }
            Client::Http2(sender) => {
                sender.ready().await?;
                let uri = format!("http://localhost{path}");
                sender.send_request(request.uri(uri).body(body).unwrap()).await
            }
        }
    }
}

pub(crate) async fn read(response: Response<Incoming>) -> (StatusCode, Bytes) {
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}
