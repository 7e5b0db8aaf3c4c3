//! Clients with a pool of their own, on Dapple's connector: hyper-util's, and tonic's channel. No
//! tokio runtime is there.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use dapple::http::{ConnectError, Connector};
use dapple::hyper_rt::{Executor, Timer};
use dapple::net::TcpListener;
use dapple::serve::{HttpService, Peer};
use dapple::tls::{Certificates, TlsAcceptor, TlsConnector};
use hyper::{StatusCode, Version};
use hyper_util::client::legacy::{Builder, Client};
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Told;
use tonic_health::pb::health_client::HealthClient;

use crate::server::read;
use crate::{assert_no_tokio, run};

/// The ports from which requests came: one for each connection.
type Seen = Arc<Mutex<HashSet<u16>>>;

fn router(seen: &Seen) -> Router {
    let seen = seen.clone();
    let page = async move |Extension(peer): Extension<Peer>, request: Request| {
        assert_no_tokio();
        if let Peer::Tcp(addr) = peer {
            seen.lock().unwrap().insert(addr.port());
        }
        format!("{:?}", request.version())
    };
    Router::new().route("/version", get(page)).route("/echo", post(async |body: Bytes| body))
}

/// Serves in the background until the test's runtime ends; returns the certificate to trust.
fn start<V: HttpService>(service: V, is_encrypted: bool) -> (SocketAddr, TlsConnector) {
    let certificates = Certificates::self_signed(["localhost"]).unwrap();
    let connector = TlsConnector::with_roots([certificates.first().clone()]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let mut server = dapple::serve(listener, service).no_admission();
    if is_encrypted {
        server = server.tls(TlsAcceptor::with_alpn(certificates, ["h2", "http/1.1"]).unwrap());
    }
    drop(dapple::spawn(async move { server.await }));
    (addr, connector)
}

fn builder() -> Builder {
    let mut builder = Client::builder(Executor::new());
    builder.timer(Timer::new()).pool_timer(Timer::new()).pool_idle_timeout(Duration::from_secs(60));
    builder
}

/// Asks the same server again and again, until a connection has been used twice. With HTTP/2 that
/// is the first one; a connection of HTTP/1.1 is returned by a task, so the next request may not
/// find it.
async fn asks(client: &Client<Connector, Body>, origin: &str, version: Version, seen: &Seen) {
    for asked in 1.. {
        let request = Request::get(format!("{origin}/version")).body(Body::empty()).unwrap();
        let response = client.request(request).await.unwrap();
        assert_no_tokio();
        assert_eq!(response.version(), version);
        assert_eq!(read(response).await, (StatusCode::OK, format!("{version:?}").into()));
        let sent: Bytes = (0..300_000).map(|at| (at % 249) as u8).collect::<Vec<u8>>().into();
        let request = Request::post(format!("{origin}/echo")).body(Body::from(sent.clone())).unwrap();
        assert_eq!(read(client.request(request).await.unwrap()).await, (StatusCode::OK, sent));
        let connections = seen.lock().unwrap().len();
        assert!(connections == 1 || version != Version::HTTP_2, "of HTTP/2 one is enough");
        if connections < asked {
            return;
        }
    }
}

#[test]
fn hyper_utils_client_keeps_connections_of_http1() {
    run(2, async {
        let seen = Seen::default();
        let (addr, tls) = start(router(&seen), false);
        let client = builder().build(Connector::with_tls(tls));
        asks(&client, &format!("http://{addr}"), Version::HTTP_11, &seen).await;
    });
}

#[test]
fn hyper_utils_client_speaks_http2_by_prior_knowledge() {
    run(2, async {
        let seen = Seen::default();
        let (addr, tls) = start(router(&seen), false);
        let client = builder().http2_only(true).build(Connector::with_tls(tls));
        asks(&client, &format!("http://{addr}"), Version::HTTP_2, &seen).await;
    });
}

#[test]
fn hyper_utils_client_speaks_what_is_agreed_on_by_tls() {
    run(2, async {
        for (is_http1_only, version) in [(false, Version::HTTP_2), (true, Version::HTTP_11)] {
            let seen = Seen::default();
            let (addr, tls) = start(router(&seen), true);
            let connector = Connector::with_tls(tls);
            let connector = if is_http1_only { connector.http1_only() } else { connector };
            let client = builder().build(connector);
            asks(&client, &format!("https://localhost:{}", addr.port()), version, &seen).await;
        }
    });
}

#[test]
fn what_keeps_a_connection_from_being_made_is_said() {
    run(1, async {
        let (addr, tls) = start(router(&Seen::default()), true);
        let connector = Connector::with_tls(tls);
        let connect = async |connector: &Connector, uri: String| connector.connect(&uri.parse().unwrap()).await;
        let wrong = connect(&connector, format!("https://127.0.0.1:{}/", addr.port())).await.unwrap_err();
        assert!(matches!(wrong, ConnectError::Certificate { .. }), "{wrong}");
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let wrong = connect(&connector, format!("http://{nobody}/")).await.unwrap_err();
        assert!(matches!(wrong, ConnectError::Unreachable { .. }), "{wrong}");
        let picky = connector.clone().allow(|_, addr| !addr.ip().is_loopback());
        let wrong = connect(&picky, format!("http://{addr}/")).await.unwrap_err();
        assert!(matches!(wrong, ConnectError::Forbidden(_)), "{wrong}");
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let hasty = connector.connect_timeout(Duration::from_millis(50));
        let wrong = connect(&hasty, format!("https://{}/", silent.local_addr().unwrap())).await.unwrap_err();
        assert!(matches!(wrong, ConnectError::TimedOut { .. }), "{wrong}");
    });
}

/// tonic's own channel, by TLS and without, with calls at the same time and a stream that stays
/// open.
#[test]
fn tonics_channel_connects_by_this_connector() {
    run(2, async {
        for is_encrypted in [false, true] {
            let (reporter, health) = tonic_health::server::health_reporter();
            reporter.set_service_status("shop", ServingStatus::Serving).await;
            let (addr, tls) = start(health, is_encrypted);
            let scheme = if is_encrypted { "https" } else { "http" };
            let endpoint = Endpoint::from_shared(format!("{scheme}://localhost:{}", addr.port())).unwrap();
            let endpoint = endpoint.executor(Executor::new());
            let channel = endpoint.connect_with_connector(Connector::with_tls(tls)).await.unwrap();
            let client = HealthClient::new(channel);
            let shop = || HealthCheckRequest { service: "shop".to_owned() };
            let checks: Vec<_> = (0..20)
                .map(|_| {
                    let mut client = client.clone();
                    dapple::spawn(async move {
                        assert_no_tokio();
                        client.check(shop()).await.unwrap().into_inner().status()
                    })
                })
                .collect();
            for check in checks {
                assert_eq!(check.await.unwrap(), Told::Serving);
            }
            let mut client = client;
            let mut watch = client.watch(shop()).await.unwrap().into_inner();
            assert_eq!(watch.message().await.unwrap().unwrap().status(), Told::Serving);
            reporter.set_service_status("shop", ServingStatus::NotServing).await;
            assert_eq!(watch.message().await.unwrap().unwrap().status(), Told::NotServing);
            let unknown = HealthCheckRequest { service: "nobody".to_owned() };
            let refused: Status = client.check(unknown).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound);
        }
    });
}
