//! An axum router behind `dapple::serve`: HTTP/1.1 and HTTP/2 with limits, admission control and a
//! staged end, in one line.

use axum::{Router, extract::Path, routing::get};
use dapple::net::{TcpListener, TcpStream};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client};

type Problem = Box<dyn std::error::Error + Send + Sync>;

async fn hello(Path(name): Path<String>) -> String {
    format!("Hello, {name}!")
}

#[dapple::main]
async fn main() -> Result<(), Problem> {
    let router = Router::new().route("/hello/{name}", get(hello));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = dapple::spawn(async move { dapple::serve(listener, router).await });

    let (mut sender, connection) = client::conn::http1::handshake(TcpStream::connect(address).await?).await?;
    dapple::spawn(connection);
    let request = Request::get("/hello/Ann").header("host", "localhost").body(Empty::<Bytes>::new())?;
    let text = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    assert_eq!(text, "Hello, Ann!");
    println!("axum answered through dapple::serve: {}", str::from_utf8(&text)?);
    server.abort();
    Ok(())
}
