//! The errors of `dapple store`.

use std::io;

use dapple::store::{Digest, Error, Refusal};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("there is no store in {0}: check the place; `dapple store create URL TABLE` makes a store")]
    NoStore(String),
    #[error("{0} is the store itself: a copy needs another place")]
    SamePlace(String),
    #[error("{0}")]
    Store(Error),
    #[error("there is no value for `{0}`")]
    NoValue(String),
    #[error("{0} is open to other machines: give a password (--password-file FILE), or listen on 127.0.0.1")]
    OpenToAll(std::net::SocketAddr),
    #[error("{0}")]
    Listen(#[from] dapple_serve::host::ListenError),
    #[error("the store has {now} partitions: split gives it more and merge fewer, not {wanted}")]
    Partitions { now: u32, wanted: u32 },
    #[error("table `{table}` has {before:?} in the old store and {after:?} in the new one: keep the old one")]
    Digest { table: String, before: Digest, after: Digest },
    #[error("key `{0}` of the bench does not have its value: do not use this store")]
    Wrong(String),
    #[error("{path}, line {line}: {problem}; {loaded} lines before it are loaded")]
    Line { path: String, line: u64, problem: String, loaded: u64 },
    #[error(
        "{path}: {error}; {loaded} lines are loaded, and at least {keys} keys of those behind them: when that is mended, load \
         the file again"
    )]
    Load { path: String, loaded: u64, keys: u64, error: Error },
    #[error("cannot read {path}: {error}")]
    Input { path: String, error: io::Error },
    #[error("cannot read {path}: {error}; {loaded} lines are loaded: when that is mended, load the file again")]
    Rest { path: String, loaded: u64, error: io::Error },
    #[error("cannot write the result: {0}")]
    Output(io::Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("{0}; give a certificate and its key in PEM format (--tls-cert FILE --tls-key FILE)")]
    Tls(dapple::tls::Error),
    #[error("{0}")]
    Told(#[from] crate::observe::told::ToldError),
}

impl CommandError {
    /// The runtime cannot do something that it can do except when it ends.
    pub(super) fn runtime(error: impl std::error::Error + Send + Sync + 'static) -> CommandError {
        CommandError::Runtime(io::Error::other(error))
    }

    /// Whether the command line makes no sense for this store.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(
            self,
            CommandError::NoStore(_)
                | CommandError::SamePlace(_)
                | CommandError::OpenToAll(_)
                | CommandError::Partitions { .. }
                | CommandError::Store(Error::NotApplied(Refusal::WrongKind { .. }))
        )
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        CommandError::Store(error)
    }
}
