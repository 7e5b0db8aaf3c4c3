//! Which etcd, and which keys: `PREFIX/STAGE/ADDRESS`.

use std::fmt;

use dapple_etcd::Etcd;

use crate::peer::parse_address;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdFolder {
    endpoints: Vec<String>,
    prefix: String,
}

impl EtcdFolder {
    pub(crate) fn new(endpoints: Vec<String>, prefix: &str) -> Result<EtcdFolder, String> {
        for endpoint in &endpoints {
            parse_address(endpoint)?;
        }
        let prefix = prefix.trim_matches('/').to_owned();
        if endpoints.is_empty() || prefix.is_empty() {
            return Err("etcd needs an endpoint and a prefix; write etcd://HOST:PORT[,HOST:PORT…]/PREFIX".to_owned());
        }
        Ok(EtcdFolder { endpoints, prefix })
    }

    /// A client of this etcd.
    pub(super) fn client(&self) -> Etcd {
        Etcd::new(self.endpoints.clone()).expect("the endpoints were checked")
    }

    /// The prefix of a stage's keys.
    pub(super) fn of_stage(&self, stage: &str) -> String {
        // A name may have slashes; its keys must not mix with those of another stage.
        format!("/{}/{}/", self.prefix, stage.replace('%', "%25").replace('/', "%2F"))
    }

    pub(super) fn key(&self, stage: &str, address: &str) -> String {
        self.of_stage(stage) + address
    }
}

impl fmt::Display for EtcdFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.endpoints.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::EtcdFolder;

    #[test]
    fn one_stage_is_no_part_of_another() {
        let place = EtcdFolder::new(vec!["a:1".to_owned()], "/x/").unwrap();
        assert_eq!(place.key("echo", "b:1"), "/x/echo/b:1");
        assert!(!place.key("echo/more", "b:1").starts_with(&place.of_stage("echo")));
        assert_ne!(place.of_stage("a/b"), place.of_stage("a%2Fb"));
    }
}
