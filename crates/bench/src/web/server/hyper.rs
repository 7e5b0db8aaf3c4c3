//! The peer `hyper`: hyper on tokio with files in memory, as a user would write a file server.

use super::Setting;
use super::cache::Cache;
use super::certificate::Certificate;
use crate::machine::end_with_parent;
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Protocol, Socket, Type};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Arguments of the hidden `web-hyper` command.
#[derive(clap::Args)]
pub(crate) struct HyperArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    workers: usize,
    #[arg(long)]
    cache_mb: usize,
    #[arg(long, requires = "key")]
    cert: Option<PathBuf>,
    #[arg(long)]
    key: Option<PathBuf>,
    dir: PathBuf,
}

pub(super) fn command(setting: &Setting, port: u16, certificate: Option<&Certificate>) -> Result<Command> {
    let mut command = setting.command(&std::env::current_exe()?)?;
    command.arg("web-hyper").arg("--port").arg(port.to_string()).arg("--workers").arg(setting.workers.to_string());
    command.arg("--cache-mb").arg(setting.cache_mb.to_string());
    if let Some(certificate) = certificate {
        command.arg("--cert").arg(&certificate.chain).arg("--key").arg(&certificate.key);
    }
    command.arg(setting.site.root());
    Ok(command)
}

/// Serves until the process is ended.
pub(crate) fn run_hyper(args: &HyperArgs) -> Result<()> {
    end_with_parent()?;
    let cache = Cache::new(args.dir.clone(), args.cache_mb << 20);
    let tls = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Some(acceptor(cert, key)?),
        _ => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(args.workers).enable_io().build()?;
    let listener = listen(args.port)?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        // Accepts in a separate task: the future given to `block_on` runs on this thread, outside
        // the workers.
        tokio::spawn(accept(listener, cache, tls)).await?
    })
}

/// Listens with as long a backlog as the others have.
fn listen(port: u16) -> Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
        .with_context(|| format!("cannot listen on port {port}"))?;
    socket.listen(4_096)?;
    Ok(socket.into())
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, cache: Cache, tls: Option<TlsAcceptor>) -> Result<()> {
    loop {
        // Without a free descriptor, waiting clients are accepted later.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        tokio::spawn(connection(stream, cache.clone(), tls.clone()));
    }
}

async fn connection(stream: TcpStream, cache: Cache, tls: Option<TlsAcceptor>) {
    // If a client has gone, that is no error of the server; its errors show on the client's side.
    let _ = stream.set_nodelay(true);
    match tls {
        None => serve(stream, cache).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, cache).await;
            }
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, cache: Cache) {
    let service = service_fn(move |request| {
        let cache = cache.clone();
        async move { Ok::<_, Infallible>(answer(&cache, &request).await) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer<B>(cache: &Cache, request: &Request<B>) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let body = match cache.find(path) {
        Some(body) => Some(body),
        None => {
            let (cache, path) = (cache.clone(), path.to_owned());
            tokio::task::spawn_blocking(move || cache.read(&path)).await.ok().flatten()
        }
    };
    let Some(body) = body else {
        let mut response = Response::new(Full::new(Bytes::from_static(b"not found")));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html"));
    response
}
