//! The turn and the connection that a request holds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pool::{Sender1, Stream};
use super::{Host, Turn};

/// The turn and the connection that a request holds until its response is complete. Dropped before that, it closes the connection, or the
/// stream on it.
pub struct Lease<B> {
    /// `None` where the connection cannot be used again, or is given back.
    pub(super) sender: Option<Sender1<B>>,
    pub(super) stream: Option<Stream<B>>,
    /// Tells whether the rest of the request was sent, where it is sent while the response arrives.
    pub(super) rest: Option<Gone>,
    // Last, so that there is room when it says so.
    pub(super) turn: Turn<B>,
}

impl<B: Send + 'static> Lease<B> {
    /// The server.
    pub fn host(&self) -> &Host<B> {
        &self.turn.host
    }

    /// Marks the response as complete: its connection may carry the next request.
    pub fn give_back(&mut self) {
        let has_gone = self.rest.as_ref().is_none_or(Gone::is_set);
        if let Some(sender) = self.sender.take().filter(|_| has_gone) {
            self.turn.host.keep(sender);
        }
        self.stream = None;
        self.turn.end();
    }

    /// Closes a connection of HTTP/1.1 after the response, because the server answered before it had all of the request.
    pub fn do_not_keep(&mut self) {
        self.sender = None;
    }

    /// Keeps a connection of HTTP/1.1 only if the rest of the request has `gone` when the response is complete: the server answered before it
    /// had all of the request.
    pub fn keep_once(&mut self, gone: Gone) {
        self.rest = Some(gone);
    }

    /// Takes the turn and the place of a connection that changed its protocol. It counts as open until the caller drops them.
    pub fn into_open(self) -> Box<dyn Send> {
        Box::new((self.turn.host.extra_place(), self.turn))
    }
}

/// A flag: the rest of a request was sent to its server.
#[derive(Clone, Debug, Default)]
pub struct Gone(Arc<AtomicBool>);

impl Gone {
    /// Sets it.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the response is over: nothing else holds this flag any more.
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Reads it. `Relaxed`: it guards no other data.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<B> fmt::Debug for Lease<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("host", &self.turn.host).finish_non_exhaustive()
    }
}
