//! tonic's health service over HTTP/2, on one port with an axum route over HTTP/1.1.

use axum::{body::Body, routing::get};
use dapple::hyper_rt::Executor;
use dapple::net::{TcpListener, TcpStream};
use hyper::{Request, Uri, client};
use hyper_util::{server::conn::auto, service::TowerToHyperService};
use tonic::service::Routes;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

type Problem = Box<dyn std::error::Error + Send + Sync>;

#[dapple::main]
async fn main() -> Result<(), Problem> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("shop", tonic_health::ServingStatus::Serving).await;
    let router = Routes::new(health).into_axum_router().route("/", get(async || "a page"));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    dapple::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (http, service) = (auto::Builder::new(Executor::new()), TowerToHyperService::new(router.clone()));
            dapple::spawn(async move { http.serve_connection(stream, service).await });
        }
    });

    let (channel, connection) =
        client::conn::http2::handshake(Executor::new(), TcpStream::connect(address).await?).await?;
    dapple::spawn(connection);
    let send = tower::service_fn(move |request| channel.clone().send_request(request));
    let mut client = HealthClient::with_origin(send, Uri::try_from(format!("http://{address}"))?);
    let reply = client.check(HealthCheckRequest { service: "shop".to_owned() }).await?.into_inner();
    let (mut page, connection) = client::conn::http1::handshake(TcpStream::connect(address).await?).await?;
    dapple::spawn(connection);
    let request = Request::get("/").header("host", "localhost").body(Body::empty())?;
    let status = page.send_request(request).await?.status();
    assert!(reply.status == 1 && status == 200, "{reply:?}, {status}");
    println!("gRPC says {:?}, HTTP/1.1 says {status}, on one port", reply.status());
    Ok(())
}
