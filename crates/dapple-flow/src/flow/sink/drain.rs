//! The task that writes the accepted requests of a sink.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::super::device::Writer;
use super::core::{Core, Failure, Job, Request};
use crate::shut_down_error;

/// Writes until no request is left. The device has one write at a time, so writes cannot overtake
/// each other (Gribble, section 5.1.1); waiting requests are written together.
pub(super) struct Drain<W: Writer> {
    core: Arc<Core<W>>,
    /// `None` once the sink is idle, closed or failed.
    writer: Option<W>,
    batch: VecDeque<Request>,
    /// Still set on drop if the device panicked.
    is_polled: bool,
}

impl<W: Writer> Drain<W> {
    pub(super) fn new(core: Arc<Core<W>>, writer: W) -> Self {
        Drain { core, writer: Some(writer), batch: VecDeque::new(), is_polled: false }
    }

    fn poll_steps(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..STEPS_A_POLL {
            if self.writer.is_none() {
                return Poll::Ready(());
            }
            if self.batch.is_empty() && !self.core.next(&mut self.batch, &mut self.writer) {
                return Poll::Ready(());
            }
            if let Err(error) = ready!(self.poll_step(cx)) {
                self.fail(&error);
            }
        }
        // Yield to other work.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// One step with the first request of the batch. Ready: there is another step, or the device
    /// failed.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let writer = self.writer.as_mut().expect("the writer is kept until the end");
        match &self.batch.front().expect("there is one").job {
            Job::Write(bytes) if bytes.is_empty() => self.complete_first(Ok(())),
            Job::Write(_) => {
                let count = ready!(write(&self.batch, |bufs| writer.poll_write(cx, bufs)))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.advance(count);
            }
            Job::Flush => self.complete_first(Ok(())),
            Job::Sync => {
                ready!(writer.poll_sync(cx))?;
                self.complete_first(Ok(()));
            }
            Job::Close => {
                ready!(writer.poll_close(cx))?;
                drop(self.writer.take());
                self.core.end(None, std::mem::take(&mut self.batch));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Records that the first `count` bytes of the batch are written.
    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let first = self.batch.front_mut().expect("the batch holds the written requests");
            let Job::Write(bytes) = &first.job else { unreachable!("only writes are written") };
            let part = count.min(bytes.len() - first.done);
            first.done += part;
            count -= part;
            if first.done == bytes.len() {
                self.complete_first(Ok(()));
            }
        }
    }

    fn complete_first(&mut self, result: io::Result<()>) {
        let request = self.batch.pop_front().expect("there is one");
        self.core.complete(request, result, true);
    }

    fn fail(&mut self, error: &io::Error) {
        drop(self.writer.take());
        self.core.end(Some(Failure::new(error)), std::mem::take(&mut self.batch));
    }
}

impl<W: Writer> Unpin for Drain<W> {}

impl<W: Writer> Future for Drain<W> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.is_polled = true;
        let polled = self.poll_steps(cx);
        self.is_polled = false;
        polled
    }
}

impl<W: Writer> Drop for Drain<W> {
    fn drop(&mut self) {
        if self.writer.is_some() {
            self.fail(&match self.is_polled {
                true => io::Error::other("the device of the sink panicked"),
                false => shut_down_error(),
            });
        }
    }
}

/// Lends the writes at the front of the batch to the device.
fn write<R>(batch: &VecDeque<Request>, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut count = 0;
    for (slice, request) in slices.iter_mut().zip(batch) {
        let Job::Write(bytes) = &request.job else { break };
        *slice = IoSlice::new(&bytes[request.done..]);
        count += 1;
    }
    write(&slices[..count])
}

/// The most requests written in one call.
const SLICES_MAX: usize = 64;

/// The number of steps after which a sink that can always write yields.
const STEPS_A_POLL: usize = 32;
