//! The place of a cluster: which etcd, and below which prefix.

use std::fmt;
use std::str::FromStr;

use dapple_etcd::{Error, Etcd};

/// Where a cluster keeps its records: `etcd://HOST:PORT[,HOST:PORT…]/PREFIX`.
///
/// ```
/// use dapple_cluster::Place;
///
/// let place: Place = "etcd://10.0.0.9:2379,10.0.0.10:2379/shop".parse().expect("a place");
/// assert_eq!(place.found_url(), "etcd://10.0.0.9:2379,10.0.0.10:2379/shop/found");
/// assert!("10.0.0.9:2379".parse::<Place>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    endpoints: Vec<String>,
    prefix: String,
}

impl Place {
    /// A client of its etcd.
    ///
    /// # Errors
    ///
    /// An endpoint is no address.
    pub fn client(&self) -> Result<Etcd, Error> {
        Etcd::new(self.endpoints.clone())
    }

    /// Where clients find the replicas that are ready, for a `Discovery` of `dapple-remote`.
    pub fn found_url(&self) -> String {
        format!("{self}/found")
    }

    /// The prefix of all keys of this kind.
    pub(crate) fn of(&self, kind: &str) -> String {
        format!("/{}/{kind}/", self.prefix)
    }

    /// The prefix of all keys.
    pub(crate) fn root(&self) -> String {
        format!("/{}/", self.prefix)
    }

    /// One key of a kind.
    pub(crate) fn key(&self, kind: &str, name: &str) -> String {
        format!("/{}/{kind}/{name}", self.prefix)
    }

    /// The key by which clients find a replica of a stage.
    pub(crate) fn found_key(&self, stage: &str, address: &str) -> String {
        let stage = stage.replace('%', "%25").replace('/', "%2F");
        format!("/{}/found/{stage}/{address}", self.prefix)
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let wrong = || format!("{text:?} is no place of a cluster; write etcd://HOST:PORT[,HOST:PORT…]/PREFIX");
        let (endpoints, prefix) =
            text.strip_prefix("etcd://").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        let endpoints: Vec<String> = endpoints.split(',').map(|one| one.trim().to_owned()).collect();
        let prefix = prefix.trim_matches('/').to_owned();
        let is_bad = |one: &String| {
            one.rsplit_once(':').is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err())
        };
        if prefix.is_empty() || prefix.contains(char::is_control) || endpoints.iter().any(is_bad) {
            return Err(wrong());
        }
        let place = Place { endpoints, prefix };
        place.client().map_err(|error| format!("{text:?}: {error}"))?;
        Ok(place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.endpoints.join(","), self.prefix)
    }
}
