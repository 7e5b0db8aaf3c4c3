//! Streams of this crate as devices.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::{Acceptor, Reader, Writer};
use crate::stream::{RawRead, RawWrite};

/// The reading side of a socket or pipe. While it waits it has no memory of its own.
#[derive(Debug)]
pub struct StreamReader<S>(pub(super) Arc<S>);

/// The writing side of a socket or pipe; dropped, it ends that direction.
#[derive(Debug)]
pub struct StreamWriter<S: RawWrite>(pub(super) Arc<S>);

/// Both sides of a stream.
pub(super) fn split<S: RawWrite>(stream: S) -> (StreamReader<S>, StreamWriter<S>) {
    let stream = Arc::new(stream);
    (StreamReader(stream.clone()), StreamWriter(stream))
}

impl<S: RawRead + Send + Sync + 'static> Reader for StreamReader<S> {
    fn poll_read(&mut self, cx: &mut Context<'_>, len_max: usize) -> Poll<io::Result<Bytes>> {
        // Taken out, so that nothing that is called meanwhile finds it borrowed.
        let mut scratch = SCRATCH.take();
        if scratch.is_empty() {
            scratch.resize(SCRATCH_LEN, MaybeUninit::uninit());
        }
        let room = &mut scratch[..len_max.clamp(1, SCRATCH_LEN)];
        let polled = self.0.raw_poll_read(cx, room).map_ok(|count| {
            // SAFETY: the kernel has written that many bytes there, as `raw_poll_read` says; the slice checks the bounds.
            let read = unsafe { std::slice::from_raw_parts(room[..count].as_ptr().cast::<u8>(), count) };
            Bytes::copy_from_slice(read)
        });
        SCRATCH.set(scratch);
        polled
    }
}

impl<S: RawWrite + Send + Sync + 'static> Writer for StreamWriter<S> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.0.raw_poll_write_vectored(cx, bufs)
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.raw_close())
    }
}

impl<S: RawWrite> Drop for StreamWriter<S> {
    fn drop(&mut self) {
        // A connection that is gone needs no end.
        let _ = self.0.raw_close();
    }
}

/// The acceptor of devices that have no connections. There is none.
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
    /// What is read goes here and then to memory of the right size: a source that waits has none, and a few bytes do not keep
    /// 64 KiB. The copy costs a tenth of the system call.
    static SCRATCH: RefCell<Vec<MaybeUninit<u8>>> = const { RefCell::new(Vec::new()) };
}

/// What is read at once at most.
const SCRATCH_LEN: usize = 64 * 1024;
