//! rustls as server and as client: axum over HTTP/2, which the two sides agree on by ALPN.

use std::time::Duration;

use axum::{Router, body::Body, routing::get};
use dapple::hyper_rt::Executor;
use dapple::net::{TcpListener, TcpStream};
use dapple::tls::{Certificates, TlsAcceptor, TlsConnector};
use http_body_util::BodyExt;
use hyper::{Request, client, server};
use hyper_util::service::TowerToHyperService;

type Problem = Box<dyn std::error::Error + Send + Sync>;
const LIMIT: Duration = Duration::from_secs(10);

#[dapple::main]
async fn main() -> Result<(), Problem> {
    let certificates = Certificates::self_signed(["localhost"])?;
    let connector = TlsConnector::with_roots([certificates.first().clone()])?.alpn(["h2"]);
    let acceptor = TlsAcceptor::with_alpn(certificates, ["h2"])?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let service = TowerToHyperService::new(Router::new().route("/", get(async || "a secret")));
    dapple::spawn(async move {
        let stream = acceptor.accept(listener.accept().await?.0, LIMIT).await?;
        server::conn::http2::Builder::new(Executor::new()).serve_connection(stream, service).await?;
        Ok::<(), Problem>(())
    });

    let stream = connector.connect("localhost", TcpStream::connect(address).await?, LIMIT).await?;
    println!("{:?} with {:?}", stream.protocol_version(), stream.cipher_suite().suite());
    let (mut sender, connection) = client::conn::http2::handshake(Executor::new(), stream).await?;
    dapple::spawn(connection);
    let reply = sender.send_request(Request::get("https://localhost/").body(Body::empty())?).await?;
    let text = reply.into_body().collect().await?.to_bytes();
    assert_eq!(text, "a secret");
    println!("over HTTP/2: {}", str::from_utf8(&text)?);
    Ok(())
}
