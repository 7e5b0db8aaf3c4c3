//! What carries a connection.

use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use dapple::net::TcpStream;
use dapple::tls::TlsStream;
use hyper::rt::{Read, Write};

/// A stream of bytes both ways.
pub(crate) trait Transport: Read + Write + Send + Unpin + 'static {
    /// Ends the connection in a way that the other side cannot take for the end of a reply.
    fn abort(self);

    /// Says that the connection ends here as it should, where the transport has a word for it, and if that can be said at once.
    fn say_end(&mut self, _cx: &mut Context<'_>) {}
}

impl Transport for TcpStream {
    fn abort(self) {
        // With nothing to linger for, closing resets the connection. If the kernel refuses, it is closed all the same.
        let _ = rustix::net::sockopt::set_socket_linger(&self, Some(Duration::ZERO));
    }
}

impl Transport for TlsStream<TcpStream> {
    fn abort(self) {
        // Without the `close_notify` of TLS nobody can take it for the end; the reset frees what is on its way.
        let _ = rustix::net::sockopt::set_socket_linger(self.connection(), Some(Duration::ZERO));
    }

    fn say_end(&mut self, cx: &mut Context<'_>) {
        // A client that does not take it now learns of the end by the end.
        let _ = Pin::new(self).poll_shutdown(cx);
    }
}
