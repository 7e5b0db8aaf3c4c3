//! The origins as the cache of a forward proxy sees them.

use std::future::Future;
use std::sync::Arc;

use http::HeaderName;

use super::cache::source::{self, Parts, Source};
use super::failure::Failure;
use super::upstream::{Outgoing, Upstream};
use crate::http::{RequestBody, Served};

/// Asks all origins.
pub(crate) struct Origins(pub(crate) Arc<Upstream>);

impl Source for Origins {
    type Outgoing = Outgoing;
    type Failure = Failure;

    /// This cache works on behalf of its clients, and obeys no field for caches that work for an
    /// origin.
    const TARGETS: &'static [HeaderName] = &[];

    async fn ask(&self, outgoing: &Outgoing, _: &mut Served) -> Result<source::Answer, Failure> {
        let answer = self.0.send(outgoing, &mut RequestBody::empty()).await?;
        let (version, status) = (answer.version, answer.status);
        Ok(source::Answer { version, status, headers: answer.headers, body: answer.body })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }
}

impl source::Outgoing for Outgoing {
    fn parts(&mut self) -> Parts<'_> {
        Parts { method: &mut self.method, headers: &mut self.headers, hints: &mut self.hints }
    }
}

impl source::Failure for Failure {
    const ONLY_IF_CACHED: Failure = Failure::OnlyIfCached;

    fn given_up() -> Failure {
        Failure::Broken("the proxy gave it up".to_owned())
    }

    fn never_stale(self) -> Failure {
        Failure::NeverStale(Box::new(self))
    }
}
