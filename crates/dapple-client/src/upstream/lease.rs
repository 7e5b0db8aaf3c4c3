//! The turn and the connection that a request holds.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::pool::{Sender1, Stream};
use super::{Host, Turn};

/// The turn and the connection that a request holds until its response is complete. If dropped
/// earlier, it closes the connection, or its stream.
pub struct Lease<B> {
    /// `None` if the connection cannot be used again, or is returned.
    pub(super) sender: Option<Sender1<B>>,
    pub(super) stream: Option<Stream<B>>,
    /// Says whether the rest of the request was sent, if that happens while the response arrives.
    pub(super) rest: Option<Gone>,
    // Dropped last, so that there is room when the turn says so.
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

    /// Closes the HTTP/1.1 connection after the response, because the server answered before it had
    /// the whole request.
    pub fn do_not_keep(&mut self) {
        self.sender = None;
    }

    /// Keeps the HTTP/1.1 connection only if the rest of the request has `gone` when the response
    /// is complete: the server answered before it had the whole request.
    pub fn keep_once(&mut self, gone: Gone) {
        self.rest = Some(gone);
    }

    /// Takes the turn and the place of a connection that changed its protocol. It counts as open
    /// until the caller drops them.
    pub fn into_open(self) -> Box<dyn Send> {
        Box::new((self.turn.host.extra_place(), self.turn))
    }
}

/// A flag: the rest of a request was sent to its server.
#[derive(Clone, Debug, Default)]
pub struct Gone(Arc<AtomicBool>);

impl Gone {
    /// Sets the flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the response is over, so that nothing else holds this flag.
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Reads the flag. `Relaxed`: it guards no other data.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<B> fmt::Debug for Lease<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("host", &self.turn.host).finish_non_exhaustive()
    }
}
