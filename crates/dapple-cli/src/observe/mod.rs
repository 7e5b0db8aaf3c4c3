//! Reports about the requests of a server: the access log, metrics, and spans.
//!
//! A service passes each request through [`Observing`]. If nothing is enabled, that costs two
//! comparisons; otherwise the reply carries an [`Observer`](crate::http::Observer), which learns
//! how many bytes were sent and whether all were.

mod args;
mod exchange;
pub(crate) mod log;
/// The metrics library of `dapple-serve`.
pub(crate) mod metrics {
    pub(crate) use dapple_serve::metrics::*;
}
mod span;
pub(crate) mod time;
pub(crate) mod told;

use std::future::Future;

use dapple::Handle;
use dapple_http::Request;
use tracing::{Instrument, debug};

pub(crate) use self::args::{MetricsArgs, ToldArgs};
use self::exchange::Exchange;
use self::log::Log;
use self::metrics::Metrics;
use crate::http::{Awaited, Client, Reply};

/// Reports requests to the enabled sinks.
#[derive(Clone, Copy)]
pub(crate) struct Observing {
    sinks: Option<&'static Sinks>,
}

/// The sinks of reports. A process has one value and keeps it, so that requests need no reference
/// count.
pub(crate) struct Sinks {
    pub(crate) handle: Handle,
    pub(crate) log: Option<Log>,
    pub(crate) metrics: Option<Metrics>,
}

impl Observing {
    /// Reports to these sinks, if any is enabled.
    pub(crate) fn new(sinks: Sinks) -> Observing {
        let is_any = sinks.log.is_some() || sinks.metrics.is_some();
        Observing { sinks: is_any.then(|| &*Box::leak(Box::new(sinks))) }
    }

    /// The sinks, if any is enabled.
    pub(crate) fn sinks(&self) -> Option<&'static Sinks> {
        self.sinks
    }

    /// Whether no sink is enabled, so that requests need not pass through here.
    pub(crate) fn is_idle(&self) -> bool {
        self.sinks.is_none() && !tracing::enabled!(tracing::Level::DEBUG)
    }

    /// Observes a request that `answer` answers.
    pub(crate) async fn answer(
        &self,
        request: &Request<'_>,
        client: &Client,
        answer: impl Future<Output = Reply>,
    ) -> Reply {
        let exchange = self.sinks.map(|sinks| Exchange::begin(sinks, request, client));
        let mut reply = match span::of(request, client) {
            None => answer.await,
            Some(span) => {
                let reply = answer.instrument(span.clone()).await;
                span.in_scope(|| debug!(status = reply.status.as_u16(), "answered"));
                reply
            }
        };
        if let Some(mut exchange) = exchange {
            exchange.answered(reply.status);
            exchange.served(reply.served.take());
            reply.observer = Some(Box::new(exchange));
        }
        reply
    }

    /// Counts a connection that ends because its client took too long.
    pub(crate) fn timed_out(&self, awaited: Awaited) {
        if let Some(metrics) = self.sinks.and_then(|sinks| sinks.metrics.as_ref()) {
            metrics.timed_out(awaited);
        }
    }

    /// Observes the reply to input that is refused before it is a request.
    pub(crate) fn refuse(&self, mut reply: Reply, reason: &str, client: &Client) -> Reply {
        if let Some(sinks) = self.sinks {
            let mut exchange = Exchange::refused(sinks, reason, client);
            exchange.answered(reply.status);
            reply.observer = Some(Box::new(exchange));
        }
        debug!(client = %client.addr, status = reply.status.as_u16(), reason, "refused");
        reply
    }
}
