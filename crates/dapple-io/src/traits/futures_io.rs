//! `futures_io::{AsyncRead, AsyncWrite}`, for the streams and for references to them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use super::{for_each_reader, for_each_writer};
use crate::stream::{RawRead, RawWrite, as_uninit};

macro_rules! implement_read {
    ([$($parameters:tt)*] $type:ty) => {
        implement_read!(@ [$($parameters)*] $type);
        implement_read!(@ [$($parameters)*] &$type);
    };
    (@ [$($parameters:tt)*] $type:ty) => {
        impl<$($parameters)*> AsyncRead for $type {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.raw_poll_read(cx, as_uninit(buf))
            }
        }
    };
}
for_each_reader!(implement_read);

macro_rules! implement_write {
    ([$($parameters:tt)*] $type:ty) => {
        implement_write!(@ [$($parameters)*] $type);
        implement_write!(@ [$($parameters)*] &$type);
    };
    (@ [$($parameters:tt)*] $type:ty) => {
        impl<$($parameters)*> AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.raw_poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.raw_poll_write_vectored(cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.raw_close())
            }
        }
    };
}
for_each_writer!(implement_write);
