//! The error of a connection that could not be made.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// The reason why there is no connection to a server. Each message says what to look at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URI names no server.
    #[error("{0:?} names no server; write http://HOST/ or https://HOST/, with :PORT for another than 80 and 443")]
    Address(String),
    /// The name was not found.
    #[error("the name {host:?} was not found; look at its spelling, and at /etc/resolv.conf: {source}")]
    Unknown {
        /// The name.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// No name server answered in time.
    #[error("no name server answered for {host:?} in time")]
    LookupTimedOut {
        /// The name.
        host: String,
    },
    /// The program does not allow this address.
    #[error("connections to {0} are not allowed here")]
    Forbidden(IpAddr),
    /// No server accepted the connection.
    #[error("no connection to {host} port {port}; is a server running there? {source}")]
    Unreachable {
        /// The name, or the address.
        host: String,
        /// The port.
        port: u16,
        /// The kernel's error for the last address that was tried.
        source: io::Error,
    },
    /// The certificate of the server does not prove the name that was asked for.
    #[cfg(feature = "tls")]
    #[error(
        "the certificate of {host} is not accepted; trust its authority, or ask by the name that it is for: {source}"
    )]
    Certificate {
        /// The name that was asked for.
        host: String,
        /// The fault of the certificate.
        source: dapple_tls::Error,
    },
    /// Client and server did not agree on TLS.
    #[cfg(feature = "tls")]
    #[error("no TLS with {host}; does it speak HTTPS on this port? {source}")]
    Tls {
        /// The name that was asked for.
        host: String,
        /// The error of TLS.
        source: dapple_tls::Error,
    },
    /// The limit of requests to the server was reached.
    #[error("the limit of requests to {host} is reached; try again later")]
    Busy {
        /// The name, or the address.
        host: String,
    },
    /// The beginning of HTTP failed.
    #[error("HTTP with {host} did not begin: {source}")]
    Handshake {
        /// The name, or the address.
        host: String,
        /// Hyper's error.
        source: hyper::Error,
    },
    /// The connection needs HTTP/2, and the server chose HTTP/1.1.
    #[error("{host} does not speak HTTP/2; is this the right port?")]
    NotHttp2 {
        /// The name, or the address.
        host: String,
    },
    /// There was no connection within the limit, TLS included.
    #[error("no connection to {host} within {} ms", limit.as_millis())]
    TimedOut {
        /// The name, or the address.
        host: String,
        /// The limit.
        limit: Duration,
    },
}
