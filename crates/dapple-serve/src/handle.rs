//! What one can ask of a server, and tell it, while it serves.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dapple_sched::Handle;
use dapple_sync::task::CancellationToken;
use dapple_tower::admission::AdmissionStats;

use crate::admission::Gate;
use crate::host::Admission as ConnectionAdmission;
use crate::metrics::{self, Metrics, exposition::Exposition};

/// Tells a server to end, and what it is doing. Cheap to clone.
///
/// ```
/// use std::convert::Infallible;
/// use dapple_io::net::TcpListener;
/// use dapple_serve::Body;
/// use http::{Request, Response};
///
/// #[derive(Clone)]
/// struct Hello;
///
/// impl tower_service::Service<Request<Body>> for Hello {
///     type Response = Response<String>;
///     type Error = Infallible;
///     type Future = std::future::Ready<Result<Response<String>, Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
///         std::task::Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, _: Request<Body>) -> Self::Future {
///         std::future::ready(Ok(Response::new("hello".to_owned())))
///     }
/// }
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let server = dapple_serve::serve(TcpListener::bind("127.0.0.1:0")?, Hello);
///     let handle = server.handle();
///     let task = dapple_sched::spawn(async move { server.await });
///     handle.stop();
///     task.await.expect("no panic")?;
///     assert_eq!((handle.connections(), handle.requests()), (0, 0));
///     Ok(())
/// })
/// # as std::io::Result<()>;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ServeHandle {
    pub(crate) stop: CancellationToken,
    pub(crate) connections: Arc<ConnectionAdmission>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) gate: Arc<OnceLock<Arc<Gate>>>,
    pub(crate) numbers: Arc<OnceLock<Arc<Numbers>>>,
}

/// What is counted of requests while the server runs.
pub(crate) struct Numbers {
    pub(crate) requests: Metrics,
    /// The runtime that serves.
    pub(crate) runtime: Handle,
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}

impl ServeHandle {
    /// Begins the end, as [`with_graceful_shutdown`](crate::Serve::with_graceful_shutdown) has it. Once more changes nothing.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Connections that are open, those included that speak another protocol by now.
    pub fn connections(&self) -> usize {
        self.connections.open()
    }

    /// The most connections at a time.
    pub fn connections_max(&self) -> usize {
        self.connections.max()
    }

    /// Requests whose head has come, since the beginning.
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Connections that were turned away, as there was no room, since the beginning.
    pub fn turned_away(&self) -> u64 {
        self.connections.refused_by_reason().map(|(_, count)| count).sum()
    }

    /// What admission has done, and how it stands; `None` without admission, and until the server is first polled.
    pub fn admission(&self) -> Option<AdmissionStats> {
        Some(self.gate.get()?.admission()?.stats())
    }

    /// All that is counted, as a page that Prometheus reads (text format 0.0.4): requests by method and class of status, their durations and
    /// bytes, connections, admission, the runtime's workers, and the process. Empty until the server is first polled.
    ///
    /// Reads some files of `/proc`, which takes some 50 us. To be served at a path of the program's own choice, for those that may read it:
    ///
    /// ```
    /// # async fn page(handle: dapple_serve::ServeHandle) -> http::Response<String> {
    /// let mut response = http::Response::new(handle.metrics());
    /// let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    /// response.headers_mut().insert("content-type", kind);
    /// # response
    /// # }
    /// ```
    pub fn metrics(&self) -> String {
        let Some(numbers) = self.numbers.get() else { return String::new() };
        let mut out = Exposition::new();
        numbers.requests.write(&mut out);
        metrics::connections::write(&self.connections, &mut out);
        if let Some(stats) = self.admission() {
            metrics::admission::write(&stats, &mut out);
        }
        metrics::workers::write(&numbers.runtime, &mut out);
        metrics::process::write(&mut out);
        out.finish()
    }

    /// Connections that were cut at the end, as they took longer than [`shutdown_timeout`](crate::Serve::shutdown_timeout).
    pub fn cut(&self) -> u64 {
        self.counts.cut.load(Ordering::Relaxed)
    }
}

/// See [`ServeHandle`].
#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: AtomicU64,
    cut: AtomicU64,
}

impl Counts {
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cut(&self, count: usize) {
        self.cut.fetch_add(count as u64, Ordering::Relaxed);
    }
}
