//! The proxy of `web_proxy.rs` as tasks: the same steps, written top to bottom.
//!
//! ```text
//! cargo run --example web_proxy_async [PORT]
//! ```
//!
//! # One core, and all of them
//!
//! | | in `main` |
//! |---|---|
//! | one core | `drop(Color::DEFAULT.spawn(serve(client)));` |
//! | every core | `drop(dapple::spawn(serve(client)));` |
//!
//! `dapple::spawn` gives each connection's task its own color. The two tasks that relay one
//! connection take its color, so they never overlap and share their counter without a lock.
//!
//! One request per connection; addresses with `http://` only.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::time::Duration;

use dapple::net::{ReadHalf, TcpListener, TcpStream, WriteHalf, tcp_connect};
use dapple::time::timeout;
use dapple::{Color, Colored};
use request::{HEAD_MAX, head_len, parse_request};

#[path = "shared/request.rs"]
mod request;

#[dapple::main]
async fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "7005".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let addr = listener.local_addr()?;
    println!("web_proxy_async listens on {addr}; try: curl -x http://{addr} http://example.com/");
    loop {
        let (client, _peer) = listener.accept().await?;
        drop(dapple::spawn(serve(client))); // on one core: Color::DEFAULT.spawn
    }
}

/// One connection. An error ends it and is not reported.
async fn serve(client: TcpStream) -> io::Result<()> {
    let (received, len) = match timeout(HEAD_TIME_MAX, read_head(&client)).await?? {
        (received, Some(len)) => (received, len),
        (_, None) => return refuse(&client, "400 Bad Request", "the head of the request is too long").await,
    };
    let request = match parse_request(&received[..len]) {
        Ok(request) => request,
        Err(why) => return refuse(&client, "400 Bad Request", why).await,
    };
    let server = match timeout(CONNECT_TIME_MAX, tcp_connect(&request.host, request.port)).await {
        Ok(Ok(server)) => server,
        Ok(Err(error)) => return refuse(&client, "502 Bad Gateway", &format!("no connection: {error}")).await,
        Err(_) => return refuse(&client, "502 Bad Gateway", "no connection in time").await,
    };
    // Bytes after the head belong to the body.
    relay(client, server, [&request.head, &received[len..]].concat()).await
}

/// Reads until the head is complete; `None` in place of its length if it is too long.
async fn read_head(client: &TcpStream) -> io::Result<(Vec<u8>, Option<usize>)> {
    let mut received = Vec::new();
    while received.len() < HEAD_MAX {
        let checked = received.len();
        let mut chunk = [0; 4096];
        match client.read(&mut chunk).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&chunk[..count]),
        }
        if let Some(len) = head_len(&received, checked) {
            return Ok((received, Some(len)));
        }
    }
    Ok((received, None))
}

/// Moves bytes in both directions until the answer has ended, or no bytes move any more.
async fn relay(client: TcpStream, server: TcpStream, request: Vec<u8>) -> io::Result<()> {
    // In this task's color, so that counting is never contended.
    let color = Color::current();
    let moved = Colored::with_color(0, &color);
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut up = color.spawn(copy(request, client_read, server_write, moved.clone()));
    let mut down = color.spawn(copy(Vec::new(), server_read, client_write, moved.clone()));
    loop {
        let before = moved.with(|moved| *moved).await;
        if timeout(IDLE_TIME_MAX, &mut down).await.is_ok() {
            // The answer has been sent. Closing waits for the client to hang up, or the end could
            // be lost.
            let _ = timeout(HANG_UP_TIME_MAX, &mut up).await;
            break;
        }
        if moved.with(|moved| *moved == before).await {
            break;
        }
    }
    up.abort();
    down.abort();
    Ok(())
}

/// Moves bytes in one direction. It reads only when all its earlier data is written, so a slow
/// reader slows the other side down. Dropping the writing half passes the end of the stream on.
async fn copy(
    mut pending: Vec<u8>,
    from: ReadHalf<TcpStream>,
    to: WriteHalf<TcpStream>,
    moved: Colored<u64>,
) -> io::Result<()> {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let mut rest = &pending[..];
        while !rest.is_empty() {
            let count = to.write(rest).await?;
            rest = &rest[count..];
            moved.with(|moved| *moved += 1).await;
        }
        let count = from.read(&mut chunk).await?;
        if count == 0 {
            return Ok(());
        }
        pending.clear();
        pending.extend_from_slice(&chunk[..count]);
    }
}

/// Answers with an error, and waits for the client to hang up: closing with unread data would reset
/// the connection, and the answer could be lost.
async fn refuse(client: &TcpStream, status: &str, why: &str) -> io::Result<()> {
    let len = why.len() + 1;
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len}\r\n");
    let answer = async {
        client.write_all(format!("{head}Connection: close\r\n\r\n{why}\n").as_bytes()).await?;
        client.shutdown(Shutdown::Write)?;
        while client.read(&mut [0; 4096]).await? > 0 {}
        Ok(())
    };
    timeout(HANG_UP_TIME_MAX, answer).await?
}

/// How long a client may take to send the head of its request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// How long it may take to find and reach the server.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long no bytes may move; twice that at worst.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

/// How long a client that has its answer may take to hang up.
const HANG_UP_TIME_MAX: Duration = Duration::from_secs(1);
