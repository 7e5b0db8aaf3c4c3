//! hyper's interface to a runtime. The streams implement its `Read` and `Write` themselves.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::{Connection, time};

/// Any [`Connection`], with hyper's `Read` and `Write`. The connections of this crate implement
/// these traits themselves, and do not need this.
#[derive(Debug)]
pub struct HyperIo<C>(C);

impl<C> HyperIo<C> {
    /// This connection.
    pub fn new(connection: C) -> HyperIo<C> {
        HyperIo(connection)
    }

    /// The connection.
    pub fn get_ref(&self) -> &C {
        &self.0
    }
}

/// The contents are never pinned.
impl<C> Unpin for HyperIo<C> {}

impl<C: Connection> Read for HyperIo<C> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut space = [0; READ_LEN];
        let len = buf.remaining().min(READ_LEN);
        let count = ready!(self.0.poll_read(cx, &mut space[..len]))?;
        buf.put_slice(&space[..count]);
        Poll::Ready(Ok(()))
    }
}

impl<C: Connection> Write for HyperIo<C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_end(cx)
    }
}

/// The most bytes of one read.
const READ_LEN: usize = 8 << 10;

/// Runs hyper's background futures, each as a task with a color of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl Executor {
    /// An executor that uses the runtime that is current at each use.
    pub fn new() -> Self {
        Executor
    }
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        // Hyper does not wait for it.
        let _detached = dapple_sched::spawn(future);
    }
}

/// Gives hyper our timers, for its timeouts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl Timer {
    /// A timer that uses the runtime that is current at each use.
    pub fn new() -> Self {
        Timer
    }
}

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(time::sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(time::sleep_until(deadline))
    }

    fn now(&self) -> Instant {
        time::Instant::now().into_std()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<time::Sleep>() {
            Some(sleep) => sleep.get_mut().reset(new_deadline),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

impl hyper::rt::Sleep for time::Sleep {}
