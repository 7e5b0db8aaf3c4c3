//! The place of a cluster: which etcd, and below which prefix.

use std::fmt;
use std::str::FromStr;

use dapple_etcd::{Etcd, EtcdUrl, EtcdUrlError};

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
pub struct Place(EtcdUrl);

impl Place {
    /// A client of its etcd.
    pub fn client(&self) -> Etcd {
        self.0.client()
    }

    /// Where clients find the replicas that are ready, for a `Discovery` of `dapple-remote`.
    pub fn found_url(&self) -> String {
        format!("{self}/found")
    }

    /// The prefix of all keys of this kind.
    pub(crate) fn of(&self, kind: &str) -> String {
        format!("{}{kind}/", self.0.root())
    }

    /// The prefix of all keys.
    pub(crate) fn root(&self) -> String {
        self.0.root()
    }

    /// One key of a kind.
    pub(crate) fn key(&self, kind: &str, name: &str) -> String {
        format!("{}{kind}/{name}", self.0.root())
    }

    /// The key by which clients find a replica of a stage.
    pub(crate) fn found_key(&self, stage: &str, address: &str) -> String {
        let stage = stage.replace('%', "%25").replace('/', "%2F");
        format!("{}found/{stage}/{address}", self.0.root())
    }
}

impl FromStr for Place {
    type Err = EtcdUrlError;

    fn from_str(text: &str) -> Result<Place, EtcdUrlError> {
        text.parse().map(Place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
