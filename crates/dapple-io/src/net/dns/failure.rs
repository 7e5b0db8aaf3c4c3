//! The reason why a name has no addresses.

use std::fmt;
use std::io;
use std::sync::Arc;

use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// There is no such name.
    NoName,
    /// The name exists, and has no address of this kind.
    NoAddress,
    /// No server answered in time.
    TimedOut,
    /// Another error: the server's, or the reason why the server could not be asked.
    Other(Arc<str>),
    /// The kernel refused the query.
    Io(io::ErrorKind, Arc<str>),
    /// The runtime ended first.
    ShutDown,
}

impl Failure {
    pub(super) fn from_net(error: &NetError) -> Failure {
        match error {
            NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NXDomain => {
                Failure::NoName
            }
            NetError::Dns(DnsError::NoRecordsFound(_)) => Failure::NoAddress,
            NetError::Timeout => Failure::TimedOut,
            NetError::Io(error) if error.kind() == io::ErrorKind::TimedOut => Failure::TimedOut,
            NetError::Io(error) => Failure::Io(error.kind(), error.to_string().into()),
            NetError::Dns(DnsError::ResponseCode(code)) => Failure::Other(format!("the server said {code}").into()),
            other => Failure::Other(other.to_string().into()),
        }
    }

    /// Whether a responsible server has answered that there is none.
    pub(super) fn says_no(&self) -> bool {
        matches!(self, Failure::NoName | Failure::NoAddress)
    }

    /// Whether to skip the other names of the search list, as the C library does, because each
    /// would take as long.
    pub(super) fn ends_search(&self) -> bool {
        matches!(self, Failure::TimedOut | Failure::Io(..) | Failure::ShutDown)
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Failure::NoName | Failure::NoAddress => io::ErrorKind::NotFound,
            Failure::TimedOut => io::ErrorKind::TimedOut,
            Failure::Io(kind, _) => *kind,
            Failure::Other(_) | Failure::ShutDown => io::ErrorKind::Other,
        }
    }

    /// The error for the program that asked for `name`.
    pub(super) fn error(&self, name: &str, servers: &str) -> io::Error {
        io::Error::new(self.kind(), format!("cannot look up `{name}`: {self} (name servers: {servers})"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoName => f.write_str("there is no such host"),
            Failure::NoAddress => f.write_str("the host has no address"),
            Failure::TimedOut => f.write_str("no name server answered in time"),
            Failure::Other(text) | Failure::Io(_, text) => f.write_str(text),
            Failure::ShutDown => f.write_str("the Dapple runtime has shut down"),
        }
    }
}
