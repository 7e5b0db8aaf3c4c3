//! `hyper::rt::{Read, Write}`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use super::{for_each_reader, for_each_writer};
use crate::stream::{RawRead, RawWrite};

macro_rules! implement_read {
    ([$($parameters:tt)*] $type:ty) => {
        impl<$($parameters)*> Read for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut buf: ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                // SAFETY: `raw_poll_read` writes only bytes that the kernel has read, so
                // initialized bytes stay initialized.
                let unfilled = unsafe { buf.as_mut() };
                let count = ready!(self.raw_poll_read(cx, unfilled))?;
                // SAFETY: the kernel has written the first `count` bytes.
                unsafe { buf.advance(count) };
                Poll::Ready(Ok(()))
            }
        }
    };
}
for_each_reader!(implement_read);

macro_rules! implement_write {
    ([$($parameters:tt)*] $type:ty) => {
        impl<$($parameters)*> Write for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.raw_poll_write(cx, buf)
            }

            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.raw_close())
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.raw_poll_write_vectored(cx, bufs)
            }
        }
    };
}
for_each_writer!(implement_write);
