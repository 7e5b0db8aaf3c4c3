//! An axum router on Dapple: served by hyper, asked by a client of hyper's. No tokio runtime
//! anywhere.

use axum::{Router, body::Body, extract::Path, routing::get};
use dapple::hyper_rt::Timer;
use dapple::net::{TcpListener, TcpStream};
use http_body_util::BodyExt;
use hyper::{Request, client, server};
use hyper_util::service::TowerToHyperService;

type Problem = Box<dyn std::error::Error + Send + Sync>;

async fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!")
}

#[dapple::main]
async fn main() -> Result<(), Problem> {
    let router = Router::new().route("/hello/{name}", get(hello));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    dapple::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(router.clone());
            // A task has a color of its own, so connections are served in parallel, on every core.
            let mut http = server::conn::http1::Builder::new();
            dapple::spawn(http.timer(Timer::new()).serve_connection(stream, service));
        }
    });

    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = client::conn::http1::handshake(stream).await?;
    dapple::spawn(connection);
    let request = Request::get("/hello/Ann").header("host", "localhost").body(Body::empty())?;
    let text = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    assert_eq!(text, "Hello, Ann!");
    println!("axum answered through hyper: {}", str::from_utf8(&text)?);
    Ok(())
}
