//! Errors that keep the proxy from starting, with messages that say what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::config::Problems;
use crate::observe::told::ToldError;
use crate::server::ListenError;

/// The reason why the proxy did not start.
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
        (`--allow-clients 0.0.0.0/0` allows all of the internet; leave `--addr` out to serve this machine only)"
    )]
    Open(SocketAddr),
    #[error("{0}")]
    Misuse(String),
    #[error("cannot use the certificates of --upstream-ca in {0:?} ({1}); give a file in PEM format")]
    Authorities(PathBuf, String),
    #[error(transparent)]
    Tls(#[from] dapple::tls::Error),
    #[error("the runtime could not start: {0}")]
    Runtime(#[source] io::Error),
}

impl ProxyError {
    /// Whether the options make no sense, as opposed to other obstacles.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(self, ProxyError::Config(_) | ProxyError::Misuse(_))
    }
}
