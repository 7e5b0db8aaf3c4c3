//! What a request has of a server.

use std::fmt;

use super::pool::{Sender1, Stream};
use super::{Host, Turn};

/// What a request has of a server until its response is complete. Dropped before, it ends the connection, or the stream on it.
pub struct Lease<B> {
    /// `None` where the connection cannot be used again, or is given back.
    pub(super) sender: Option<Sender1<B>>,
    pub(super) stream: Option<Stream<B>>,
    // Last, so that there is room when it says so.
    pub(super) turn: Turn<B>,
}

impl<B: Send + 'static> Lease<B> {
    /// The server.
    pub fn host(&self) -> &Host<B> {
        &self.turn.host
    }

    /// The response is complete: its connection may carry the next.
    pub fn give_back(&mut self) {
        if let Some(sender) = self.sender.take() {
            self.turn.host.keep(sender);
        }
        self.stream = None;
        self.turn.end();
    }

    /// The server has answered before it had all of the request: no other may go by its connection of HTTP/1.1.
    pub fn do_not_keep(&mut self) {
        self.sender = None;
    }

    /// The connection has changed its protocol: what counts it as open, and as a request, for as long as it is held.
    pub fn into_open(self) -> Box<dyn Send> {
        Box::new((self.turn.host.extra_place(), self.turn))
    }
}

impl<B> fmt::Debug for Lease<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("host", &self.turn.host).finish_non_exhaustive()
    }
}
