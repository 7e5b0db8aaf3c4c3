//! Why `dapple sign` or its client does not run, in sentences that say what to do.

use std::io;

use super::digest::SecretError;
use super::log::OpenError;
use crate::server::ListenError;

/// Why the server or the client does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    #[error("{0}")]
    Misuse(String),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Log(#[from] OpenError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("{0}")]
    Graph(#[source] io::Error),
    #[error("the server cannot start: {0}")]
    Runtime(#[source] io::Error),
    #[error("{0}")]
    Client(String),
}

impl SignError {
    /// Whether the command line makes no sense.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(self, SignError::Misuse(_))
    }
}
