//! `futures_io::{AsyncRead, AsyncWrite}`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use dapple_io::Connection;
use futures_io::{AsyncRead, AsyncWrite};

use crate::TlsStream;
use crate::stream::Filled;

macro_rules! implement {
    ($type:ty) => {
        impl<S: Connection + Unpin> AsyncRead for $type {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
                self.poll_read_into(cx, &mut Filled { buf, count: 0 })
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

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_flush_all(cx)
            }

            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_finish(cx)
            }
        }
    };
}
implement!(TlsStream<S>);
implement!(&TlsStream<S>);
