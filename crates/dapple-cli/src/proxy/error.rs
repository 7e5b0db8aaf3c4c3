//! What can keep the proxy from starting, in sentences that say what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::Problems;
use crate::observe::told::ToldError;
use crate::server::ListenError;

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ProxyError {
    #[error("{0}")]
    Config(#[from] Problems),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Told(#[from] ToldError),
    #[error(
        "on {0} other machines could use this proxy, so say which may: `--allow-clients 192.168.1.0/24`, for example \
         (`--allow-clients 0.0.0.0/0` would be all of the internet; leave `--addr` out to serve this machine only)"
    )]
    Open(SocketAddr),
    #[error("{0}")]
    Misuse(String),
    #[error("the certificates of --upstream-ca in {0:?} cannot be used ({1}); give a file in PEM format")]
    Authorities(PathBuf, String),
    #[error(transparent)]
    Tls(#[from] dapple::tls::Error),
    #[error("the runtime could not start: {0}")]
    Runtime(#[source] io::Error),
}

impl ProxyError {
    /// Whether options make no sense, rather than that something else is in the way.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(self, ProxyError::Config(_) | ProxyError::Misuse(_))
    }
}
