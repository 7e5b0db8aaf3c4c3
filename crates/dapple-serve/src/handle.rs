//! A handle to a running server.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dapple_sched::Handle;
use dapple_sync::task::CancellationToken;
use dapple_tower::admission::AdmissionStats;

use crate::admission::Gate;
use crate::host::Admission as ConnectionAdmission;
use crate::metrics::{self, Metrics, exposition::Exposition};

/// Inspects a running server and can end it. Cheap to clone.
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

/// The request counters of a running server.
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
    /// Starts shutdown as [`with_graceful_shutdown`](crate::Serve::with_graceful_shutdown)
    /// describes. Further calls change nothing.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// The number of open connections, including upgraded ones.
    pub fn connections(&self) -> usize {
        self.connections.open()
    }

    /// The most connections at a time.
    pub fn connections_max(&self) -> usize {
        self.connections.max()
    }

    /// The number of request heads that have arrived since the start.
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// The number of connections turned away for lack of room since the start.
    pub fn turned_away(&self) -> u64 {
        self.connections.refused_by_reason().map(|(_, count)| count).sum()
    }

    /// The counters and state of admission control; `None` without it, and before the server is
    /// first polled.
    pub fn admission(&self) -> Option<AdmissionStats> {
        Some(self.gate.get()?.admission()?.stats())
    }

    /// Returns all metrics in Prometheus text format 0.0.4: requests by method and class of status,
    /// their durations and bytes, connections, admission, the runtime's workers, and the process.
    /// Empty before the server is first polled.
    ///
    /// Reads some files of `/proc`, which takes about 50 us. Serve it at a path of your choice, to
    /// clients that may read it:
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

    /// The number of connections cut at the end because they took longer than
    /// [`drain`](crate::Serve::drain).
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

/// The counters of a runtime's workers and of the process, as a page that Prometheus reads (text format 0.0.4). It is for programs
/// without a server of their own; [`ServeHandle::metrics`] has the same, and the server's numbers.
///
/// Reads some files of `/proc`, which takes some 50 us.
///
/// ```
/// let runtime = dapple_io::runtime_builder().workers(2).build()?;
/// let page = dapple_serve::runtime_metrics(runtime.handle());
/// assert!(page.contains("dapple_worker_callbacks_total{worker=\"1\"}"), "{page}");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn runtime_metrics(runtime: &Handle) -> String {
    let mut out = Exposition::new();
    metrics::workers::write(runtime, &mut out);
    metrics::process::write(&mut out);
    out.finish()
}
