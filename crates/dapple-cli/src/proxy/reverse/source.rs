//! The upstreams as requests and the cache see them.

use std::future::Future;
use std::sync::Arc;

use dapple::stage::middleware::retry::Budget;
use http::HeaderName;
use http::header::CDN_CACHE_CONTROL;

use super::common::Common;
use super::exchange::exchange;
use super::failure::Failure;
use super::list::List;
use super::upstream::Outgoing;
use crate::http::{RequestBody, Served};
use crate::proxy::cache::source::{self, Parts, Source};

/// Asks the upstreams, within the budget for retries.
#[derive(Clone)]
pub(crate) struct Upstreams {
    pub(crate) list: Arc<List>,
    pub(crate) budget: Budget,
    pub(crate) retries_max: u32,
    pub(crate) common: Arc<Common>,
}

impl Source for Upstreams {
    type Outgoing = Outgoing;
    type Failure = Failure;

    /// This cache works on behalf of the servers behind it (RFC 9213, section 3).
    const TARGETS: &'static [HeaderName] = &[CDN_CACHE_CONTROL];

    async fn ask(&self, outgoing: &Outgoing, served: &mut Served) -> Result<source::Answer, Failure> {
        // Boxed: the wait for an upstream is large.
        let answer = Box::pin(exchange(self, outgoing, &mut RequestBody::empty(), served)).await?;
        let (version, status) = (answer.version, answer.status);
        Ok(source::Answer { version, status, headers: answer.headers, body: answer.body })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.common.spawn(task);
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
