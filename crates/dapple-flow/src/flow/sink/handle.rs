//! A sink's handle for polling, by `futures` and by flows.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Completion, Device, Encode, Finish, Job, Sink, accept};
use crate::flow::chain::BATCH_MAX;
use crate::flow::handler::{Close, Handler, Receipt};

impl<D: Device, C: Encode> Sink<D, C> {
    fn poll_finishing(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (_, finishing) = self.finishing.as_mut().expect("the request begins before it is awaited");
        let written = ready!(Pin::new(finishing).poll(cx));
        self.finishing = None;
        Poll::Ready(written.result)
    }
}

impl<D: Device, C: Encode> Unpin for Sink<D, C> {}

/// A sent item is accepted; flushing waits until all accepted items are written, and reports
/// errors.
impl<D: Device, C: Encode> futures_sink::Sink<C::Item> for Sink<D, C> {
    type Error = io::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().room.poll_one(cx).map_err(|reason| reason.error())
    }

    fn start_send(self: Pin<&mut Self>, item: C::Item) -> io::Result<()> {
        let this = self.get_mut();
        if this.room.count() == 0 {
            return this.try_submit(item, ()).map_err(io::Error::from);
        }
        Ok(accept(&this.codec, &mut this.room, item, Completion::none())?)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.finishing.is_none() {
            ready!(this.room.poll_one(cx)).map_err(|reason| reason.error())?;
            let (completion, pending) = Completion::answer();
            this.room.accept(Job::Flush, completion);
            this.finishing = Some((Finish::Flush, pending));
        }
        this.poll_finishing(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !matches!(this.finishing, Some((Finish::Close, _))) {
            this.room.release();
            let (completion, pending) = Completion::answer();
            this.core().close(completion);
            this.finishing = Some((Finish::Close, pending));
        }
        this.poll_finishing(cx)
    }
}

/// Single writes have no recipient; a flow gets their error with its next event.
impl<D: Device, C: Encode> Handler<C::Item> for Sink<D, C> {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        ready!(self.room.poll_one(cx)).map_err(|reason| reason.error())?;
        self.room.fill(BATCH_MAX);
        Poll::Ready(Ok(self.room.count()))
    }

    fn release_room(&mut self) {
        self.room.release();
    }

    fn give(&mut self, events: Vec<C::Item>, _: Receipt) {
        for event in events {
            // Skip items that the codec cannot encode.
            if let Err(error) = accept(&self.codec, &mut self.room, event, Completion::none()) {
                tracing::warn!(%error, "an event that went to a sink");
            }
        }
    }
}

impl<D: Device, C: Encode> Close for Sink<D, C> {
    fn close_now(&mut self) {
        self.room.release();
        self.core().close(Completion::none());
    }
}
