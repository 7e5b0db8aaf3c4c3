//! Errors that keep a program from listening, with messages that say what to do.

use std::io;
use std::net::SocketAddr;

use super::port_owner::port_owner;

/// The reason why listening failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    #[error(
        "cannot find the host {0:?} to listen on ({1}); give an address of this machine, or 0.0.0.0 for all of \
        them"
    )]
    HostUnknown(String, #[source] io::Error),
    #[error("{0} is not an address of this machine; give one that is, or 0.0.0.0 for all of them")]
    AddrElsewhere(SocketAddr),
    #[error(
        "port {port} is taken{owner}; stop that program, or choose another port with `{option}` (0 takes any \
        free port)"
    )]
    PortTaken { port: u16, owner: String, option: &'static str },
    #[error(
        "port {port} is reserved: ports below {min} need a privilege. Choose a higher one, such as 8080, with `{option}`, \
         or allow it with `sudo setcap cap_net_bind_service=+ep $(command -v dapple)`"
    )]
    PortReserved { port: u16, min: u16, option: &'static str },
    #[error("listening on {0} failed: {1}")]
    Failed(SocketAddr, #[source] io::Error),
    #[error("cannot use the sockets of the service manager: {0}")]
    PassedOn(#[source] io::Error),
    #[error("{0} of the service manager is not a listening TCP socket; a socket unit says `ListenStream=`")]
    PassedOnOther(String),
    #[error("cannot take over the sockets of the previous process: {0}")]
    Predecessor(#[source] io::Error),
}

impl ListenError {
    /// The reason why listening on `addr`, given by `option`, failed.
    pub(super) fn at(addr: SocketAddr, option: &'static str, error: io::Error) -> ListenError {
        let port = addr.port();
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                let owner = port_owner(port).map(|owner| format!(" by {owner}")).unwrap_or_default();
                ListenError::PortTaken { port, owner, option }
            }
            io::ErrorKind::AddrNotAvailable => ListenError::AddrElsewhere(addr),
            io::ErrorKind::PermissionDenied => ListenError::PortReserved { port, min: unreserved_port_min(), option },
            _ => ListenError::Failed(addr, error),
        }
    }
}

/// The lowest port that needs no privilege.
fn unreserved_port_min() -> u16 {
    let setting = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    setting.trim().parse().unwrap_or(1024)
}
