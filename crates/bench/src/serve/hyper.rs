//! The peer `hyper-tokio`: files in memory behind hyper on tokio, nothing else.

use crate::machine::end_with_parent;
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// Arguments of the hidden `hyper-tokio-server` command.
#[derive(clap::Args)]
pub(crate) struct HyperArgs {
    /// Port on the loopback address
    #[arg(long)]
    port: u16,
    /// Threads of the runtime
    #[arg(long)]
    workers: usize,
    /// The directory whose files are read at the start
    dir: PathBuf,
}

/// The files by request path. An `Arc` of a map that never changes, and bodies that are counted references: no lock, no copy.
#[derive(Clone)]
pub(crate) struct Files(Arc<HashMap<String, Bytes>>);

impl Files {
    /// Reads all files of a directory.
    pub(crate) fn read(dir: &Path) -> Result<Files> {
        let mut files = HashMap::new();
        for entry in std::fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let entry = entry?;
            let path = format!("/{}", entry.file_name().to_string_lossy());
            files.insert(path, Bytes::from(std::fs::read(entry.path())?));
        }
        Ok(Files(Arc::new(files)))
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let Some(body) = self.0.get(request.uri().path()) else {
            let mut response = Response::new(Full::new(Bytes::from_static(b"not found")));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        let mut response = Response::new(Full::new(body.clone()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
        response
    }
}

fn runtime(workers: usize) -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(workers).enable_io().build()?)
}

/// Serves until the process is ended.
pub(crate) fn run_hyper(args: &HyperArgs) -> Result<()> {
    end_with_parent()?;
    let files = Files::read(&args.dir)?;
    runtime(args.workers)?.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", args.port))
            .await
            .with_context(|| format!("cannot listen on port {}", args.port))?;
        // Accepting in a task of its own: the future given to `block_on` runs on this thread, outside the workers.
        tokio::spawn(accept(listener, files)).await?
    })
}

async fn accept(listener: TcpListener, files: Files) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(connection(stream, files.clone()));
    }
}

async fn connection(stream: TcpStream, files: Files) {
    // A client that goes away is no matter of the server's; its errors show on the client's side.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let response = files.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A server in a thread of this process; yields its port.
#[cfg(test)]
pub(crate) fn serve_in_background(files: Files) -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    listener.set_nonblocking(true)?;
    std::thread::spawn(move || runtime(1)?.block_on(async { accept(TcpListener::from_std(listener)?, files).await }));
    Ok(port)
}
