//! The stream of a connection, watched for bytes that leave, and for refusals that hyper writes by itself.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use dapple::net::TcpStream;
use http::StatusCode;
use hyper::rt::{Read, ReadBufCursor, Write};

use super::reply;

/// A stream that tells how much was written: a client that takes nothing for long is let go. Bytes that arrive do not
/// count, or headers sent a byte at a time would hold the connection for ever.
///
/// What hyper cannot parse it refuses by itself, with a head and no body, and the service never hears of it. Here such a
/// head is recognized and a page takes its place, so that whoever looks at it learns what happened.
pub(crate) struct Watched<F> {
    stream: TcpStream,
    on_written: F,
    /// What is left to be written in place of a refusal.
    page: Bytes,
}

impl<F: Fn(u64) + Unpin> Watched<F> {
    pub(crate) fn new(stream: TcpStream, on_written: F) -> Watched<F> {
        Watched { stream, on_written, page: Bytes::new() }
    }

    fn poll_page(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.page.has_remaining() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.page))?;
            (self.on_written)(count as u64);
            self.page.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Puts the page in the place of a refusal, as if that had been written. False: `head` is no refusal.
    fn replaces(&mut self, head: &[u8], cx: &mut Context<'_>) -> io::Result<bool> {
        let Some(status) = refusal(head) else { return Ok(false) };
        self.page = reply::raw_problem(status);
        // What does not fit now goes out with the next flush.
        match self.poll_page(cx) {
            Poll::Ready(Err(error)) => Err(error),
            _ => Ok(true),
        }
    }

    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = result {
            (self.on_written)(count as u64);
        }
        result
    }
}

/// The status of a response by which hyper refuses what it cannot parse. Ours of that kind always have a body.
fn refusal(head: &[u8]) -> Option<StatusCode> {
    let code = head.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let status = StatusCode::from_bytes(code).ok()?;
    let is_empty = head.ends_with(b"\r\n\r\n") && head.windows(EMPTY.len()).any(|line| line == EMPTY);
    let is_of_hyper = matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::URI_TOO_LONG | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
    (is_of_hyper && is_empty).then_some(status)
}

const EMPTY: &[u8] = b"\r\ncontent-length: 0\r\n";

impl<F: Fn(u64) + Unpin> Read for Watched<F> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<F: Fn(u64) + Unpin> Write for Watched<F> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_page(cx))?;
        if self.replaces(buf, cx)? {
            return Poll::Ready(Ok(buf.len()));
        }
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_page(cx))?;
        if let [head] = bufs
            && self.replaces(head, cx)?
        {
            return Poll::Ready(Ok(head.len()));
        }
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_page(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_page(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::refusal;
    use http::StatusCode;

    #[test]
    fn only_refusals_without_a_body_are_replaced() {
        let head =
            |line: &str, len: u32| format!("HTTP/1.1 {line}\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n");
        assert_eq!(refusal(head("400 Bad Request", 0).as_bytes()), Some(StatusCode::BAD_REQUEST));
        assert_eq!(refusal(head("431 Large", 0).as_bytes()), Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        assert_eq!(refusal(head("400 Bad Request", 7).as_bytes()), None);
        assert_eq!(refusal(head("416 Range Not Satisfiable", 0).as_bytes()), None);
        assert_eq!(refusal(head("200 OK", 0).as_bytes()), None);
        assert_eq!(refusal(b""), None);
    }
}
