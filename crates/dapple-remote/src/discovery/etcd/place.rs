//! Which etcd, and which keys: `PREFIX/STAGE/ADDRESS`.

use std::fmt;

use dapple_etcd::{Etcd, EtcdUrl};

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdFolder(pub(in crate::discovery) EtcdUrl);

impl EtcdFolder {
    /// A client of this etcd.
    pub(super) fn client(&self) -> Etcd {
        self.0.client()
    }

    /// The prefix of a stage's keys.
    pub(super) fn of_stage(&self, stage: &str) -> String {
        // A name may have slashes; its keys must not mix with those of another stage.
        self.0.root() + &stage.replace('%', "%25").replace('/', "%2F") + "/"
    }

    pub(super) fn key(&self, stage: &str, address: &str) -> String {
        self.of_stage(stage) + address
    }
}

impl fmt::Display for EtcdFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::EtcdFolder;

    #[test]
    fn one_stage_is_no_part_of_another() {
        let place = EtcdFolder("etcd://a:1//x/".parse().unwrap());
        assert_eq!(place.key("echo", "b:1"), "/x/echo/b:1");
        assert!(!place.key("echo/more", "b:1").starts_with(&place.of_stage("echo")));
        assert_ne!(place.of_stage("a/b"), place.of_stage("a%2Fb"));
    }
}
