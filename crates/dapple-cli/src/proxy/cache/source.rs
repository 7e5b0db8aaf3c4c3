//! The source of responses that a cache does not have: the origins of a forward proxy, or the
//! upstreams of a reverse one.

use std::future::Future;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method, StatusCode, Version};

use crate::http::{Body, Served};
use crate::proxy::hints::Hints;

/// Asks servers for a cache.
pub(crate) trait Source: Send + Sync + 'static {
    /// A request to a server.
    type Outgoing: Outgoing;
    /// The reason why there is no response.
    type Failure: Failure;

    /// The targeted fields that this cache obeys, in order (RFC 9213, section 2.2).
    const TARGETS: &'static [HeaderName];

    /// Asks a server. Notes in `served` which one answered, and at what cost.
    fn ask(
        &self,
        outgoing: &Self::Outgoing,
        served: &mut Served,
    ) -> impl Future<Output = Result<Answer, Self::Failure>> + Send;

    /// Starts a task with a color of its own; with `--serial`, of the default color.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);
}

/// A request in which a cache changes some parts before it goes to a server.
pub(crate) trait Outgoing: Clone + Send + Sync + 'static {
    fn parts(&mut self) -> Parts<'_>;
}

/// See [`Outgoing`].
pub(crate) struct Parts<'a> {
    pub(crate) method: &'a mut Method,
    pub(crate) headers: &'a mut HeaderMap,
    /// The destination of interim responses, if any.
    pub(crate) hints: &'a mut Option<Arc<Hints>>,
}

/// The failures that a cache has to report.
pub(crate) trait Failure: Clone + Send + Sync + 'static {
    /// The client wants the response only from the cache, which does not have it.
    const ONLY_IF_CACHED: Self;

    /// The fetch ended without an answer, or there was no room for its reader.
    fn given_up() -> Self;

    /// The stored response needs the server's confirmation, and this is why the server does not
    /// answer.
    fn never_stale(self) -> Self;
}

/// A response of which the head has arrived.
pub(crate) struct Answer {
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    /// Without the fields of the connection, and without the framing of the body.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}
