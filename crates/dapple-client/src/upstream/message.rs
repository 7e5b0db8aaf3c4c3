//! A request body that says whether it was taken.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A body in one piece. hyper takes it only once the request has its connection and may be sent. If
/// hyper never took it, no server can have the whole request, so the request has not run.
#[derive(Debug)]
pub struct Message {
    bytes: Option<Bytes>,
    taken: Taken,
}

/// A flag: hyper has taken the message to send it.
#[derive(Clone, Debug, Default)]
pub struct Taken(Arc<AtomicBool>);

impl Taken {
    /// Reads it.
    pub fn is_taken(&self) -> bool {
        // Acquire pairs with the release in `poll_frame`: a task that sees an error also sees the events before it.
        self.0.load(Ordering::Acquire)
    }
}

impl Message {
    /// A body of these bytes, with its flag.
    pub fn new(bytes: Bytes) -> (Message, Taken) {
        let taken = Taken::default();
        (Message { bytes: Some(bytes), taken: taken.clone() }, taken)
    }
}

impl Body for Message {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.taken.0.store(true, Ordering::Release);
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    /// False until it was taken, even for an empty body: otherwise hyper would send its end without
    /// asking.
    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::Message;
    use bytes::Bytes;
    use http_body_util::BodyExt;
    use hyper::body::Body;

    #[test]
    fn an_empty_message_is_asked_for_too() {
        let (message, taken) = Message::new(Bytes::new());
        assert!(!message.is_end_stream() && !taken.is_taken());
        let bytes = dapple_sched::block_on(message.collect()).unwrap().to_bytes();
        assert!(bytes.is_empty() && taken.is_taken());
    }
}
