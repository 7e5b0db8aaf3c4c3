//! Errors that keep the server from starting, with messages that say what to do.

use std::io;
#[cfg(feature = "http3")]
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::config::Problems;
use crate::observe::told::ToldError;
use crate::server::ListenError;

/// The reason why the server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ServeError {
    #[error("{0}")]
    Config(#[from] Problems),
    #[error("there is no directory {0:?}; give the path of the directory to serve, such as `dapple serve site`")]
    DirMissing(PathBuf),
    #[error("{0:?} is a file; give the directory that holds it: `dapple serve {1:?}`")]
    DirIsFile(PathBuf, PathBuf),
    #[error("cannot read the directory {0:?} ({1}); check its permissions")]
    Dir(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Told(#[from] ToldError),
    #[error("there are {0} of --tls-cert and {1} of --tls-key; give a key for each certificate, in the same order")]
    TlsPairs(usize, usize),
    #[error("--http-redirect has no encrypted address to send clients to; give --tls-cert and --tls-key too")]
    RedirectNowhere,
    #[error("this program was built without HTTP/3; leave --http3 out, or build it with `--features http3`")]
    Http3Missing,
    #[error("--http3 needs a certificate; give --tls-cert and --tls-key too")]
    Http3Plain,
    #[cfg(feature = "http3")]
    #[error("HTTP/3 cannot use the UDP port of {0} ({1}); free it, choose another address, or leave --http3 out")]
    Http3(SocketAddr, #[source] io::Error),
    #[error(transparent)]
    Tls(#[from] dapple::tls::Error),
    #[error("the runtime could not start: {0}")]
    Runtime(#[source] io::Error),
}

impl ServeError {
    /// The reason why `dir` cannot be served.
    pub(crate) fn dir(dir: &Path, error: io::Error) -> ServeError {
        let path = dir.to_path_buf();
        match error.kind() {
            io::ErrorKind::NotFound => ServeError::DirMissing(path),
            io::ErrorKind::NotADirectory => {
                let parent = dir.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
                ServeError::DirIsFile(path, parent.to_path_buf())
            }
            _ => ServeError::Dir(path, error),
        }
    }
}
