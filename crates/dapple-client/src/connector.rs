//! The connector for clients that bring their own pool.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_tls::TlsConnector;
use http::Uri;
use tower_service::Service;

use crate::connect::Dial;
use crate::{ConnectError, Origin, Stream};

/// Connects to the servers of `http` and `https` URIs, with Dapple's resolver, sockets, timers and
/// TLS: a `tower_service::Service<Uri>`, as hyper-util's client and tonic need it. Cheap to clone.
///
/// With `https` it offers HTTP/2 and HTTP/1.1, in this order (ALPN). It resumes TLS sessions of the
/// last 256 servers.
///
/// With the feature `hyper-util` it makes the connections of hyper-util's client, which then runs
/// without tokio's runtime:
///
/// ```
/// # #[cfg(feature = "hyper-util")] {
/// use dapple_client::Connector;
/// use dapple_io::hyper_rt::{Executor, Timer};
/// use hyper_util::client::legacy::Client;
///
/// let mut builder = Client::builder(Executor::new());
/// builder.timer(Timer::new()).pool_timer(Timer::new());
/// let client: Client<_, String> = builder.build(Connector::new()?);
/// # }
/// # Ok::<(), dapple_tls::Error>(())
/// ```
///
/// tonic's `Endpoint::from(uri).executor(Executor::new()).connect_with_connector(connector)` needs
/// no feature.
#[derive(Clone, Debug)]
pub struct Connector {
    dial: Dial,
    only_http1: bool,
}

impl Connector {
    /// Trusts Mozilla's certificates, as compiled in. A connection may take 10 seconds.
    ///
    /// # Errors
    ///
    /// As [`TlsConnector::new`].
    pub fn new() -> Result<Connector, dapple_tls::Error> {
        Ok(Connector::with_tls(TlsConnector::new()?))
    }

    /// As [`new`](Connector::new), with the certificates that `tls` trusts, and the client's own.
    /// Sets its ALPN.
    pub fn with_tls(tls: TlsConnector) -> Connector {
        Connector { dial: Dial::new(tls, CONNECT_MAX), only_http1: false }
    }

    /// Offers only HTTP/1.1 over TLS.
    #[must_use]
    pub fn http1_only(mut self) -> Connector {
        self.only_http1 = true;
        self
    }

    /// Sets the time limit for look-up, connecting and the TLS handshake together; 10 seconds by
    /// default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Connector {
        self.dial.limit = limit;
        self
    }

    /// Connects only to addresses for which `rule` returns true, given the requested host; others
    /// are [`ConnectError::Forbidden`]. The rule sees the same addresses that the connector then
    /// connects to, so a name cannot change between the two. It runs on a worker, and must not
    /// block.
    #[must_use]
    pub fn allow(mut self, rule: impl Fn(&Origin, SocketAddr) -> bool + Send + Sync + 'static) -> Connector {
        self.dial.rule = Some(Arc::new(rule));
        self
    }

    /// Connects to the server of this URI; ignores its path.
    ///
    /// # Cancel safety
    ///
    /// If dropped before it resolves, it ends all attempts and closes their descriptors.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub async fn connect(&self, uri: &Uri) -> Result<Stream, ConnectError> {
        self.dial.connect(&Origin::of(uri)?, self.only_http1).await
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = Connecting;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let connector = self.clone();
        Connecting(Box::pin(async move { connector.connect(&uri).await }))
    }
}

/// The future that [`Connector`] returns as a service.
///
/// # Cancel safety
///
/// If dropped before it resolves, it ends all attempts and closes their descriptors.
#[must_use = "futures do nothing unless polled"]
pub struct Connecting(Pin<Box<dyn Future<Output = Result<Stream, ConnectError>> + Send>>);

impl Future for Connecting {
    type Output = Result<Stream, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting").finish_non_exhaustive()
    }
}

const CONNECT_MAX: Duration = Duration::from_secs(10);
