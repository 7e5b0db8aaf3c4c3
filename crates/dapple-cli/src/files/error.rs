//! Errors that keep the file service from starting, with messages that say what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use dapple_files::{RulesError, UsersError};

use crate::observe::told::ToldError;
use crate::server::ListenError;

/// The reason why the service did not start, or a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum FilesError {
    #[error("the audit log {0:?} cannot be opened: {1}")]
    AuditLog(std::path::PathBuf, #[source] io::Error),
    #[error("cannot serve {0:?} ({1}); give a directory that this user can read")]
    Dir(PathBuf, #[source] io::Error),
    #[error(
        "the kernel has no openat2, without which a path could lead out of the directory; Linux 5.6 or newer has it"
    )]
    Openat2,
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Told(#[from] ToldError),
    #[error("--tls-cert and --tls-key belong together; give both, or neither")]
    TlsPair,
    #[error("--plain and --tls-cert exclude each other")]
    PlainAndTls,
    #[error(
        "--plain sends passwords and files readable by all; {0} is not this machine alone. Leave --plain out, or listen on 127.0.0.1"
    )]
    PlainToAll(SocketAddr),
    #[error(transparent)]
    Tls(#[from] dapple::tls::Error),
    #[error(transparent)]
    Certificate(#[from] dapple::tls::CertificateError),
    #[error("the state in {0:?} ({1}); give a directory that only this user can write: --state DIR")]
    State(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error("{0:?} has no user; `dapple files passwd {0:?} NAME` makes one")]
    NoUser(PathBuf),
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error("cannot read the password: {0}")]
    Password(#[source] io::Error),
    #[error("the two passwords differ; nothing was changed")]
    PasswordTwice,
    #[error("the runtime could not start: {0}")]
    Runtime(#[source] io::Error),
    #[error("the service ended: {0}")]
    Serve(#[source] io::Error),
}

impl FilesError {
    /// Whether the command line, or a file that it names, makes no sense.
    pub(crate) fn is_misuse(&self) -> bool {
        matches!(
            self,
            FilesError::TlsPair
                | FilesError::PlainAndTls
                | FilesError::PlainToAll(_)
                | FilesError::Users(_)
                | FilesError::NoUser(_)
                | FilesError::Rules(_)
                | FilesError::PasswordTwice
        )
    }
}
