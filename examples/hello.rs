//! Greets every visitor. Each connection is a task with its own color, so that they are served in
//! parallel.
//!
//! ```text
//! cargo run --example hello [PORT]
//! ```

use std::io;
use std::time::Duration;

use dapple::net::{TcpListener, TcpStream};
use dapple::{Color, Handle, time};

#[dapple::main]
async fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "7001".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    let addr = listener.local_addr()?;
    println!("hello listens on {addr}; try: curl http://{addr}/");
    loop {
        let (stream, _peer) = listener.accept().await?;
        // Dropping the handle detaches the task. A slow or vanished visitor ends only its own.
        drop(dapple::spawn(time::timeout(VISIT_MAX, greet(stream))));
    }
}

/// Reads until the empty line that ends a request, and answers.
async fn greet(stream: TcpStream) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") && request.len() < REQUEST_MAX {
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk).await?;
        if count == 0 {
            break;
        }
        request.extend_from_slice(&chunk[..count]);
    }
    let worker = Handle::current().worker_index().unwrap_or_default();
    let greeting = format!("Hello from color {}, on worker {worker}.\n", Color::current());
    let len = greeting.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n");
    stream.write_all(format!("{head}{greeting}").as_bytes()).await
}

/// The limit of a request in bytes.
const REQUEST_MAX: usize = 16 * 1024;

/// How long a visit may take.
const VISIT_MAX: Duration = Duration::from_secs(10);
