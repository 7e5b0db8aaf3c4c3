//! A tonic service behind `dapple::serve`, in one line: its health service, asked by a client of
//! tonic's.

use dapple::hyper_rt::Executor;
use dapple::net::{TcpListener, TcpStream};
use hyper::{Uri, client};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_health::{ServingStatus, server::health_reporter};

type Problem = Box<dyn std::error::Error + Send + Sync>;

#[dapple::main]
async fn main() -> Result<(), Problem> {
    let (reporter, health) = health_reporter();
    reporter.set_service_status("shop", ServingStatus::Serving).await;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = dapple::spawn(async move { dapple::serve(listener, health).await });

    let stream = TcpStream::connect(address).await?;
    let (channel, connection) = client::conn::http2::handshake(Executor::new(), stream).await?;
    dapple::spawn(connection);
    let send = tower::service_fn(move |request| channel.clone().send_request(request));
    let mut client = HealthClient::with_origin(send, Uri::try_from(format!("http://{address}"))?);
    let reply = client.check(HealthCheckRequest { service: "shop".to_owned() }).await?.into_inner();
    assert_eq!(reply.status, 1);
    println!("tonic answered through dapple::serve: {:?}", reply.status());
    server.abort();
    Ok(())
}
