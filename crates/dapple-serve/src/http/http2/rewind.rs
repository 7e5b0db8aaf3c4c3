//! A connection that replays the first bytes, which were read earlier, and inspects its traffic.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple_http::frames::{Scanner, Traffic};
use dapple_io::Connection;
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::http::Handler;

/// A stream that replays its first bytes. Its fields are never pinned.
pub(super) struct Rewind<S, H> {
    first: Bytes,
    stream: S,
    handler: H,
    scanner: Scanner,
    traffic: Arc<Traffic>,
}

impl<S, H> Unpin for Rewind<S, H> {}

impl<S, H> Rewind<S, H> {
    pub(super) fn new(first: Bytes, stream: S, handler: H, traffic: Arc<Traffic>) -> Rewind<S, H> {
        Rewind { first, stream, handler, scanner: Scanner::new(), traffic }
    }

    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.traffic.set_blocked(result.is_pending());
        if let Poll::Ready(Ok(len)) = result {
            self.traffic.wrote(len);
        }
        result
    }

    fn take(&mut self, bytes: &[u8], buf: &mut ReadBufCursor<'_>) -> io::Result<()> {
        buf.put_slice(bytes);
        match self.scanner.read(bytes, &self.traffic) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "too many frames that carry no data")),
        }
    }
}

thread_local! {
    /// The buffer for inspecting bytes on their way to hyper's buffer, of which the filled part is
    /// not visible here.
    static PASSING: RefCell<[u8; PASSING_LEN]> = const { RefCell::new([0; PASSING_LEN]) };
}

impl<S: Connection, H: Handler> Read for Rewind<S, H> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let len = self.first.len().min(buf.remaining());
            let first = self.first.split_to(len);
            return Poll::Ready(self.take(&first, &mut buf));
        }
        self.handler.before_read(&self.stream);
        PASSING.with_borrow_mut(|passing| {
            let len = passing.len().min(buf.remaining());
            let count = ready!(self.stream.poll_read(cx, &mut passing[..len]))?;
            self.handler.after_read(&self.stream);
            Poll::Ready(self.take(&passing[..count], &mut buf))
        })
    }
}

impl<S: Connection, H> Write for Rewind<S, H> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = self.stream.poll_write(cx, buf);
        self.wrote(result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = self.stream.poll_write_vectored(cx, bufs);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.stream.poll_flush(cx);
        self.traffic.set_blocked(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_end(cx)
    }
}

/// How much is read at once: as much as h2 asks for.
const PASSING_LEN: usize = 8 << 10;
