//! A queue's handle as a stream, a sink and a handler of events.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use dapple_sched::{poll_budget, poll_budgeted};

use super::{PopError, Popper, PushError, Queue, WhenFull};
use crate::flow::chain::Upstream;
use crate::flow::handler::{Close, Handler, Receipt};

impl<T> Queue<T> {
    /// Room for one item, which this handle keeps until it fills or returns it.
    pub(super) fn poll_one_room(&mut self, cx: &Context<'_>) -> Poll<Result<(), PopError>> {
        if self.room == 0 {
            ready!(self.shared.poll_room(&mut self.room_turn, cx))?;
            self.room = 1;
            // The handle keeps the room until the next call.
            ready!(poll_budget(cx));
        }
        Poll::Ready(Ok(()))
    }

    /// As `poll_one_room`, for a queue with the policy to wait. Others need no room.
    pub(super) fn poll_push_room(&mut self, cx: &Context<'_>) -> Poll<Result<(), PopError>> {
        match self.shared.when_full {
            WhenFull::Wait => self.poll_one_room(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Pushes after `poll_push_room`. `room` is its result, or `None` after a timeout.
    pub(super) fn push_after(
        &self,
        mut waited: Queue<T>,
        room: Option<Result<(), PopError>>,
        item: T,
    ) -> Result<(), PushError<T>> {
        match room {
            None => Err(PushError::Full(item)),
            Some(Err(_)) => Err(PushError::Closed(item)),
            Some(Ok(())) if waited.room > 0 => waited.push_into_room(item),
            Some(Ok(())) => self.try_push(item),
        }
    }

    /// Uses the room of this handle.
    pub(super) fn push_into_room(&mut self, item: T) -> Result<(), PushError<T>> {
        self.room -= 1;
        self.shared.push_taken(item, false)
    }

    pub(super) fn return_room(&mut self) {
        self.shared.forget_room(&mut self.room_turn);
        self.shared.return_room(std::mem::take(&mut self.room), 0);
    }
}

/// The items, until the queue is closed and empty. Cancel safe. Several handles may be polled; each
/// item goes to one of them.
impl<T> futures_core::Stream for Queue<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        let pop = |items: &mut std::collections::VecDeque<T>| items.pop_front().expect("the queue is not empty");
        poll_budgeted(cx, |cx| this.shared.poll_pop(&mut this.stream_place, Popper::Stream, cx, pop).map(Result::ok))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), None)
    }
}

/// A sent item is in the queue at once; flushing does nothing. Closing the sink closes the queue,
/// for all its handles.
impl<T> futures_sink::Sink<T> for Queue<T> {
    type Error = PushError<()>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PushError<()>>> {
        self.get_mut().poll_push_room(cx).map_err(|_| PushError::Closed(()))
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), PushError<()>> {
        let this = self.get_mut();
        let pushed = if this.room > 0 { this.push_into_room(item) } else { this.try_push(item) };
        pushed.map_err(|error| match error {
            PushError::Full(_) => PushError::Full(()),
            PushError::Closed(_) => PushError::Closed(()),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), PushError<()>>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), PushError<()>>> {
        let this = self.get_mut();
        this.return_room();
        this.close();
        Poll::Ready(Ok(()))
    }
}

/// An event for a full queue waits at its sender, is refused, or replaces the oldest: see
/// [`WhenFull`].
impl<T: Send + 'static> Handler<T> for Queue<T> {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.shared.when_full != WhenFull::Wait {
            return Poll::Ready(if self.is_closed() { Err(closed()) } else { Ok(usize::MAX) });
        }
        ready!(self.poll_one_room(cx)).map_err(|_| closed())?;
        let wanted = crate::flow::chain::BATCH_MAX - self.room;
        self.room += self.shared.state.lock().gate.take_more(wanted);
        Poll::Ready(Ok(self.room))
    }

    fn release_room(&mut self) {
        self.return_room();
    }

    fn give(&mut self, events: Vec<T>, _: Receipt) {
        for event in events {
            // A refused item is counted. If the queue was closed just now, the next request for
            // room reports it.
            let is_closed = match self.room > 0 {
                true => self.push_into_room(event).is_err(),
                false => matches!(self.try_push(event), Err(PushError::Closed(_))),
            };
            if is_closed {
                self.shared.state.lock().refused += 1;
            }
        }
    }
}

impl<T> Close for Queue<T> {
    fn close_now(&mut self) {
        self.return_room();
        self.close();
    }
}

impl<T: Send + 'static> Upstream for Queue<T> {
    type Event = T;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let state = self.shared.poll_pop(&mut self.stream_place, Popper::Stream, cx, |_| ());
        state.map(|state| Ok(state.is_ok()))
    }

    fn take(&mut self) -> Option<T> {
        self.try_pop().ok()
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the queue is closed")
}
