//! The progress of a stream in one poll, passed from its body to the task that polls it.
//!
//! hyper owns the future of a stream, and the body is deep inside it. One thread polls both, one
//! inside the other, so a thread-local value carries the progress, without a lock or an allocation.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// The progress of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Bytes of the body that hyper took, which it does when the peer's window has room.
    pub(super) taken: u64,
    /// Whether the stream waits for the peer: the service has answered, and the body has more.
    pub(super) waits_for_peer: bool,
}

thread_local! {
    static NOW: Cell<Progress> = const { Cell::new(Progress { taken: 0, waits_for_peer: false }) };
}

/// Runs `poll`, one poll of a stream, starting from `before`; returns its result and the new
/// progress.
pub(super) fn watch<R>(before: Progress, poll: impl FnOnce() -> R) -> (R, Progress) {
    NOW.set(before);
    let result = poll();
    (result, NOW.get())
}

/// Notes whether the service has answered.
pub(super) fn is_answered(is_answered: bool) {
    NOW.set(Progress { waits_for_peer: is_answered, ..NOW.get() });
}

pin_project! {
    /// The body of a reply, in pieces that leave room for other streams.
    pub(super) struct Pieces<B> {
        #[pin]
        body: B,
        rest: Bytes,
    }
}

impl<B> Pieces<B> {
    pub(super) fn new(body: B) -> Pieces<B> {
        Pieces { body, rest: Bytes::new() }
    }
}

impl<B: Body<Data = Bytes>> Body for Pieces<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        if this.rest.is_empty() {
            match this.body.poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Poll::Pending => {
                    is_answered(false);
                    return Poll::Pending;
                }
                end => return end,
            }
        }
        let len = this.rest.len().min(PIECE_LEN_MAX);
        let piece = this.rest.split_to(len);
        let now = NOW.get();
        NOW.set(Progress { taken: now.taken + len as u64, waits_for_peer: true });
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let exact = self.body.size_hint().exact();
        exact.map_or_else(SizeHint::new, |len| SizeHint::with_exact(len + self.rest.len() as u64))
    }
}

/// About how much a stream may have in hyper's buffers.
const PIECE_LEN_MAX: usize = 64 << 10;
