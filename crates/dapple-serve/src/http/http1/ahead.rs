//! Reads ahead while a request without a body is answered, to notice when the client ends the
//! connection.

use std::task::{Context, Poll};

use super::detached::Rest;
use super::workspace::Lease;
use crate::http::Handler;

/// The bytes that were read ahead. If there are any, the reader no longer checks whether the client
/// has ended.
pub(super) struct Ahead {
    is_looking: bool,
    work: Option<Lease>,
}

impl Ahead {
    /// Looks for the client's end, unless the client has already sent more requests, `first`: then
    /// it waits for their replies.
    pub(super) fn new(first: &[u8]) -> Ahead {
        Ahead { is_looking: first.is_empty(), work: None }
    }

    /// Ready when the client has ended its direction, or the connection is broken. Holds no memory
    /// while no bytes arrive.
    pub(super) fn poll_end<S: dapple_io::Connection>(
        &mut self,
        stream: &S,
        handler: &impl Handler,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while self.is_looking {
            let work = self.work.get_or_insert_with(Lease::take);
            match work.poll_fill(stream, LEN_MAX, cx) {
                Poll::Ready(Ok(1..)) => {
                    handler.after_read(stream);
                    self.is_looking = work.input().len() < LEN_MAX;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    self.work.take_if(|work| work.input().is_empty());
                    break;
                }
            }
        }
        Poll::Pending
    }

    /// Returns the bytes that were read ahead.
    pub(super) fn into_rest(self) -> Rest {
        Rest { later: self.work, ..Rest::default() }
    }
}

/// Room for a few requests.
const LEN_MAX: usize = 4 << 10;
