//! An encrypted connection.

mod core;
mod pieces;
mod session;
mod wakers;

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use dapple_io::Connection;
use dapple_io::net::TcpStream;
use dapple_sched::foreign::with_contained;
use rustls::pki_types::CertificateDer;
use rustls::{HandshakeKind, ProtocolVersion, SupportedCipherSuite};

pub(crate) use self::core::{Core, Sink, poll_fill};
pub(crate) use session::Session;
use wakers::Side;

/// An encrypted connection, made by [`TlsAcceptor`](crate::TlsAcceptor) or
/// [`TlsConnector`](crate::TlsConnector).
///
/// Methods take `&self`, so one task may read while another writes (put it in an `Arc`); of several
/// tasks that do the same only the last is woken. With the features of this crate it, and a
/// reference to it, implement the I/O traits of hyper, tokio and futures-io.
///
/// Written data is sent at once as far as the connection takes it. The rest, at most 128 KB, is
/// sent with the next write or read; [`write_all`](Self::write_all), [`flush`](Self::flush) and
/// [`shutdown`](Self::shutdown) wait for it.
///
/// Dropping it closes the connection **without** the `close_notify` of TLS, so the other side can
/// tell that the stream was cut short; call [`shutdown`](Self::shutdown) for a regular end.
/// Likewise, a read returns `UnexpectedEof` when the other side's end was not regular.
pub struct TlsStream<S = TcpStream> {
    connection: S,
    core: Mutex<Core>,
    facts: Facts,
}

/// The results of the handshake.
struct Facts {
    alpn: Option<Box<[u8]>>,
    server_name: Option<Box<str>>,
    peer_certificates: Box<[CertificateDer<'static>]>,
    version: ProtocolVersion,
    suite: SupportedCipherSuite,
    is_resumed: bool,
}

impl<S: Connection> TlsStream<S> {
    /// After the handshake; `server_name` if the core does not know it.
    pub(crate) fn new(connection: S, mut core: Core, server_name: Option<Box<str>>) -> Result<Self, (crate::Error, S)> {
        let session = &core.session;
        let (Some(version), Some(suite)) = (session.protocol_version(), session.negotiated_cipher_suite()) else {
            return Err((rustls::Error::HandshakeNotComplete.into(), connection));
        };
        let facts = Facts {
            alpn: session.alpn_protocol().map(Box::from),
            peer_certificates: session.peer_certificates().unwrap_or_default().into(),
            version,
            suite,
            is_resumed: session.handshake_kind() == Some(HandshakeKind::Resumed),
            server_name: server_name.or(core.server_name.take()),
        };
        Ok(TlsStream { connection, core: Mutex::new(core), facts })
    }

    /// Reads up to `buf.len()` bytes as soon as there are any; 0 means that the other side has
    /// ended the stream.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if dropped before it resolves, it has read nothing.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the connection ended without the `close_notify` of TLS: the data may be
    /// cut short. `InvalidData` when the other side broke the protocol. Those of the connection.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| {
            let mut filled = Filled { buf, count: 0 };
            self.poll_read_into(cx, &mut filled)
        })
        .await
    }

    /// Reads until the buffer is full.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the number of bytes read is lost with the future.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the stream ends first, and those of [`read`](Self::read).
    pub async fn read_exact(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut rest = buf;
        while !rest.is_empty() {
            let count = self.read(rest).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            rest = &mut rest[count..];
        }
        Ok(())
    }

    /// Encrypts and writes a part of the buffer, at most 128 KB. Data that the connection does not
    /// take at once is kept, see [`TlsStream`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if dropped before it resolves, it has written nothing.
    ///
    /// # Errors
    ///
    /// Those of the connection, `BrokenPipe` after [`shutdown`](Self::shutdown), and `InvalidData`
    /// when the other side broke the protocol.
    pub async fn write(&self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)]).await
    }

    /// As [`write`](Self::write), from several buffers as one: a head and a small body make one
    /// record.
    ///
    /// # Cancel safety
    ///
    /// As `write`: cancel safe.
    ///
    /// # Errors
    ///
    /// As `write`.
    pub async fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write_from(cx, bufs)).await
    }

    /// Writes the whole buffer, and waits until the connection has taken it.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the number of bytes written is lost with the future.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    pub async fn write_all(&self, buf: &[u8]) -> io::Result<()> {
        let mut rest = buf;
        while !rest.is_empty() {
            let count = self.write(rest).await?;
            rest = &rest[count..];
        }
        self.flush().await
    }

    /// Waits until the connection has taken all written data.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the rest is sent later.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub async fn flush(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush_all(cx)).await
    }

    /// Ends the stream's data (`close_notify`), and then the connection in this direction, after it
    /// has taken everything. The other side may continue, and its data can be read.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again to continue.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_finish(cx)).await
    }

    /// The underlying connection, for its addresses and options. Reading or writing it would break
    /// the stream.
    pub fn connection(&self) -> &S {
        &self.connection
    }

    /// The negotiated protocol (ALPN), such as `h2`.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.facts.alpn.as_deref()
    }

    /// The name that the client asked for (SNI), in lower case; for a client's stream its own
    /// server name.
    pub fn server_name(&self) -> Option<&str> {
        self.facts.server_name.as_deref()
    }

    /// The certificates of the other side, its own first; empty if it has sent none.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        &self.facts.peer_certificates
    }

    /// TLS 1.3 or 1.2.
    pub fn protocol_version(&self) -> ProtocolVersion {
        self.facts.version
    }

    /// The cipher suite.
    pub fn cipher_suite(&self) -> SupportedCipherSuite {
        self.facts.suite
    }

    /// Whether an earlier session was resumed, which saves both sides the costly part of a
    /// handshake.
    pub fn is_resumed(&self) -> bool {
        self.facts.is_resumed
    }

    pub(crate) fn poll_read_into(&self, cx: &mut Context<'_>, sink: &mut dyn Sink) -> Poll<io::Result<usize>> {
        self.poll_core(cx, |core, cx| core.poll_read(&self.connection, cx, sink))
    }

    pub(crate) fn poll_write_from(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_core(cx, |core, cx| core.poll_write(&self.connection, cx, bufs))
    }

    pub(crate) fn poll_flush_all(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_core(cx, |core, cx| core.poll_flush(&self.connection, cx, Side::Writer))
    }

    pub(crate) fn poll_finish(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_core(cx, |core, cx| core.poll_shutdown(&self.connection, cx))
    }

    /// Polls with the lock, which is never held during a wait: a reading task and a writing task
    /// take turns. Wakers may call back into this stream, so they are cloned before the lock is
    /// taken, and invoked and dropped after it.
    fn poll_core<T>(&self, cx: &mut Context<'_>, poll: impl FnOnce(&mut Core, &mut Context<'_>) -> Poll<T>) -> Poll<T> {
        with_contained(cx, |cx| {
            let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
            let polled = poll(&mut core, cx);
            let (over, has_yielded) = core.take_over();
            drop(core);
            over.settle();
            if has_yielded {
                cx.waker().wake_by_ref();
            }
            polled
        })
    }
}

impl<S: Connection> Connection for TlsStream<S> {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_into(cx, &mut Filled { buf, count: 0 })
    }

    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_from(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_write_from(cx, bufs)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush_all(cx)
    }

    fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_finish(cx)
    }

    fn say_end(&self, cx: &mut Context<'_>) {
        // If the other side does not take it now, it learns of the end from the connection's end.
        let _ = self.poll_finish(cx);
    }

    fn abort(&self) {
        // Without the `close_notify` of TLS this is not a regular end; it frees the data in
        // transit.
        self.connection.abort();
    }

    fn note_arrivals(&self, is_wanted: bool) {
        self.connection.note_arrivals(is_wanted);
    }

    fn read_waited(&self) -> Duration {
        self.connection.read_waited()
    }
}

impl<S: fmt::Debug> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("connection", &self.connection)
            .field("version", &self.facts.version)
            .field("suite", &self.facts.suite.suite())
            .field("server_name", &self.facts.server_name)
            .finish_non_exhaustive()
    }
}

/// A slice as a sink.
pub(crate) struct Filled<'a> {
    pub(crate) buf: &'a mut [u8],
    pub(crate) count: usize,
}

impl Sink for Filled<'_> {
    fn room(&self) -> usize {
        self.buf.len() - self.count
    }

    fn put(&mut self, bytes: &[u8]) {
        self.buf[self.count..][..bytes.len()].copy_from_slice(bytes);
        self.count += bytes.len();
    }
}
