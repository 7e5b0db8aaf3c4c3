//! tonic's health service over HTTP/2, on one port with axum's routes.

use axum::Router;
use axum::routing::get;
use hyper::StatusCode;
use tonic::service::Routes;
use tonic::{Code, Streaming};
use tonic_health::ServingStatus;
use tonic_health::pb::health_check_response::ServingStatus as Told;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::HealthReporter;
use tower::util::BoxCloneSyncService;

use crate::server::{Client, Server};
use crate::{assert_no_tokio, run};

type Channel =
    BoxCloneSyncService<hyper::Request<tonic::body::Body>, hyper::Response<hyper::body::Incoming>, hyper::Error>;

/// A server with pages and the health service.
fn server() -> (HealthReporter, Server) {
    let (reporter, health) = tonic_health::server::health_reporter();
    let page = get(async || {
        assert_no_tokio();
        "a page"
    });
    let router: Router = Routes::new(health).into_axum_router().route("/page", page);
    (reporter, Server::start(router))
}

async fn client(server: &Server) -> HealthClient<Channel> {
    let Client::Http2(sender) = server.connect_http2().await else { unreachable!("that is what was asked for") };
    let send = tower::service_fn(move |request: hyper::Request<tonic::body::Body>| {
        let mut sender = sender.clone();
        async move { sender.send_request(request.map(axum::body::Body::new)).await }
    });
    HealthClient::with_origin(Channel::new(send), format!("http://{}", server.addr).parse().unwrap())
}

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

async fn told(watch: &mut Streaming<HealthCheckResponse>) -> Told {
    assert_no_tokio();
    watch.message().await.unwrap().expect("the stream goes on").status()
}

fn health_is_checked(workers: usize) {
    run(workers, async {
        let (reporter, server) = server();
        reporter.set_service_status("shop", ServingStatus::NotServing).await;
        let mut client = client(&server).await;
        assert_eq!(client.check(of("")).await.unwrap().into_inner().status(), Told::Serving);
        assert_eq!(client.check(of("shop")).await.unwrap().into_inner().status(), Told::NotServing);
        assert_eq!(client.check(of("nobody")).await.unwrap_err().code(), Code::NotFound);
        reporter.set_service_status("shop", ServingStatus::Serving).await;
        let checks: Vec<_> = (0..50)
            .map(|_| {
                let mut client = client.clone();
                dapple::spawn(async move { client.check(of("shop")).await.unwrap().into_inner().status() })
            })
            .collect();
        for check in checks {
            assert_eq!(check.await.unwrap(), Told::Serving);
        }
        drop(client);
        server.stop().await;
    });
}

#[test]
fn health_is_checked_on_one_worker() {
    health_is_checked(1);
}

#[test]
fn health_is_checked_on_four_workers() {
    health_is_checked(4);
}

/// An open stream sends each change to every watcher.
#[test]
fn health_is_watched() {
    run(2, async {
        let (reporter, server) = server();
        reporter.set_service_status("shop", ServingStatus::Serving).await;
        let mut watches = Vec::new();
        for _ in 0..3 {
            let mut client = client(&server).await;
            let mut watch = client.watch(of("shop")).await.unwrap().into_inner();
            assert_eq!(told(&mut watch).await, Told::Serving);
            watches.push(watch);
        }
        for (status, said) in [
            (ServingStatus::NotServing, Told::NotServing),
            (ServingStatus::Unknown, Told::Unknown),
            (ServingStatus::Serving, Told::Serving),
        ] {
            reporter.set_service_status("shop", status).await;
            for watch in &mut watches {
                assert_eq!(told(watch).await, said);
            }
        }
    });
}

#[test]
fn pages_and_calls_share_a_port() {
    run(2, async {
        let (_reporter, server) = server();
        let mut health = client(&server).await;
        for _ in 0..3 {
            for mut client in server.connect_both().await {
                assert_eq!(client.get("/page").await, (StatusCode::OK, "a page".into()));
            }
            assert_eq!(health.check(of("")).await.unwrap().into_inner().status(), Told::Serving);
        }
    });
}

/// A missing item is reported as a gRPC status, over gRPC.
#[test]
fn an_unknown_method_is_unimplemented() {
    run(1, async {
        let (_reporter, server) = server();
        let Client::Http2(mut sender) = server.connect_http2().await else {
            unreachable!("that is what was asked for")
        };
        let request =
            hyper::Request::post("http://localhost/no.Such/Method").header("content-type", "application/grpc");
        let response = sender.send_request(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], (Code::Unimplemented as i32).to_string().as_str());
    });
}
