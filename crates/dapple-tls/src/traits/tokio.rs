//! `tokio::io::{AsyncRead, AsyncWrite}`. The traits need no tokio runtime.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_io::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::TlsStream;
use crate::stream::Sink;

impl Sink for ReadBuf<'_> {
    fn room(&self) -> usize {
        self.remaining()
    }

    fn put(&mut self, bytes: &[u8]) {
        self.put_slice(bytes);
    }
}

macro_rules! implement {
    ($type:ty) => {
        impl<S: Connection + Unpin> AsyncRead for $type {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                self.poll_read_into(cx, buf).map_ok(drop)
            }
        }

        impl<S: Connection + Unpin> AsyncWrite for $type {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.poll_write_from(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.poll_write_from(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_flush_all(cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_finish(cx)
            }
        }
    };
}
implement!(TlsStream<S>);
implement!(&TlsStream<S>);
