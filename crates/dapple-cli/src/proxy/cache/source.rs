//! Where a cache gets what it does not have: the origins of a forward proxy, or the upstreams of a reverse one.

use std::future::Future;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method, StatusCode, Version};

use crate::http::{Body, Served};
use crate::proxy::hints::Hints;

/// The way to servers.
pub(crate) trait Source: Send + Sync + 'static {
    /// A request on its way to a server.
    type Outgoing: Outgoing;
    /// Why there is no answer.
    type Failure: Failure;

    /// The targeted fields that this cache obeys, the first one first (RFC 9213, section 2.2).
    const TARGETS: &'static [HeaderName];

    /// Asks a server. Notes in `served` which one, and what that took.
    fn ask(
        &self,
        outgoing: &Self::Outgoing,
        served: &mut Served,
    ) -> impl Future<Output = Result<Answer, Self::Failure>> + Send;

    /// Starts a task with a color of its own; with `--serial`, one of the default color.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);
}

/// What a cache changes in a request that goes on in its name.
pub(crate) trait Outgoing: Clone + Send + Sync + 'static {
    fn parts(&mut self) -> Parts<'_>;
}

/// See [`Outgoing`].
pub(crate) struct Parts<'a> {
    pub(crate) method: &'a mut Method,
    pub(crate) headers: &'a mut HeaderMap,
    /// Where interim responses go, if anywhere.
    pub(crate) hints: &'a mut Option<Arc<Hints>>,
}

/// What a cache has to say where there is no answer.
pub(crate) trait Failure: Clone + Send + Sync + 'static {
    /// The client wants it from the cache only, which does not have it.
    const ONLY_IF_CACHED: Self;

    /// The fetch ended without an answer, or there was no room for its reader.
    fn given_up() -> Self;

    /// The stored response may not be used without the server, and this is why the server does not answer.
    fn never_stale(self) -> Self;
}

/// A response whose head is there.
pub(crate) struct Answer {
    pub(crate) version: Version,
    pub(crate) status: StatusCode,
    /// Without the fields of the connection, and without what frames the body.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}
