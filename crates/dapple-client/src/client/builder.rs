//! The builder of a client.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use dapple_tls::TlsConnector;
use dapple_tower::middleware::retry::Budget;
use http::HeaderValue;

use super::{Client, Error, Inner, Options};
use crate::Origin;
use crate::connect::{Dial, Rule};
use crate::upstream::{Config, Hosts, Limits, Spawn};

/// A builder of a [`Client`]. The limits that are not set are in the table there.
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    #[cfg(feature = "tls")]
    tls: Option<TlsConnector>,
    connect_timeout: Duration,
    tcp_keep_alive: Option<Duration>,
    rule: Option<Allowed>,
    limits: Limits,
    options: Options,
}

impl ClientBuilder {
    pub(super) fn new() -> ClientBuilder {
        let user_agent = HeaderValue::from_static(concat!("dapple/", env!("CARGO_PKG_VERSION")));
        ClientBuilder {
            #[cfg(feature = "tls")]
            tls: None,
            connect_timeout: Duration::from_secs(10),
            tcp_keep_alive: None,
            rule: None,
            limits: Limits {
                connections_max: 100,
                total_max: usize::MAX,
                idle_max: 32,
                idle_total_max: usize::MAX,
                idle_age_max: Duration::from_secs(60),
                waiting_max: usize::MAX,
                wait_max: None,
            },
            options: Options {
                head_timeout: Duration::from_secs(60),
                read_timeout: Duration::from_secs(60),
                timeout: None,
                redirects_max: 10,
                body_bytes_max: 16 << 20,
                http2_prior_knowledge: false,
                decompresses: cfg!(feature = "decompression"),
                user_agent,
            },
        }
    }

    /// Takes the trusted certificates, and the client's own, from this; if not set, the client trusts those that Mozilla trusts. The client
    /// sets ALPN.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: TlsConnector) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The limit of connections to one server, at least 1. Further requests wait in order until one is free.
    #[must_use]
    pub fn connections_per_host(mut self, max: usize) -> Self {
        self.limits.connections_max = max.max(1);
        self
    }

    /// Requests that wait for a connection to one server; without a limit if not set. A further one fails with
    /// [`ConnectError::Busy`](crate::ConnectError::Busy).
    #[must_use]
    pub fn waiting_per_host(mut self, max: usize) -> Self {
        self.limits.waiting_max = max;
        self
    }

    /// Connects only to addresses that the rule allows; other requests fail with
    /// [`ConnectError::Forbidden`](crate::ConnectError::Forbidden). The rule sees the address that is then connected to, also of
    /// redirects: there is no second look-up. For clients that ask for URLs of others, such as proxies:
    ///
    /// ```
    /// use dapple_client::Client;
    /// use dapple_client::relay::AddressKind;
    ///
    /// let client = Client::builder().allow(|_, address| AddressKind::of(address.ip()).is_none()).build()?;
    /// # let runtime = dapple_io::runtime_builder().workers(1).build().unwrap();
    /// let refused = runtime.block_on(client.get("http://127.0.0.1/")).unwrap_err();
    /// assert_eq!(refused.to_string(), "connections to 127.0.0.1 are not allowed here");
    /// # Ok::<(), dapple_client::Error>(())
    /// ```
    #[must_use]
    pub fn allow(mut self, rule: impl Fn(&Origin, SocketAddr) -> bool + Send + Sync + 'static) -> Self {
        self.rule = Some(Allowed(Arc::new(rule)));
        self
    }

    /// Has the kernel probe a server that was silent for this long (at least 1 s). If the server
    /// has vanished, the connection then ends some time later, even in the middle of a response.
    #[must_use]
    pub fn tcp_keep_alive(mut self, idle: Duration) -> Self {
        self.tcp_keep_alive = Some(idle.clamp(KEEP_ALIVE_MIN, KEEP_ALIVE_MAX));
        self
    }

    /// The most idle HTTP/1.1 connections to one server; 0 keeps none.
    #[must_use]
    pub fn idle_per_host(mut self, max: usize) -> Self {
        self.limits.idle_max = max;
        self
    }

    /// How long a connection is kept without a request.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.limits.idle_age_max = limit;
        self
    }

    /// How long look-up, connecting and the handshake of TLS may take together.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit.min(FOREVER);
        self
    }

    /// How long the head of a response may take, from the beginning of the request on its connection.
    #[must_use]
    pub fn head_timeout(mut self, limit: Duration) -> Self {
        self.options.head_timeout = limit.min(FOREVER);
        self
    }

    /// The longest pause between two pieces of a body.
    #[must_use]
    pub fn read_timeout(mut self, limit: Duration) -> Self {
        self.options.read_timeout = limit.min(FOREVER);
        self
    }

    /// How long the whole request may take: the wait for a connection, redirects, and the body of the response.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit.min(FOREVER));
        self
    }

    /// How many redirects the client follows; with 0 it returns the redirect itself.
    ///
    /// 301 and 302 turn `POST` into `GET`, 303 turns all methods but `HEAD` into `GET`; a changed
    /// method drops the body. 307 and 308 keep both. If a streamed body would have to be sent
    /// again, the client returns the redirect. It drops `Authorization`, `Cookie` and
    /// `Proxy-Authorization` when the scheme, host or port changes.
    #[must_use]
    pub fn redirects_max(mut self, max: usize) -> Self {
        self.options.redirects_max = max;
        self
    }

    /// The most bytes that [`Response::bytes`](super::Response::bytes),
    /// [`text`](super::Response::text) and `json` accept, after decompression.
    #[must_use]
    pub fn body_bytes_max(mut self, max: usize) -> Self {
        self.options.body_bytes_max = max;
        self
    }

    /// Uses HTTP/2 for `http` URLs too, without negotiation (h2c).
    #[must_use]
    pub fn http2_prior_knowledge(mut self, is_on: bool) -> Self {
        self.options.http2_prior_knowledge = is_on;
        self
    }

    /// Whether the client asks for gzip, Brotli and Zstandard, and decompresses; on if not set. A request with its own `Accept-Encoding` or
    /// `Range` gets its response unchanged.
    #[cfg(feature = "decompression")]
    #[must_use]
    pub fn decompress(mut self, is_on: bool) -> Self {
        self.options.decompresses = is_on;
        self
    }

    /// The value of `User-Agent`; `dapple/` and the version if not set.
    #[must_use]
    pub fn user_agent(mut self, value: HeaderValue) -> Self {
        self.options.user_agent = value;
        self
    }

    /// Makes the client. Only its requests need a runtime.
    ///
    /// # Errors
    ///
    /// Those of `TlsConnector::new`: none are known.
    pub fn build(self) -> Result<Client, Error> {
        #[cfg(feature = "tls")]
        let mut dial = match self.tls {
            Some(tls) => Dial::new(tls, self.connect_timeout),
            None => Dial::new(TlsConnector::new().map_err(Error::Tls)?, self.connect_timeout),
        };
        #[cfg(not(feature = "tls"))]
        let mut dial = Dial::plain(self.connect_timeout);
        dial.keep_alive = self.tcp_keep_alive;
        dial.rule = self.rule.map(|Allowed(rule)| rule);
        let config = Config::new(dial, self.limits, Spawn::Current);
        let (hosts, options, budget) = (Hosts::new(config), self.options, Budget::default());
        Ok(Client { inner: Arc::new(Inner { hosts, options, budget }) })
    }
}

/// A rule, which has no text of its own.
#[derive(Clone)]
struct Allowed(Rule);

impl fmt::Debug for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allowed(..)")
    }
}

/// The range that the kernel takes.
const KEEP_ALIVE_MIN: Duration = Duration::from_secs(1);
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(32_767);

/// The longest limit, a century: longer ones may be more than a clock can express.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
