//! Health checks of an upstream.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use dapple::time::{sleep, timeout};
use dapple_client::upstream::with_causes;
use http::header::{HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use tracing::debug;

use super::Upstream;
use crate::proxy::reverse::failure::Failure;
use crate::proxy::reverse::list::List;
use crate::proxy::reverse::target::Scheme;
use crate::proxy::upstream::sending::prepare;

/// The settings of health checks.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    pub(crate) path: PathAndQuery,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    /// The number of checks in a row that puts it into service, or out.
    pub(crate) passes: u32,
    pub(crate) failures: u32,
}

/// Checks in a row with the same outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    is_well: bool,
    len: u32,
}

impl Row {
    /// Adds a check. Returns the new state of the upstream, if that is certain.
    fn add(&mut self, is_well: bool, checks: &Checks) -> Option<bool> {
        self.len = if self.is_well == is_well { self.len.saturating_add(1) } else { 1 };
        self.is_well = is_well;
        let enough = if is_well { checks.passes } else { checks.failures };
        (self.len >= enough).then_some(is_well)
    }
}

/// Checks an upstream at intervals, as long as it is in the list. Each check uses a new connection,
/// to see whether one can be made.
pub(crate) async fn check_health(list: Arc<List>, upstream: Weak<Upstream>, checks: Checks) {
    let mut row = Row::default();
    loop {
        let Some(upstream) = upstream.upgrade().filter(|upstream| !upstream.is_retired()) else { return };
        let outcome = timeout(checks.timeout, ask(&upstream, &checks.path)).await;
        let is_well = matches!(&outcome, Ok(Ok(status)) if status.is_success() || status.is_redirection());
        upstream.counts.checks.fetch_add(1, Ordering::Relaxed);
        if !is_well {
            upstream.counts.checks_failed.fetch_add(1, Ordering::Relaxed);
            let reason = match outcome {
                Ok(Ok(status)) => format!("a health check was answered with {}", status.as_u16()),
                Ok(Err(failure)) => format!("a health check failed: {failure}"),
                Err(_) => format!("a health check was not answered within {:?}", checks.timeout),
            };
            debug!(upstream = &*upstream.name, reason, "a health check failed");
            upstream.failed(reason);
        }
        // Reported each time: checks bring back upstreams that requests took out of service.
        if let Some(is_well) = row.add(is_well, &checks) {
            list.set_health(&upstream, is_well);
        }
        drop(upstream);
        sleep(checks.interval).await;
    }
}

async fn ask(upstream: &Arc<Upstream>, path: &PathAndQuery) -> Result<StatusCode, Failure> {
    let line = upstream.host.single().await?;
    let turn = upstream.host.extra_turn();
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static("dapple-health"));
    let authority = upstream.authority.clone();
    let uri = if line.is_h2() {
        let scheme = if upstream.target.scheme == Scheme::Https { "https" } else { "http" };
        let uri = Uri::builder().scheme(scheme).authority(authority).path_and_query(path.clone()).build();
        uri.map_err(|error| Failure::Broken(error.to_string()))?
    } else {
        headers.extend(HeaderValue::from_str(authority.as_str()).ok().map(|host| (HOST, host)));
        Uri::from(path.clone())
    };
    let request = prepare(&Method::GET, uri, &headers, None, Some(0)).request;
    let (respond, _lease) = line.send(request, turn);
    // The body is not read: the connection ends.
    let response = respond.await.map_err(|unanswered| Failure::Broken(with_causes(&unanswered.error)))?;
    Ok(response.status())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::uri::PathAndQuery;

    use super::{Checks, Row};

    #[test]
    fn it_takes_several_in_a_row() {
        let checks = Checks {
            path: PathAndQuery::from_static("/"),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            passes: 2,
            failures: 3,
        };
        let mut row = Row::default();
        let outcomes = [true, true, true, false, false, true, false, false, false, false, true];
        let said = outcomes.map(|is_well| row.add(is_well, &checks));
        let (well, ill) = (Some(true), Some(false));
        assert_eq!(said, [None, well, well, None, None, None, None, None, ill, ill, None]);
    }
}
