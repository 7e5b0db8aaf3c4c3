//! A connection, encrypted or not.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_io::net::TcpStream;
#[cfg(feature = "tls")]
use dapple_tls::TlsStream;
use hyper::rt::{Read, ReadBufCursor, Write};

/// A connection to a server, with TLS or without, for hyper.
#[derive(Debug)]
pub struct Stream(Kind);

#[derive(Debug)]
enum Kind {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Encrypted(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream) -> Stream {
        Stream(Kind::Plain(stream))
    }

    #[cfg(feature = "tls")]
    pub(crate) fn encrypted(stream: TlsStream<TcpStream>) -> Stream {
        Stream(Kind::Encrypted(Box::new(stream)))
    }

    /// The socket, for its addresses and options.
    pub fn socket(&self) -> &TcpStream {
        match &self.0 {
            Kind::Plain(stream) => stream,
            #[cfg(feature = "tls")]
            Kind::Encrypted(stream) => stream.connection(),
        }
    }

    /// The state of TLS; `None` without TLS.
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&TlsStream<TcpStream>> {
        match &self.0 {
            Kind::Plain(_) => None,
            Kind::Encrypted(stream) => Some(stream),
        }
    }

    /// Whether both sides agreed on HTTP/2 by TLS (ALPN).
    pub fn is_h2(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls().is_some_and(|stream| stream.alpn() == Some(b"h2"));
        #[cfg(not(feature = "tls"))]
        false
    }
}

/// Calls the same method of either kind.
macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match &mut $self.get_mut().0 {
            Kind::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            #[cfg(feature = "tls")]
            Kind::Encrypted(stream) => {
                let $stream = Pin::new(&mut **stream);
                $call
            }
        }
    };
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, buf))
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Write::poll_write(stream, cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => Write::poll_write_vectored(stream, cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Write::poll_flush(stream, cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Write::poll_shutdown(stream, cx))
    }
}

#[cfg(feature = "hyper-util")]
impl hyper_util::client::legacy::connect::Connection for Stream {
    fn connected(&self) -> hyper_util::client::legacy::connect::Connected {
        let connected = hyper_util::client::legacy::connect::Connected::new();
        if self.is_h2() { connected.negotiated_h2() } else { connected }
    }
}
