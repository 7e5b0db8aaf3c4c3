//! The peers in Rust: plain hyper on tokio, and with tower's means against overload.
//!
//! In line, a handler runs in the task of its connection; in a pool, on separate threads, one per
//! worker. Tower's limit counts started requests, and its load shedding refuses those above the
//! limit.

use super::Setting;
use super::burn::burn;
use crate::machine::{end_with_parent, open_files_max};
use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Protocol, Socket, Type};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tower::limit::ConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;
use tower::load_shed::error::Overloaded;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

/// Arguments of the hidden `overload-hyper` command.
#[derive(clap::Args)]
pub(crate) struct HyperArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    workers: usize,
    /// Use tower's limit and load shedding
    #[arg(long)]
    limit: Option<usize>,
    /// Run handlers in a pool
    #[arg(long)]
    pool: bool,
}

/// The options on top of plain hyper.
#[derive(Clone, Copy, Default)]
pub(super) struct Variant {
    pub(super) limit: Option<usize>,
    pub(super) pool: bool,
}

pub(super) fn command(setting: &Setting, port: u16, variant: Variant) -> Result<Command> {
    let mut command = setting.command(&std::env::current_exe()?)?;
    command.arg("overload-hyper").arg("--port").arg(port.to_string());
    command.arg("--workers").arg(setting.workers.to_string());
    if let Some(limit) = variant.limit {
        command.arg("--limit").arg(limit.to_string());
    }
    if variant.pool {
        command.arg("--pool");
    }
    Ok(command)
}

/// Serves until the process is ended.
pub(crate) fn run_hyper(args: &HyperArgs) -> Result<()> {
    end_with_parent()?;
    open_files_max();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(args.workers).max_blocking_threads(args.workers).enable_io().build()?;
    let handler = handler(args.limit, args.pool);
    let listener = listen(args.port)?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        // Accepts in a separate task: the future given to `block_on` runs on this thread, outside
        // the workers.
        tokio::spawn(accept(listener, handler)).await?
    })
}

/// Answers a request: takes microseconds, and returns nothing.
type Handler = BoxCloneSyncService<u32, (), BoxError>;

fn handler(limit: Option<usize>, pool: bool) -> Handler {
    let work = tower::service_fn(move |us: u32| async move {
        let cost = Duration::from_micros(u64::from(us));
        if pool {
            tokio::task::spawn_blocking(move || burn(cost)).await?;
        } else {
            burn(cost);
        }
        Ok::<(), BoxError>(())
    });
    match limit {
        None => BoxCloneSyncService::new(work),
        Some(limit) => {
            let layers = ServiceBuilder::new().layer(LoadShedLayer::new()).layer(ConcurrencyLimitLayer::new(limit));
            BoxCloneSyncService::new(layers.service(work))
        }
    }
}

/// Listens with as long a backlog as web servers have.
fn listen(port: u16) -> Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
        .with_context(|| format!("cannot listen on port {port}"))?;
    socket.listen(4_096)?;
    Ok(socket.into())
}

async fn accept(listener: TcpListener, handler: Handler) -> Result<()> {
    loop {
        // Without a free descriptor, waiting clients are accepted later.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        tokio::spawn(connection(stream, handler.clone()));
    }
}

async fn connection(stream: TcpStream, handler: Handler) {
    // If a client has gone, that is no error of the server; its errors show on the client's side.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (handler, us) = (handler.clone(), cost_us(request.uri().query()));
        async move { Ok::<_, Infallible>(answer(handler, us).await) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(handler: Handler, us: Option<u32>) -> Response<Full<Bytes>> {
    let Some(us) = us else { return reply(StatusCode::BAD_REQUEST, "write /?us=5000\n".to_owned()) };
    match handler.oneshot(us).await {
        Ok(()) => reply(StatusCode::OK, format!("{us}\n")),
        Err(error) if error.is::<Overloaded>() => {
            let mut refusal = reply(StatusCode::SERVICE_UNAVAILABLE, "overloaded\n".to_owned());
            refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            refusal
        }
        Err(error) => reply(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn reply(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
}

/// The `us=5000` of a query, ten seconds at most.
fn cost_us(query: Option<&str>) -> Option<u32> {
    let us = query?.split('&').find_map(|part| part.strip_prefix("us="))?.parse().ok()?;
    (us <= COST_US_MAX).then_some(us)
}

const COST_US_MAX: u32 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read() {
        assert_eq!(cost_us(Some("us=5000")), Some(5_000));
        assert_eq!(cost_us(Some("a=b&us=1")), Some(1));
        for wrong in [None, Some(""), Some("us="), Some("us=-1"), Some("us=10000001")] {
            assert_eq!(cost_us(wrong), None, "{wrong:?}");
        }
    }
}
