//! The origin: it answers after some milliseconds, and counts requests.

use super::objects::{Object, Objects, all};
use anyhow::{Context, Result};
use dapple::Runtime;
use dapple::net::{TcpListener, TcpStream};
use dapple::time::sleep;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A running origin, on a worker of this process.
pub(super) struct Origin {
    pub(super) port: u16,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Shared {
    bytes: Arc<[u8]>,
    objects: Vec<Object>,
    requests: AtomicU64,
}

impl Origin {
    pub(super) fn start(objects: &Objects) -> Result<Origin> {
        let runtime = dapple::builder().workers(1).build().context("cannot start a runtime")?;
        let shared = Arc::new(Shared { bytes: objects.bytes()?, objects: all(), requests: AtomicU64::new(0) });
        let entered = runtime.enter();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        drop(entered);
        let serving = shared.clone();
        drop(runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(dapple::spawn(serve(stream, serving.clone())));
            }
        }));
        Ok(Origin { port, shared, _runtime: runtime })
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.shared.requests.load(Relaxed)
    }
}

/// Serves one connection. An error ends it; the proxy sees that.
async fn serve(stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let (mut buf, mut len) = ([0; 4_096], 0);
    loop {
        while !buf[..len].ends_with(b"\r\n\r\n") {
            match stream.read(&mut buf[len..]).await? {
                0 => return Ok(()),
                count => len += count,
            }
        }
        shared.requests.fetch_add(1, Relaxed);
        let path = buf[..len].split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let index = std::str::from_utf8(path).ok().and_then(|path| path.strip_prefix('/')?.parse::<usize>().ok());
        let object = index.and_then(|index| shared.objects.get(index)).ok_or(io::ErrorKind::NotFound)?;
        sleep(DELAY).await;
        let body = &shared.bytes[object.start..object.start + object.len];
        let head = format!("HTTP/1.1 200 OK\r\ncache-control: max-age=3600\r\ncontent-length: {}\r\n\r\n", body.len());
        let sent = stream.write_vectored(&[IoSlice::new(head.as_bytes()), IoSlice::new(body)]).await?;
        match sent.checked_sub(head.len()) {
            Some(of_body) => stream.write_all(&body[of_body..]).await?,
            None => {
                stream.write_all(&head.as_bytes()[sent..]).await?;
                stream.write_all(body).await?;
            }
        }
        len = 0;
    }
}

/// The delay of each answer.
const DELAY: Duration = Duration::from_millis(5);
