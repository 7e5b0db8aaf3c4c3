//! The hosts of a stage, and their changes.

mod dns;
mod etcd;
mod members;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub(crate) use self::etcd::EtcdFolder;
pub use self::etcd::Registration;
pub use self::members::{Member, Members};

use dapple_etcd::{EtcdUrl, EtcdUrlError};

use super::peer::parse_address;

/// The source of a stage's hosts: a list, a DNS name, or etcd.
///
/// Written as text, for a flag or an environment variable:
///
/// | text | hosts |
/// |---|---|
/// | `10.0.0.1:7000,10.0.0.2:7000` | these; `http://` may stand before each |
/// | `dns:stages.example:7000` | all addresses of that name, IPv4 and IPv6, looked up every 5 s, or when the answers expire |
/// | `srv:_sign._tcp.stages.example` | those that its SRV records name, of the least priority number, looked up again every 5 s |
/// | `etcd://10.0.0.9:2379,10.0.0.10:2379/dapple/shop` | those that have [registered](Registration) themselves under that prefix; changes arrive at once |
///
/// If a look-up fails, the last list stays: the hosts go on without a directory.
///
/// ```
/// use dapple_remote::{Discovery, Member};
/// use std::future::poll_fn;
///
/// let runtime = dapple_io::runtime_builder().workers(1).build()?;
/// runtime.block_on(async {
///     let discovery: Discovery = "10.0.0.1:7000,10.0.0.2:7000".parse().expect("a list");
///     let mut members = discovery.members("sign");
///     assert_eq!(members.next().await, Some(Member::Joined("10.0.0.1:7000".to_owned())));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    List(Vec<String>),
    Dns { host: String, port: u16, every: Duration },
    Srv { name: String, every: Duration },
    Etcd(EtcdFolder),
}

/// The text is not a valid discovery; the message says what is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiscoveryError(String);

impl Discovery {
    /// These hosts, each `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// One of them is not an address, or there is none.
    pub fn list<A: Into<String>>(addresses: impl IntoIterator<Item = A>) -> Result<Discovery, DiscoveryError> {
        let addresses: Vec<String> = addresses.into_iter().map(Into::into).collect();
        for address in &addresses {
            parse_address(address).map_err(DiscoveryError)?;
        }
        match addresses.is_empty() {
            true => Err(DiscoveryError("there has to be one host at least".to_owned())),
            false => Ok(Discovery(Kind::List(addresses))),
        }
    }

    /// All addresses of a name, looked up every 5 s; see [`every`](Self::every). The runtime's
    /// resolver obeys the lifetime of answers, and returns them until then.
    ///
    /// # Errors
    ///
    /// The name is invalid, or the port is 0.
    pub fn dns(host: &str, port: u16) -> Result<Discovery, DiscoveryError> {
        let address = format!("{host}:{port}");
        parse_address(&address).map_err(DiscoveryError)?;
        Ok(Discovery(Kind::Dns { host: host.to_owned(), port, every: LOOK_UP_EVERY }))
    }

    /// The hosts in the SRV records at a name such as `_sign._tcp.stages.example` (RFC 2782),
    /// looked up every 5 s; see [`every`](Self::every). Only records of the lowest priority number
    /// are hosts. Their weights have no effect, because a balancer measures the hosts. Needs the
    /// feature `dns`.
    ///
    /// # Errors
    ///
    /// The name is invalid.
    pub fn srv(name: &str) -> Result<Discovery, DiscoveryError> {
        let is_name = parse_address(&format!("{name}:1")).is_ok() && name.contains('.') && !name.contains('[');
        match is_name {
            true => Ok(Discovery(Kind::Srv { name: name.to_owned(), every: LOOK_UP_EVERY })),
            false => Err(DiscoveryError(format!("`{name}` is no name of a service; write srv:_SERVICE._tcp.DOMAIN"))),
        }
    }

    /// Hosts registered in etcd under a prefix. `endpoints` are the addresses of its members, each
    /// `HOST:PORT`; they are tried one after the other.
    ///
    /// # Errors
    ///
    /// An endpoint is not an address, there is none, or the prefix is empty.
    pub fn etcd<A: Into<String>>(
        endpoints: impl IntoIterator<Item = A>,
        prefix: &str,
    ) -> Result<Discovery, DiscoveryError> {
        let url = EtcdUrl::new(endpoints, prefix).map_err(|error| DiscoveryError(error.to_string()))?;
        Ok(Discovery(Kind::Etcd(EtcdFolder(url))))
    }

    /// Sets how often a DNS name is looked up; at least 100 ms. It has no effect on others.
    #[must_use]
    pub fn every(mut self, period: Duration) -> Discovery {
        if let Kind::Dns { every, .. } | Kind::Srv { every, .. } = &mut self.0 {
            *every = period.max(LOOK_UP_EVERY_MIN);
        }
        self
    }

    /// The hosts of this stage, as they join and leave from now on. A list and a name do not
    /// distinguish stages: each of their hosts must have it. A task follows the changes; it ends
    /// when the [`Members`] are dropped.
    ///
    /// # Panics
    ///
    /// If no runtime is current.
    pub fn members(&self, stage: &str) -> Members {
        let (publisher, members) = members::channel();
        match self.0.clone() {
            Kind::List(addresses) => {
                let _detached = dapple_sched::spawn(async move {
                    let mut publisher = publisher;
                    publisher.set(addresses).await;
                    publisher.forsaken().await;
                });
            }
            Kind::Dns { host, port, every } => {
                let _detached =
                    dapple_sched::spawn(dns::look_up(host, move |host| dns::hosts(host, port), every, publisher));
            }
            Kind::Srv { name, every } => {
                let _detached = dapple_sched::spawn(dns::look_up(name, dns::targets, every, publisher));
            }
            Kind::Etcd(place) => {
                let _detached = dapple_sched::spawn(etcd::follow(place, stage.to_owned(), publisher));
            }
        }
        members
    }

    /// Its place in etcd, if it is there: hosts can register themselves.
    pub(crate) fn place(&self) -> Option<&EtcdFolder> {
        match &self.0 {
            Kind::Etcd(place) => Some(place),
            _ => None,
        }
    }
}

impl FromStr for Discovery {
    type Err = DiscoveryError;

    fn from_str(text: &str) -> Result<Discovery, DiscoveryError> {
        let split = |list: &str| list.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>();
        if let Some(rest) = text.strip_prefix("dns:") {
            let wrong = || DiscoveryError(format!("`{text}` has no host and port; write dns:NAME:PORT"));
            let (host, port) = rest.trim_start_matches('/').rsplit_once(':').ok_or_else(wrong)?;
            return Discovery::dns(host, port.parse().map_err(|_| wrong())?);
        }
        if let Some(name) = text.strip_prefix("srv:") {
            return Discovery::srv(name.trim_start_matches('/'));
        }
        if text.starts_with("etcd://") {
            let url = text.parse().map_err(|error: EtcdUrlError| DiscoveryError(error.to_string()))?;
            return Ok(Discovery(Kind::Etcd(EtcdFolder(url))));
        }
        let plain = |address: String| match address.strip_prefix("http://") {
            Some(rest) => rest.strip_suffix('/').unwrap_or(rest).to_owned(),
            None => address,
        };
        let addresses: Vec<String> = split(text).into_iter().map(plain).collect();
        if addresses.iter().any(|address| address.contains("://")) {
            let known = "HOST:PORT[,HOST:PORT…], dns:NAME:PORT, srv:_SERVICE._tcp.DOMAIN and etcd://HOST:PORT/PREFIX";
            return Err(DiscoveryError(format!("`{text}` is none of {known}")));
        }
        Discovery::list(addresses)
    }
}

impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::List(addresses) => f.write_str(&addresses.join(",")),
            Kind::Dns { host, port, .. } => write!(f, "dns:{host}:{port}"),
            Kind::Srv { name, .. } => write!(f, "srv:{name}"),
            Kind::Etcd(place) => write!(f, "{place}"),
        }
    }
}

/// DNS servers and caches bear this interval. Balancers notice a dead host earlier themselves.
const LOOK_UP_EVERY: Duration = Duration::from_secs(5);
const LOOK_UP_EVERY_MIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::Discovery;

    #[test]
    fn texts_survive_parsing() {
        for text in
            ["a:1", "a:1,[::1]:2", "dns:stages.example:7000", "srv:_a._tcp.b", "etcd://a:2379,b:2379/dapple/shop"]
        {
            assert_eq!(text.parse::<Discovery>().unwrap().to_string(), text);
        }
        assert_eq!(" a:1 , b:2".parse::<Discovery>().unwrap().to_string(), "a:1,b:2");
        assert_eq!("http://a:1,http://b:2/".parse::<Discovery>().unwrap().to_string(), "a:1,b:2");
        assert_eq!("dns://a:1".parse::<Discovery>().unwrap().to_string(), "dns:a:1");
        assert_eq!("etcd://a:1//x/".parse::<Discovery>().unwrap().to_string(), "etcd://a:1/x");
    }

    #[test]
    fn invalid_texts_are_errors() {
        for text in [
            "",
            "a",
            "a:1,",
            "dns:a",
            "dns::1",
            "dns:a:0",
            "srv:",
            "srv:a",
            "srv:_a._tcp.b:1",
            "srv:a b.c",
            "etcd://a:1",
            "etcd:///x",
            "etcd://a:1/",
            "https://a:1",
            "http://a:1/x",
        ] {
            let error = text.parse::<Discovery>().expect_err(text).to_string();
            assert!(error.contains("write") || error.contains("none of"), "{text}: {error}");
        }
    }
}
