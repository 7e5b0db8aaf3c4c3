//! What carries a connection.

use std::time::Duration;

use dapple::net::TcpStream;
use hyper::rt::{Read, Write};

/// A stream of bytes both ways.
pub(crate) trait Transport: Read + Write + Send + Unpin + 'static {
    /// Ends the connection in a way that the other side cannot take for the end of a reply.
    fn abort(self);
}

impl Transport for TcpStream {
    fn abort(self) {
        // With nothing to linger for, closing resets the connection. If the kernel refuses, it is closed all the same.
        let _ = rustix::net::sockopt::set_socket_linger(&self, Some(Duration::ZERO));
    }
}
