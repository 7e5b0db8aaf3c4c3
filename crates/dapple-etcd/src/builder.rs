//! The builder of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dapple_client::{Client, Origin};

use crate::auth::Auth;
use crate::call::Inner;
use crate::client::Etcd;
use crate::error::{Error, Reason};

/// A builder of an [`Etcd`].
#[derive(Clone)]
pub struct EtcdBuilder {
    endpoints: Vec<String>,
    #[cfg(feature = "tls")]
    tls: Option<dapple_tls::TlsConnector>,
    user: Option<(String, String)>,
    timeout: Duration,
    connect_timeout: Duration,
    connections_max: usize,
    waiting_max: usize,
    reply_bytes_max: usize,
}

impl EtcdBuilder {
    pub(crate) fn new<A: Into<String>>(endpoints: impl IntoIterator<Item = A>) -> EtcdBuilder {
        EtcdBuilder {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            #[cfg(feature = "tls")]
            tls: None,
            user: None,
            timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(1),
            connections_max: 64,
            waiting_max: 1_000,
            reply_bytes_max: 64 << 20,
        }
    }

    /// Takes the trusted certificates, and the client's own, from this; if not set, the client trusts those that Mozilla trusts. It matters for
    /// endpoints of `https`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: dapple_tls::TlsConnector) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The user that the client asks for. Without TLS the password travels as it is.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// How long a call may take, all attempts included; 5 s if not set. [`Etcd::timeout`] changes it later.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// How long a connection to one member may take to begin; 1 s if not set.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Connections to one member, 1 at least; 64 if not set. Further calls wait, 1,000 at each member; more are refused as
    /// [`Error::Unavailable`]. Watches do not count.
    #[must_use]
    pub fn connections_per_member(mut self, max: usize) -> Self {
        self.connections_max = max;
        self
    }

    /// The longest reply that is read, in bytes of JSON; 64 MiB if not set.
    #[must_use]
    pub fn reply_bytes_max(mut self, max: usize) -> Self {
        self.reply_bytes_max = max;
        self
    }

    /// Makes the client. It connects when it is first used.
    ///
    /// # Errors
    ///
    /// [`Error::NotApplied`]: there is no endpoint, or one of them is no address.
    pub fn build(self) -> Result<Etcd, Error> {
        let endpoints = self.endpoints.iter().map(|text| endpoint(text)).collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(Error::not_applied(Reason::Malformed, format!("there is no endpoint; {WRITE}")));
        }
        let calls = self.http(self.connections_max)?;
        let streams = self.http(WATCHES_MAX)?;
        let auth = self.user.map(|(name, password)| Auth::new(name, password));
        Ok(Etcd { inner: Arc::new(Inner::new(endpoints, calls, streams, auth)), timeout: self.timeout })
    }

    fn http(&self, connections_max: usize) -> Result<Client, Error> {
        let mut builder = Client::builder()
            .connect_timeout(self.connect_timeout)
            .head_timeout(Duration::MAX)
            .read_timeout(Duration::MAX)
            .connections_per_host(connections_max)
            .waiting_per_host(self.waiting_max)
            .tcp_keep_alive(KEEP_ALIVE)
            .redirects_max(0)
            .body_bytes_max(self.reply_bytes_max);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            builder = builder.tls(tls.clone());
        }
        builder = builder.idle_timeout(IDLE_MAX);
        builder.build().map_err(|error| Error::not_applied(Reason::Malformed, error.to_string()))
    }
}

impl fmt::Debug for EtcdBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("EtcdBuilder").field("endpoints", &self.endpoints).field("user", &user).finish_non_exhaustive()
    }
}

/// `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`, as the beginning of a URL.
pub(crate) fn endpoint(text: &str) -> Result<String, Error> {
    let wrong = || {
        let text = text.escape_debug();
        Error::not_applied(Reason::Malformed, format!("`{text}` is no endpoint of etcd; {WRITE}"))
    };
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = url.strip_suffix('/').unwrap_or(&url).to_owned();
    let uri: http::Uri = url.parse().map_err(|_| wrong())?;
    let has_port = uri.authority().is_some_and(|authority| authority.port_u16().is_some());
    let is_plain = uri.path() == "/" && uri.query().is_none() && !url.contains('@');
    match Origin::of(&uri) {
        Ok(_) if is_plain && has_port => Ok(url),
        _ => Err(wrong()),
    }
}

const WRITE: &str = "write HOST:PORT, http://HOST:PORT or https://HOST:PORT";

/// A connection is watched by the kernel, so that a watch notices a machine that vanished.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
const IDLE_MAX: Duration = Duration::from_secs(60);

/// Connections to one member for watches.
const WATCHES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::endpoint;
    use crate::Etcd;

    #[test]
    fn endpoints_have_a_host_and_a_port() {
        for (text, url) in [
            ("127.0.0.1:2379", "http://127.0.0.1:2379"),
            ("http://a:1/", "http://a:1"),
            ("https://[::1]:2379", "https://[::1]:2379"),
        ] {
            assert_eq!(endpoint(text).unwrap(), url);
        }
        for wrong in ["", "a", "a:0", "ftp://a:1", "http://a:1/x", "http://u:p@a:1", "a b:1", "a:99999", "a:1?x"] {
            let error = endpoint(wrong).unwrap_err().to_string();
            assert!(error.contains("write HOST:PORT"), "{wrong}: {error}");
        }
        assert!(Etcd::builder(Vec::<String>::new()).build().is_err());
    }

    #[test]
    fn a_password_is_not_shown() {
        let builder = Etcd::builder(["a:1"]).user("ann", "secret");
        let shown = format!("{builder:?} {:?}", builder.clone().build());
        assert!(shown.contains("ann") && !shown.contains("secret"), "{shown}");
    }
}
