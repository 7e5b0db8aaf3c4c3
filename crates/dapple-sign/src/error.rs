//! Errors that keep `dapple sign` or its client from running, with messages that say what to do.

use std::io;

use super::digest::SecretError;
use super::log::OpenError;
use dapple_serve::host::ListenError;

/// The reason why the server or the client does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignError {
    /// The options make no sense.
    #[error("{0}")]
    Misuse(String),
    /// A secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// The server cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The graph cannot be written.
    #[error("{0}")]
    Graph(#[source] io::Error),
    /// Threads or descriptors are missing.
    #[error("the server cannot start: {0}")]
    Runtime(#[source] io::Error),
    /// The client has found an error.
    #[error("{0}")]
    Client(String),
}

impl SignError {
    /// Whether the command line makes no sense.
    pub fn is_misuse(&self) -> bool {
        matches!(self, SignError::Misuse(_))
    }
}
