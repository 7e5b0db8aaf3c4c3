//! The reasons why there is no response from an upstream.

use std::fmt;
use std::time::Duration;

use dapple_client::ConnectError;
use dapple_client::upstream::with_causes;
use http::{HeaderName, HeaderValue, StatusCode};

use crate::http::Reply;
use crate::proxy::reply;

/// The reason why a request has no response. Pages reveal nothing confidential; the details here go
/// to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Its name was not found.
    Unknown(String),
    /// Looking its name up took too long.
    LookupTimeout,
    /// No connection could be made.
    Unreachable(String),
    /// It did not prove its identity.
    Certificate(String),
    /// The TLS handshake failed.
    Tls(String),
    /// No connection was made in time.
    ConnectTimeout,
    /// All upstreams in service have reached their limit of connections and requests.
    Busy,
    /// No upstream is in service; one may be tried again after this time.
    NoneIn(Duration),
    /// The connection ended before there was a response.
    Broken(String),
    /// The response is ambiguous or malformed.
    Framing(&'static str),
    /// The upstream did not take the body of the request.
    Stuck,
    /// The response did not begin in time.
    TimedOut,
    /// The body of the request ended early, or differed from its announcement.
    Client(String),
    /// The client sent no more of the body in time.
    Idle,
    /// The stored response needs an upstream's confirmation, and none answers.
    NeverStale(Box<Failure>),
    /// The client wants it from the cache only.
    OnlyIfCached,
    /// The request has been here before.
    Loop,
    /// The proxy does not support the request.
    Unsupported(&'static str),
    /// The request makes no sense.
    Bad(&'static str),
}

impl Failure {
    /// The status for this failure.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Failure::Unknown(_)
            | Failure::Unreachable(_)
            | Failure::Certificate(_)
            | Failure::Tls(_)
            | Failure::Broken(_)
            | Failure::Framing(_) => StatusCode::BAD_GATEWAY,
            Failure::LookupTimeout
            | Failure::ConnectTimeout
            | Failure::Stuck
            | Failure::TimedOut
            | Failure::NeverStale(_)
            | Failure::OnlyIfCached => StatusCode::GATEWAY_TIMEOUT,
            Failure::Busy | Failure::NoneIn(_) => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Client(_) | Failure::Bad(_) => StatusCode::BAD_REQUEST,
            Failure::Idle => StatusCode::REQUEST_TIMEOUT,
            Failure::Loop => StatusCode::LOOP_DETECTED,
            Failure::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// The name of this failure in `Proxy-Status` (RFC 9209, section 2.3); `None` if the fault is
    /// the client's.
    fn error_type(&self) -> Option<&'static str> {
        Some(match self {
            Failure::Unknown(_) => "dns_error",
            Failure::LookupTimeout => "dns_timeout",
            Failure::Unreachable(_) => "connection_refused",
            Failure::Certificate(_) => "tls_certificate_error",
            Failure::Tls(_) => "tls_protocol_error",
            Failure::ConnectTimeout => "connection_timeout",
            Failure::Busy => "connection_limit_reached",
            Failure::NoneIn(_) => "destination_unavailable",
            Failure::Broken(_) => "http_response_incomplete",
            Failure::Framing(_) => "http_protocol_error",
            Failure::Stuck | Failure::TimedOut => "http_response_timeout",
            Failure::Loop => "proxy_loop_detected",
            Failure::NeverStale(cause) => return cause.error_type(),
            Failure::Client(_) | Failure::Idle | Failure::OnlyIfCached | Failure::Unsupported(_) | Failure::Bad(_) => {
                return None;
            }
        })
    }

    /// The text for the client. It does not reveal where upstreams are, or their messages.
    fn text(&self) -> String {
        let text = match self {
            Failure::Unknown(_) | Failure::Unreachable(_) => "The server behind this proxy could not be reached.",
            Failure::Certificate(_) | Failure::Tls(_) => "The server behind this proxy could not be reached safely.",
            Failure::LookupTimeout => "The server behind this proxy could not be found in time.",
            Failure::ConnectTimeout => "The server behind this proxy could not be reached in time.",
            Failure::Busy => "The servers behind this proxy have reached their limit of requests. Please try again.",
            Failure::NoneIn(_) => "No server behind this proxy is in service. Please try again later.",
            Failure::Broken(_) => "The server behind this proxy ended the connection before its response was complete.",
            Failure::Framing(_) => "The response of the server behind this proxy cannot be passed on safely.",
            Failure::Stuck => "The server behind this proxy did not take the request in time.",
            Failure::TimedOut => "The server behind this proxy did not answer in time.",
            Failure::Client(why) => return format!("The body of the request ended early: {why}."),
            Failure::Idle => "The body of the request did not arrive in time.",
            Failure::NeverStale(cause) => {
                return format!("The stored response may not be used without asking a server. {}", cause.text());
            }
            Failure::OnlyIfCached => "The cache does not have it, and the request allowed only the cache.",
            Failure::Loop => "This request has come through this proxy before.",
            Failure::Unsupported(text) | Failure::Bad(text) => text,
        };
        text.to_owned()
    }

    /// The page for this failure.
    pub(crate) fn reply(&self, is_head: bool) -> Reply {
        let mut reply = reply::page(self.status(), &self.text(), is_head);
        if let Some(kind) = self.error_type() {
            let value = HeaderValue::from_str(&format!("dapple; error={kind}"));
            reply.headers.extend(value.ok().map(|value| (HeaderName::from_static("proxy-status"), value)));
        }
        let cause = if let Failure::NeverStale(cause) = self { cause } else { self };
        let retry_after = match cause {
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

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        match error {
            ConnectError::Unknown { source, .. } => Failure::Unknown(source.to_string()),
            ConnectError::LookupTimedOut { .. } => Failure::LookupTimeout,
            ConnectError::Unreachable { source, .. } => Failure::Unreachable(source.to_string()),
            ConnectError::Certificate { source, .. } => Failure::Certificate(source.to_string()),
            ConnectError::Tls { source, .. } => Failure::Tls(source.to_string()),
            ConnectError::TimedOut { .. } => Failure::ConnectTimeout,
            ConnectError::Busy { .. } => Failure::Busy,
            ConnectError::Handshake { source, .. } => Failure::Broken(with_causes(&source)),
            error => Failure::Unreachable(error.to_string()),
        }
    }
}

/// Describes the upstream's problem, for the operator of the proxy.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unknown(why) => write!(f, "its name could not be looked up: {why}"),
            Failure::LookupTimeout => write!(f, "looking its name up took too long"),
            Failure::Unreachable(why) => write!(f, "cannot connect to it: {why}"),
            Failure::Certificate(why) => {
                write!(f, "its certificate is not accepted: {why}; --upstream-ca names the accepted authorities")
            }
            Failure::Tls(why) => write!(f, "the TLS handshake failed: {why}; http:// and h2c:// do not use TLS"),
            Failure::ConnectTimeout => write!(f, "connecting to it took too long"),
            Failure::Busy => write!(f, "it has reached its limit of requests"),
            Failure::NoneIn(_) => write!(f, "it is out of service"),
            Failure::Broken(why) => write!(f, "the connection ended before there was a response: {why}"),
            Failure::Framing(why) => {
                write!(f, "its answer is not a response of the HTTP version in use: {why}")
            }
            Failure::Stuck => write!(f, "it did not take the request in time"),
            Failure::TimedOut => write!(f, "it did not answer in time"),
            Failure::Client(why) => write!(f, "the client ended its request: {why}"),
            Failure::Idle => write!(f, "the client did not continue its request"),
            Failure::NeverStale(cause) => write!(f, "{cause}"),
            Failure::OnlyIfCached => write!(f, "the cache does not have it, and the request allowed only the cache"),
            Failure::Loop => write!(f, "the request has been here before"),
            Failure::Unsupported(what) | Failure::Bad(what) => write!(f, "{what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use dapple_client::ConnectError;

    use super::Failure;

    #[test]
    fn a_late_name_server_does_not_mean_an_unknown_name() {
        let (host, source) = ("a.test".to_owned(), io::ErrorKind::NotFound.into());
        let errors = [ConnectError::LookupTimedOut { host: host.clone() }, ConnectError::Unknown { host, source }];
        let failures = errors.map(Failure::from);
        let said = failures.each_ref().map(|failure| {
            let reply = failure.reply(false);
            (reply.status.as_u16(), reply.headers["proxy-status"].to_str().unwrap().to_owned())
        });
        let expected = [(504, "dapple; error=dns_timeout"), (502, "dapple; error=dns_error")];
        assert_eq!(said, expected.map(|(status, text)| (status, text.to_owned())));
        assert_eq!(failures[0], Failure::LookupTimeout);
    }
}
