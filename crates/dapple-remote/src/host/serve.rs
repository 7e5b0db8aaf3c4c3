//! Serves with `dapple-serve`, and ends.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_io::net::Listener;
use dapple_serve::{Body, serve as serve_http};
use http::Request;
use tower_service::Service;

use super::answer::{Reply, answer, full};
use super::{Host, Shared};

/// How a host has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The number of connections closed while requests on them still ran at the end of the time
    /// limit.
    pub connections_cut: usize,
}

/// See [`Host::serve`].
pub(super) async fn serve(host: Host, listener: impl Listener) -> io::Result<Report> {
    let Host { shared, stopper, .. } = host;
    let limits = shared.limits.clone();
    let server = serve_http(listener, Answers(shared))
        .no_admission()
        .body_timeout(None)
        .body_max_bytes(None)
        .connections_max(limits.connections_max)
        .head_max_bytes(limits.head_max_bytes)
        .head_timeout(limits.head_timeout)
        .idle_timeout(limits.idle_timeout)
        .streams_max(limits.streams_max)
        .resets_max(RESETS_MAX)
        .stream_window_bytes(WINDOW)
        .on_full(move || full(limits.connections_max))
        .shares_listener()
        .leave_timeout(LEAVE.min(limits.drain / 2))
        .last_reply_timeout(Duration::ZERO)
        .drain(limits.drain);
    #[cfg(feature = "tls")]
    let server = match host.tls {
        Some(tls) => server.tls(tls),
        None => server,
    };
    let (handle, stopping) = (server.handle(), stopper.clone());
    let served = server.with_graceful_shutdown(async move { stopping.stopped().await }).await;
    // Even if the socket has failed, clients that wait for the end get the answer.
    stopper.stop();
    served.map(|()| Report { connections_cut: usize::try_from(handle.cut()).unwrap_or(usize::MAX) })
}

/// The host as a service.
#[derive(Clone)]
struct Answers(Arc<Shared>);

impl Service<Request<Body>> for Answers {
    type Response = Reply;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = answer(self.0.clone(), request);
        Box::pin(async move { Ok(answer.await) })
    }
}

/// Senders reset streams when they no longer need the reply, which is not an attack.
const RESETS_MAX: usize = 1024;

const WINDOW: u32 = 256 << 10;

/// How long clients have to leave by themselves.
const LEAVE: Duration = Duration::from_secs(1);
