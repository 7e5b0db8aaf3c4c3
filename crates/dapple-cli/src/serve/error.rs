//! What can keep the server from starting, in sentences that say what to do.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::port_owner::port_owner;
use crate::config::Problems;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ServeError {
    #[error("{0}")]
    Config(#[from] Problems),
    #[error("there is no directory {0:?}; give the path of the directory to serve, such as `dapple serve site`")]
    DirMissing(PathBuf),
    #[error("{0:?} is a file; give the directory that holds it: `dapple serve {1:?}`")]
    DirIsFile(PathBuf, PathBuf),
    #[error("the directory {0:?} cannot be read ({1}); check its permissions")]
    Dir(PathBuf, #[source] io::Error),
    #[error("there is no host {0:?} to listen on ({1}); give an address of this machine, or 0.0.0.0 for all of them")]
    HostUnknown(String, #[source] io::Error),
    #[error("{0} is not an address of this machine; give one that is, or 0.0.0.0 for all of them")]
    AddrElsewhere(SocketAddr),
    #[error("port {0} is taken{1}; stop that, or choose another with `--port N` (`--port 0` takes any free one)")]
    PortTaken(u16, String),
    #[error(
        "port {0} is reserved: ports below {1} need a privilege. Choose a higher one, such as `--port 8080`, or allow it \
         with `sudo setcap cap_net_bind_service=+ep $(command -v dapple)`"
    )]
    PortReserved(u16, u16),
    #[error("listening on {0} failed: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    #[error("the runtime could not start: {0}; a limit on threads or on open files may be too low (see `ulimit -a`)")]
    Runtime(#[source] io::Error),
}

impl ServeError {
    /// Why `dir` cannot be served.
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

    /// Why nobody can listen on `addr`.
    pub(crate) fn listen(addr: SocketAddr, error: io::Error) -> ServeError {
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                let owner = port_owner(addr.port()).map(|owner| format!(" by {owner}")).unwrap_or_default();
                ServeError::PortTaken(addr.port(), owner)
            }
            io::ErrorKind::AddrNotAvailable => ServeError::AddrElsewhere(addr),
            io::ErrorKind::PermissionDenied => ServeError::PortReserved(addr.port(), unreserved_port_min()),
            _ => ServeError::Listen(addr, error),
        }
    }
}

/// The lowest port that needs no privilege.
fn unreserved_port_min() -> u16 {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    setting.trim().parse().unwrap_or(1024)
}
