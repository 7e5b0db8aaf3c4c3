//! Streams of `dapple-io` as devices.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::{Acceptor, Reader, Writer};
use dapple_io::Connection;
use dapple_io::net::{TcpStream, UnixStream};
use dapple_io::pipe::{Receiver, Sender};

/// The reading side of a socket or pipe. While it waits it holds no buffer.
#[derive(Debug)]
pub struct StreamReader<S>(pub(super) Arc<S>);

/// The writing side of a socket or pipe; dropping it ends that direction.
#[derive(Debug)]
pub struct StreamWriter<S: WriteEnd>(pub(super) Arc<S>);

/// A readable stream of bytes.
pub trait ReadEnd: Send + Sync + 'static {
    /// Reads up to `buf.len()` bytes; 0 is the end.
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;
}

/// A writable stream of bytes.
pub trait WriteEnd: Send + Sync + 'static {
    /// Writes a part of the buffers.
    fn poll_write(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Tells the other side that nothing more will come, if the kernel has a call for that.
    fn close(&self) -> io::Result<()>;
}

macro_rules! both_ends {
    ($type:ty) => {
        impl ReadEnd for $type {
            fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
                Connection::poll_read(self, cx, buf)
            }
        }

        impl WriteEnd for $type {
            fn poll_write(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
                Connection::poll_write_vectored(self, cx, bufs)
            }

            fn close(&self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }
        }
    };
}

both_ends!(TcpStream);
both_ends!(UnixStream);

impl ReadEnd for Receiver {
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Receiver::poll_read(self, cx, buf)
    }
}

impl WriteEnd for Sender {
    fn poll_write(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, bufs)
    }

    /// A pipe has no such call: the end comes with the drop of the sender.
    fn close(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Both sides of a stream.
pub(super) fn split<S: WriteEnd>(stream: S) -> (StreamReader<S>, StreamWriter<S>) {
    let stream = Arc::new(stream);
    (StreamReader(stream.clone()), StreamWriter(stream))
}

impl<S: ReadEnd> Reader for StreamReader<S> {
    fn poll_read(&mut self, cx: &mut Context<'_>, len_max: usize) -> Poll<io::Result<Bytes>> {
        // Taken out, so that code called meanwhile does not find it borrowed.
        let mut scratch = SCRATCH.take();
        if scratch.is_empty() {
            scratch.resize(SCRATCH_LEN, 0);
        }
        let room = &mut scratch[..len_max.clamp(1, SCRATCH_LEN)];
        let polled = self.0.poll_read(cx, room).map_ok(|count| Bytes::copy_from_slice(&room[..count]));
        SCRATCH.set(scratch);
        polled
    }
}

impl<S: WriteEnd> Writer for StreamWriter<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bufs)
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.close())
    }
}

impl<S: WriteEnd> Drop for StreamWriter<S> {
    fn drop(&mut self) {
        // A closed connection needs no end.
        let _ = self.0.close();
    }
}

/// The acceptor of devices without connections. Has no values.
#[derive(Debug)]
pub struct Nothing<R, W> {
    never: std::convert::Infallible,
    sides: std::marker::PhantomData<fn() -> (R, W)>,
}

impl<R: Reader, W: Writer> Acceptor for Nothing<R, W> {
    type Reader = R;
    type Writer = W;

    fn poll_accept(&mut self, _: &mut Context<'_>) -> Poll<io::Result<(R, W, String)>> {
        match self.never {}
    }

    fn local_name(&self) -> io::Result<String> {
        match self.never {}
    }
}

thread_local! {
    /// Data is read here and then copied to memory of the right size: a waiting source has no
    /// buffer, and a few bytes do not keep 64 KiB. The copy costs a tenth of the system call.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The most bytes read at once.
const SCRATCH_LEN: usize = 64 * 1024;
