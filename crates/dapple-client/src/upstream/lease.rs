//! What a request has of a server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pool::{Sender1, Stream};
use super::{Host, Turn};

/// What a request has of a server until its response is complete. Dropped before, it ends the connection, or the stream on it.
pub struct Lease<B> {
    /// `None` where the connection cannot be used again, or is given back.
    pub(super) sender: Option<Sender1<B>>,
    pub(super) stream: Option<Stream<B>>,
    /// Whether the rest of the request has gone, where that goes on beside the response.
    pub(super) rest: Option<Gone>,
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
        let has_gone = self.rest.as_ref().is_none_or(Gone::is_set);
        if let Some(sender) = self.sender.take().filter(|_| has_gone) {
            self.turn.host.keep(sender);
        }
        self.stream = None;
        self.turn.end();
    }

    /// The server has answered before it had all of the request: no other may go by its connection of HTTP/1.1.
    pub fn do_not_keep(&mut self) {
        self.sender = None;
    }

    /// The server has answered before it had all of the request, and the rest goes on beside the response: another may go by its connection of
    /// HTTP/1.1 if that has `gone` once the response is complete.
    pub fn keep_once(&mut self, gone: Gone) {
        self.rest = Some(gone);
    }

    /// The connection has changed its protocol: what counts it as open, and as a request, for as long as it is held.
    pub fn into_open(self) -> Box<dyn Send> {
        Box::new((self.turn.host.extra_place(), self.turn))
    }
}

/// Whether the rest of a request has gone to its server.
#[derive(Clone, Debug, Default)]
pub struct Gone(Arc<AtomicBool>);

impl Gone {
    /// It has.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the response is over beside which the rest goes: nothing else has this any more.
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether it has. `Relaxed`: nothing else is read by it.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<B> fmt::Debug for Lease<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("host", &self.turn.host).finish_non_exhaustive()
    }
}
