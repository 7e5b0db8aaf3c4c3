//! A span for each request, which follows it from color to color.

use std::sync::atomic::{AtomicU64, Ordering};

use dapple_http::Request;
use tracing::{Level, Span, debug_span};

use crate::http::Client;

/// The span of a request; `None` if no subscriber listens at this level, which costs one
/// comparison.
pub(super) fn of(request: &Request<'_>, client: &Client) -> Option<Span> {
    if !tracing::enabled!(Level::DEBUG) {
        return None;
    }
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let id = COUNT.fetch_add(1, Ordering::Relaxed);
    let (method, path) = (request.method.as_str(), request.path.escape_debug());
    Some(debug_span!("request", id, %method, %path, client = %client.addr, color = client.color))
}
