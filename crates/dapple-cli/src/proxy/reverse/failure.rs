//! Why there is no answer of an upstream's.

use std::time::Duration;

use http::{HeaderName, HeaderValue, StatusCode};

use crate::http::Reply;
use crate::proxy::reply;

/// What kept a request from its answer. Pages say only what is nobody's secret; what is in here goes to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection came about.
    Unreachable(String),
    /// None did in time.
    ConnectTimeout,
    /// As many connections and requests as there may be, for all upstreams that are in.
    Busy,
    /// All upstreams are out; one may be tried again after this time.
    NoneIn(Duration),
    /// The connection ended before there was a response.
    Broken(String),
    /// The response can be read in two ways, or in none.
    Framing(&'static str),
    /// The body of the request could not be handed on.
    Stuck,
    /// The response did not begin in time.
    TimedOut,
    /// The body of the request ended early, or was not as announced.
    Client(String),
    /// Nothing more of it came in time.
    Idle,
    /// The request has been here before.
    Loop,
    /// What is asked for is not done here.
    Unsupported(&'static str),
    /// The request makes no sense.
    Bad(&'static str),
}

impl Failure {
    /// The status that says so.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Failure::Unreachable(_) | Failure::Broken(_) | Failure::Framing(_) => StatusCode::BAD_GATEWAY,
            Failure::ConnectTimeout | Failure::Stuck | Failure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Failure::Busy | Failure::NoneIn(_) => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Client(_) | Failure::Bad(_) => StatusCode::BAD_REQUEST,
            Failure::Idle => StatusCode::REQUEST_TIMEOUT,
            Failure::Loop => StatusCode::LOOP_DETECTED,
            Failure::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// What it is called in `Proxy-Status` (RFC 9209, section 2.3); `None` where the fault is the client's.
    fn error_type(&self) -> Option<&'static str> {
        Some(match self {
            Failure::Unreachable(_) => "connection_refused",
            Failure::ConnectTimeout => "connection_timeout",
            Failure::Busy => "connection_limit_reached",
            Failure::NoneIn(_) => "destination_unavailable",
            Failure::Broken(_) => "http_response_incomplete",
            Failure::Framing(_) => "http_protocol_error",
            Failure::Stuck | Failure::TimedOut => "http_response_timeout",
            Failure::Loop => "proxy_loop_detected",
            Failure::Client(_) | Failure::Idle | Failure::Unsupported(_) | Failure::Bad(_) => return None,
        })
    }

    /// What to tell the client. Where upstreams are, and what they said, is not its business.
    fn text(&self) -> String {
        let text = match self {
            Failure::Unreachable(_) => "The server behind this proxy could not be reached.",
            Failure::ConnectTimeout => "The server behind this proxy could not be reached in time.",
            Failure::Busy => "The servers behind this proxy have as many requests as they may. Please try again.",
            Failure::NoneIn(_) => "No server behind this proxy is in service. Please try again later.",
            Failure::Broken(_) => "The server behind this proxy ended the connection before its response was complete.",
            Failure::Framing(_) => "The response of the server behind this proxy cannot be passed on safely.",
            Failure::Stuck => "The server behind this proxy did not take the request in time.",
            Failure::TimedOut => "The server behind this proxy did not answer in time.",
            Failure::Client(why) => return format!("The body of the request ended early: {why}."),
            Failure::Idle => "The body of the request did not go on in time.",
            Failure::Loop => "This request has come through this proxy before.",
            Failure::Unsupported(text) | Failure::Bad(text) => text,
        };
        text.to_owned()
    }

    /// The page that says so.
    pub(crate) fn reply(&self, is_head: bool) -> Reply {
        let mut reply = reply::page(self.status(), &self.text(), is_head);
        if let Some(kind) = self.error_type() {
            let value = HeaderValue::from_str(&format!("dapple; error={kind}"));
            reply.headers.extend(value.ok().map(|value| (HeaderName::from_static("proxy-status"), value)));
        }
        let retry_after = match self {
            Failure::Busy => Some(1),
            Failure::NoneIn(after) => Some(after.as_millis().div_ceil(1_000).max(1) as u64),
            _ => None,
        };
        if let Some(seconds) = retry_after {
            reply.headers.insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        reply.close = matches!(self, Failure::Client(_) | Failure::Idle);
        reply
    }
}
