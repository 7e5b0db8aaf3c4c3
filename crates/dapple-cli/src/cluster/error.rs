//! Errors of hosts and of changes to a cluster, with messages that say what to do.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use dapple_cluster::{ChangeError, HostError};

use crate::observe::told::ToldError;
use crate::server::ListenError;

/// The reason why a host did not start, or a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ClusterError {
    #[error("there is no cluster; give --join etcd://HOST:PORT[,HOST:PORT…]/PREFIX")]
    NoPlace,
    #[error("clients cannot connect to {0}; give the address by which they reach this host with --address")]
    Unspecified(IpAddr),
    #[error("neither XDG_STATE_HOME nor HOME is set; give a directory with --state DIR")]
    NoState,
    #[error("the page at {0} could be read by all that reach it; give --page-token, or listen on 127.0.0.1")]
    NoToken(SocketAddr),
    #[error("`--page-token` has no use without `--page HOST:PORT`, the address of the page that it protects")]
    TokenAlone,
    #[error("the services in {0}: {1}")]
    File(PathBuf, String),
    #[error("the least number, {0}, is above the largest, {1}")]
    Bounds(u32, u32),
    #[error("the host: {0}")]
    HostName(String),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Told(#[from] ToldError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Etcd(#[from] dapple::etcd::Error),
    #[error("the runtime could not start: {0}")]
    Runtime(#[source] io::Error),
}

impl ClusterError {
    /// Whether the command line, or a file that it names, makes no sense.
    pub(crate) fn is_misuse(&self) -> bool {
        use ClusterError::{Bounds, Change, File, Host, HostName, NoPlace, NoState, NoToken, TokenAlone, Unspecified};
        matches!(
            self,
            NoPlace
                | NoState
                | NoToken(_)
                | TokenAlone
                | Unspecified(_)
                | File(..)
                | Bounds(..)
                | HostName(_)
                | Host(HostError::Name(_))
                | Change(ChangeError::Invalid(..))
        )
    }
}
